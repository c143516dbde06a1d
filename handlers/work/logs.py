"""Typed logs: kept while a task is worked on, listed, and found again."""

from __future__ import annotations

from cards import formats
from cards.plain import log_data
from cards.views.work.logs import found_card, noted_card, page_card, warnings
from cards.words import Words
from handlers.errors import Usage, UserError
from handlers.flags import flags_of
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.services.notebook import Jotting, NoSuchFile
from handlers.work.naming import found_task, id_and_rest, number_of
from storage.records.logs import LogKind
from storage.records.notebook import MOST_ERRORS, Noted

commands = Commands("method")

LISTED = 20
FOUND = 15

MOST_LISTED = 200

_FLAGS = ("phase", "attempt", "file", "last")
_SEARCH = {"search", "find", "搜索", "查找", "搜"}
_WORD = 40


@commands(
    "log",
    usage="id kind [--phase p] [--attempt n] [--file f] text | id [kind] [--last n] | search words",
    aliases=("note", "记录", "记"),
    verbatim=True,
)
async def log(request: Request) -> Reply:
    """Keep a log of a task, list its logs, or search all logs."""
    first, rest = id_and_rest(request, "log")
    if first.casefold() in _SEARCH:
        return await _search(request, rest)
    task = await found_task(request, first)
    before = flags_of(rest, valued=_FLAGS)
    word, text = _cut(before.text)
    kind = LogKind.named(word) if word else None
    if word and kind is None:
        raise UserError("unknown_log_kind", word=formats.line(word, _WORD))
    after = flags_of(text, valued=_FLAGS)
    options = {**before.options, **after.options}
    brought = bool(request.files or options.get("file"))
    if kind is None or not (after.text or brought):
        many = min(number_of(options.get("last", str(LISTED))) or LISTED, MOST_LISTED)
        page = await request.services.notebook.logs(task, kind, many)
        data = {"id": task.id, "logs": [log_data(e) for e in page.entries], "total": page.total}
        return Reply(card=page_card(page, kind, request.words, zone=request.zone), data=data)
    jotting = Jotting(
        kind=kind,
        text=after.text or _names(request.files, options.get("file", "")),
        stage=options.get("phase", ""),
        attempt=number_of(options.get("attempt", "0")),
        file=options.get("file", ""),
        sent=request.files,
    )
    try:
        noted = await request.services.notebook.note(
            task, jotting, by=request.person, source=request.source
        )
    except NoSuchFile as missing:
        raise UserError("no_such_file", path=formats.line(missing.path, 200)) from missing
    return noted_reply(request, noted)


def noted_reply(request: Request, noted: Noted, hint: str = "") -> Reply:
    card = noted_card(noted, request.words, hint=hint)
    return Reply(card=card, data=noted_data(noted, request.words))


def noted_data(noted: Noted, words: Words) -> dict[str, object]:
    task = noted.task
    return {
        **log_data(noted.entry),
        "number": noted.number,
        "errors": task.errors,
        "most_errors": MOST_ERRORS,
        "blocked": noted.blocked,
        "cut": noted.cut,
        "planless": noted.planless,
        "warnings": warnings(noted, words),
        "goal": task.instruction if noted.reminds else None,
    }


async def _search(request: Request, wanted: str) -> Reply:
    if not wanted:
        raise Usage("log")
    hits = await request.services.notebook.search_logs(
        wanted.split(), by=request.person, chat=request.chat.id, limit=FOUND
    )
    found = [{**log_data(hit.entry), "title": hit.task.title} for hit in hits]
    card = found_card(hits, wanted, request.words, now=request.now)
    return Reply(card=card, data={"logs": found})


def _cut(text: str) -> tuple[str, str]:
    word, *rest = text.split(maxsplit=1) or [""]
    return word, "".join(rest)


def _names(sent: tuple[str, ...], named: str) -> str:
    paths = [*sent, *([named] if named else [])]
    return ", ".join(path.rsplit("/", 1)[-1] for path in paths)
