"""Who runs the model of a chat, and how all that could are doing."""

from __future__ import annotations

from cards.plain import backends_data
from cards.views.backends import backends_card, how
from handlers.access.ready import not_ready
from handlers.chat import LEAVES_IT, TAKES_BACK, choose_model
from handlers.registry import Commands
from handlers.request import Reply, Request

commands = Commands("talk")

_LIST = {"list", "ls", "列表"}
_CHECK = {"check", "检查"}
_NAME = 60


@commands(
    "backend",
    usage="[name|auto|check name]",
    aliases=("后端",),
    immediate=True,
    verbatim=True,
)
async def backend(request: Request) -> Reply:
    """Show who can do the work, or choose who does it in this chat."""
    word, _, rest = request.args.strip().partition(" ")
    if not word or (word.casefold() in _LIST and not rest):
        return await _report(request, "")
    if word.casefold() in _CHECK:
        return await _report(request, rest.strip())
    return await _choose(request)


async def _choose(request: Request) -> Reply:
    """Only one that can work: otherwise nothing is changed."""
    name = request.args.strip()
    if name.casefold() in LEAVES_IT | TAKES_BACK:
        return await choose_model(request)
    found = await request.services.models.ready(name)
    if found is None:
        return await _unknown(request, name)
    if found.problem:
        raise not_ready(request, found)
    return await choose_model(request)


async def _report(request: Request, name: str) -> Reply:
    report = await request.services.models.report(name)
    if report is None:
        return await _unknown(request, name)
    told = {each.name: how(each, request.words) for each in report.backends}
    data = backends_data(report, told)
    wrong = [each.name for each in report.backends if each.problem] if name else []
    if wrong:
        data["error"] = told[wrong[0]]
    return Reply(card=backends_card(report, request.words), good=not wrong, data=data)


async def _unknown(request: Request, name: str) -> Reply:
    """There is none of that name: here are all there are."""
    report = await request.services.models.report()
    assert report is not None
    told = {each.name: how(each, request.words) for each in report.backends}
    wrong = request.words("backends.unknown", name=name[:_NAME])
    data = {**backends_data(report, told), "error": wrong}
    return Reply(card=backends_card(report, request.words, wrong=wrong), good=False, data=data)
