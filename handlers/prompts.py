"""Handles versions of prompts and the search for better ones: /prompt and /evolve."""

from __future__ import annotations

from cards import formats
from cards.views.prompts import (
    analysis_card,
    cycle_card,
    prompt_card,
    prompt_data,
    prompt_diff_card,
    prompts_card,
    rolled_back_card,
    signal_data,
    signals_card,
)
from handlers.errors import UsageError, UserError
from handlers.request import CommandRegistry, Reply, Request
from storage.records.prompt_versions import ORIGINAL, PromptInfo

commands = CommandRegistry("system")

_LIST_WORDS = {"", "list", "列表"}
_SHOW_WORDS = {"show", "查看"}
_DIFF_WORDS = {"diff", "对比", "差异"}
_ROLLBACK_WORDS = {"rollback", "回滚"}
_ANALYZE_WORDS = {"analyze", "analyse", "分析"}
_HISTORY_WORDS = {"history", "历史"}
_MAX_NAME = 40
_SHOWN_SIGNALS = 10


@commands("prompt", aliases=("prompts", "提示词"))
async def manage_prompts(request: Request) -> Reply:
    word, *rest = request.args.casefold().split() or [""]
    if word in _LIST_WORDS:
        prompts = await request.services.prompts.list_prompts()
        data = {"prompts": [prompt_data(each) for each in prompts]}
        return Reply(card=prompts_card(prompts, request.words), data=data)
    if word in _SHOW_WORDS and len(rest) == 1:
        prompt = await _find(request, rest[0])
        card = prompt_card(prompt, request.words, zone=request.zone)
        return Reply(card=card, data=prompt_data(prompt))
    if word in _DIFF_WORDS and len(rest) in {1, 3}:
        return await _diff(request, *rest)
    if word in _ROLLBACK_WORDS and len(rest) == 1:
        return await _roll_back(request, rest[0])
    raise UsageError("prompt")


@commands("evolve", aliases=("进化",))
async def evolve(request: Request) -> Reply:
    """Run or list the search for better prompts. For owners: it may call a model, and quotes
    everybody's tasks."""
    request.require_owner()
    word = request.args.strip().casefold()
    if not word:
        report = await request.services.prompts.run_cycle(by=request.person)
        data = {
            "mode": report.mode.value,
            "tasks": report.tasks,
            "succeeded": report.succeeded,
            "signals": [signal_data(each) for each in report.signals],
            "settled": [
                {"name": version.ref.label, "number": version.number, "verdict": verdict.value}
                for version, verdict in report.settled
            ],
        }
        return Reply(card=cycle_card(report, request.words), data=data)
    if word in _ANALYZE_WORDS:
        analysis = await request.services.prompts.analyze()
        return Reply(card=analysis_card(analysis, request.words))
    if word in _HISTORY_WORDS:
        signals = await request.services.prompts.list_signals(_SHOWN_SIGNALS)
        card = signals_card(signals, request.words, zone=request.zone)
        return Reply(card=card, data={"signals": [signal_data(each) for each in signals]})
    raise UsageError("evolve")


async def _diff(request: Request, name: str, *numbers: str) -> Reply:
    """Show what the newest version changes in the text that it was made from; used where no number
    is given."""
    prompt = await _find(request, name)
    if numbers:
        old, new = (_text_of(prompt, each) for each in numbers)
    elif prompt.versions:
        newest = prompt.versions[-1]
        before = [each.content for each in prompt.versions if each.number == newest.parent]
        old = (newest.parent, next(iter(before), newest.parent_content))
        new = (newest.number, newest.content)
    else:
        old = new = (ORIGINAL, prompt.written)
    return Reply(card=prompt_diff_card(prompt.label, old, new, request.words))


async def _roll_back(request: Request, name: str) -> Reply:
    request.require_owner()
    prompt = await _find(request, name)
    version = await request.services.prompts.roll_back(prompt.ref, by=request.person)
    if version is None:
        raise UserError("prompt_as_written", name=prompt.label)
    return Reply(card=rolled_back_card(version, request.words))


async def _find(request: Request, name: str) -> PromptInfo:
    found = await request.services.prompts.find_prompts(name)
    shown = formats.single_line(name, _MAX_NAME)
    if not found:
        raise UserError("unknown_prompt", name=shown)
    if len(found) > 1:
        raise UserError("several_prompts", name=shown, all=", ".join(each.label for each in found))
    return found[0]


def _text_of(prompt: PromptInfo, number: str) -> tuple[int, str]:
    if number == str(ORIGINAL):
        return ORIGINAL, prompt.written
    for each in prompt.versions:
        if str(each.number) == number:
            return each.number, each.content
    raise UserError(
        "unknown_version", name=prompt.label, number=formats.single_line(number, _MAX_NAME)
    )
