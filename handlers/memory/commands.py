"""/memory and what belongs to it: what is remembered, seen and changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from cards import formats
from cards.memory_actions import (
    CleanMemory,
    DecideMemory,
    EditMemory,
    ForgetMemory,
    ListMemories,
    MemoriesHelped,
    MemoryAction,
    PinMemory,
    ShowMemory,
)
from cards.model import Text
from cards.views.memory.data import entry_data, found_data
from cards.views.memory.entries import (
    candidates_card,
    forget_card,
    found_card,
    handbook_card,
    is_chapter,
    page_card,
    profile_card,
)
from cards.views.memory.one import TEXT, entry_card
from handlers.errors import Usage, UserError
from handlers.flags import flags_of
from handlers.memory import behind, care, changing
from handlers.memory.refusals import answered, said
from handlers.registry import Commands
from handlers.request import Reply, Request
from handlers.work.naming import number_of
from storage.records.memory.entries import Entry
from storage.records.memory.shown import EntryPage, FoundEntry, Wanted
from storage.records.people import ChatKind

commands = Commands("memory")

FOUND = 10

_WORDS = {
    **dict.fromkeys(("list", "ls", "列表"), "list"),
    **dict.fromkeys(("add", "remember", "添加", "记住"), "add"),
    **dict.fromkeys(("search", "find", "搜索", "查找", "搜"), "search"),
    **dict.fromkeys(("show", "get", "查看", "显示"), "show"),
    **dict.fromkeys(("edit", "change", "修改", "编辑"), "edit"),
    **dict.fromkeys(("forget", "delete", "rm", "忘记", "删除"), "forget"),
    **dict.fromkeys(("pin", "置顶"), "pin"),
    **dict.fromkeys(("unpin", "取消置顶"), "unpin"),
    **dict.fromkeys(("move", "移动"), "move"),
    **dict.fromkeys(("why", "为什么", "依据"), "why"),
    **dict.fromkeys(("helped", "有用"), "helped"),
    **dict.fromkeys(("stats", "统计"), "stats"),
    **dict.fromkeys(("clean", "清理"), "clean"),
    **dict.fromkeys(("export", "导出"), "export"),
    **dict.fromkeys(("import", "导入"), "import"),
    **dict.fromkeys(("restore", "恢复"), "restore"),
}
_KINDS = {
    **{each.value: each for each in Wanted},
    "记得": Wanted.KNOWN,
    "全部": Wanted.ALL,
    "手册": Wanted.HANDBOOK,
    **dict.fromkeys(("个人资料", "资料", "画像"), Wanted.PROFILE),
    "长期": Wanted.LONGTERM,
    "事实": Wanted.FACTS,
    "原话": Wanted.CELLS,
    **dict.fromkeys(("经历", "情景"), Wanted.EPISODES),
    "候选": Wanted.CANDIDATES,
    "归档": Wanted.ARCHIVED,
    "过时": Wanted.SUPERSEDED,
    "丢弃": Wanted.REJECTED,
}
_KEEP, _DROP = {"keep", "yes", "confirm", "保留", "确认"}, {"drop", "no", "reject", "丢弃", "拒绝"}


@commands(
    "memory",
    usage="[list [kind] | add|search text | show|forget|pin|unpin id | edit id text"
    " | move id scope | why [task] | stats | clean | export | import | restore file]",
    aliases=("mem", "记忆"),
    verbatim=True,
)
async def memory(request: Request) -> Reply:
    """See and change what I remember."""
    first, rest = split(request.args)
    word = _WORDS.get(first.casefold(), "") if first else "list"
    if not word and _KINDS.get(first.casefold()):
        word, rest = "list", request.args
    if word not in _ORDERS:
        raise UserError("memory_no_order", word=_bare(request.args))
    return await answered(_ORDERS[word](request, rest))


@commands("remember", usage="text", aliases=("记住",), verbatim=True)
async def remember(request: Request) -> Reply:
    """Remember something for good."""
    return await answered(changing.add(request, request.args))


@commands("boss", usage="[chapter [text]]", aliases=("手册", "handbook"), verbatim=True)
async def boss(request: Request) -> Reply:
    """Show the handbook (BOSS.md), or rewrite one of its chapters."""
    return await answered(_handbook(request))


@commands("profile", aliases=("个人资料", "画像"))
async def profile(request: Request) -> Reply:
    """Show what I know about you."""
    page = await _page(request, Wanted.PROFILE)
    data = {"profile": [entry_data(each) for each in page.entries]}
    card = profile_card(page.entries, request.words, zone=request.zone, shared=shared(request))
    return Reply(card=card, data=data)


@commands("candidates", usage="[keep|drop id]", aliases=("候选",))
async def candidates(request: Request) -> Reply:
    """Decide about memories that wait for a word of yours."""
    first, rest = split(request.args)
    if not first:
        page = await _page(request, Wanted.CANDIDATES)
        data = {"candidates": [entry_data(each) for each in page.entries]}
        card = candidates_card(page.entries, request.words, zone=request.zone)
        return Reply(card=card, data=data)
    word = first.casefold()
    if word not in _KEEP | _DROP or not rest:
        raise Usage("candidates")
    return await answered(changing.decide(request, rest, keep=word in _KEEP))


async def pressed(
    request: Request, action: MemoryAction, card_key: str, value: str, form: Mapping[str, str]
) -> Reply:
    """A button or form about memories; whether this person may press it was checked."""
    return await answered(_pressed(request, action, card_key, value, form))


async def _pressed(  # noqa: C901 - one line for each action of the closed union
    request: Request, action: MemoryAction, card_key: str, value: str, form: Mapping[str, str]
) -> Reply:
    match action:
        case ListMemories(wanted=wanted, scope=scope, page=page):
            shown = await _listed(request, wanted, scope, page)
        case ShowMemory(entry_id=entry_id):
            return await _show(request, entry_id or value)
        case ForgetMemory(entry_id=entry_id, among=among, also=also, revisions=revisions):
            shown = await changing.forgotten(request, (entry_id, *also), revisions)
            if among:
                shown = await which_to_forget(request, among, gone=shown) or shown
        case PinMemory(entry_id=entry_id, pinned=pinned):
            await changing.pin(request, entry_id, pinned=pinned)
            shown = await _show(request, entry_id)
        case EditMemory(entry_id=entry_id, revision=revision):
            await changing.edited(request, entry_id, form.get(TEXT, ""), revision=revision)
            shown = await _show(request, entry_id)
        case DecideMemory(entry_id=entry_id, keep=keep, listed=listed, wording=wording):
            shown = await changing.decide(request, entry_id, keep=keep, wording=wording)
            if listed:
                shown = await _others_waiting(request, shown) or shown
        case CleanMemory():
            shown = await care.clean(request, "yes")
        case MemoriesHelped():
            shown = await behind.pressed(request, action)
        case _:
            assert_never(action)
    return replace(shown, key=card_key, in_place=True)


async def _list(request: Request, rest: str) -> Reply:
    flags = flags_of(rest, valued=("scope", "page"))
    word, more = split(flags.text)
    flags_behind = flags_of(more, valued=("scope", "page"))
    options = {**flags.options, **flags_behind.options}
    wanted = _KINDS.get(word.casefold()) if word else Wanted.KNOWN
    if wanted is None:
        raise UserError("memory_no_kind", word=_bare(word))
    page = max(1, number_of(options.get("page", "1")))
    return await _listed(request, wanted, options.get("scope", ""), page)


async def _listed(request: Request, wanted: Wanted, scope: str, page: int) -> Reply:
    found = await request.services.memory.list(
        request.person, request.chat, wanted, scope=scope, page=page
    )
    data = {"memories": [entry_data(each) for each in found.entries], "total": found.total}
    card = page_card(
        found, wanted, request.words, zone=request.zone, scope=scope, shared=shared(request)
    )
    return Reply(card=card, data=data)


async def search(request: Request, rest: str) -> Reply:
    if not rest:
        raise UserError("memory_how_search")
    found, told, near = await _found(request, rest)
    data = {"memories": [found_data(each) for each in found]}
    card = found_card(told or near, near if told else (), rest, request.words, zone=request.zone)
    return Reply(card=card, data=data)


async def _others_waiting(request: Request, decided: Reply) -> Reply | None:
    page = await _page(request, Wanted.CANDIDATES)
    if not page.entries:
        return None
    card = candidates_card(page.entries, request.words, zone=request.zone, done=_told(decided))
    return Reply(card=card, data=decided.data)


async def known(request: Request) -> Reply:
    """What was made of all that was said."""
    return await answered(_listed(request, Wanted.KNOWN, "", 1))


async def which_to_forget(
    request: Request, query: str, *, gone: Reply | None = None
) -> Reply | None:
    """What says so, to be pressed; None where nothing does. `gone` is what was just forgotten."""
    found, told, _ = await _found(request, query)
    if not told:
        return None
    card = forget_card(told, query, request.words, zone=request.zone, gone=_told(gone))
    return Reply(card=card, data={"memories": [found_data(each) for each in found]})


async def _found(
    request: Request, query: str
) -> tuple[Sequence[FoundEntry], Sequence[Entry], Sequence[Entry]]:
    """What was found; of it what has a word of the query itself, and what does not."""
    found = await request.services.memory.search(request.person, request.chat, query, limit=FOUND)
    told = [hit.entry for hit in found if not hit.near]
    return found, told, [hit.entry for hit in found if hit.near]


def _told(reply: Reply | None) -> str:
    blocks = () if reply is None or reply.card is None else reply.card.blocks
    return "\n".join(each.markdown for each in blocks if isinstance(each, Text))


def shared(request: Request) -> bool:
    """Whether others read along."""
    return request.chat.kind is not ChatKind.PRIVATE


async def _show(request: Request, rest: str) -> Reply:
    entry_id = split(rest)[0]
    if not entry_id:
        raise UserError("memory_which")
    shown = await request.services.memory.show(request.person, request.chat, entry_id)
    card = entry_card(
        shown.entry, request.words, zone=request.zone, strength=shown.strength, mine=shown.mine
    )
    return Reply(card=card, data={**entry_data(shown.entry), "strength": shown.strength})


async def _handbook(request: Request) -> Reply:
    first, text = split(request.args)
    book = request.services.memory
    if text:
        entry = await book.write_chapter(request.person, request.chat, first, text)
        return said(request, "memory.chapter_written", entry, chapter=entry.label)
    chapters = await book.handbook(request.person, request.chat)
    wanted = [each for each in chapters if not first or is_chapter(each, first)]
    data = {"chapters": {each.label: each.text for each in wanted}}
    return Reply(card=handbook_card(wanted, request.words), data=data)


async def _page(request: Request, wanted: Wanted) -> EntryPage:
    return await request.services.memory.list(request.person, request.chat, wanted)


def _bare(text: str) -> str:
    """As it can stand between the marks of code."""
    return formats.line(text, 60).replace("`", "'")


def split(text: str) -> tuple[str, str]:
    """The first word, and all that follows it."""
    first, *rest = text.split(maxsplit=1) or [""]
    return first, "".join(rest).strip()


_ORDERS: Mapping[str, Callable[[Request, str], Awaitable[Reply]]] = {
    "list": _list,
    "add": changing.add,
    "search": search,
    "show": _show,
    "edit": changing.edit,
    "forget": changing.forget,
    "pin": changing.pinned,
    "unpin": changing.unpinned,
    "move": changing.move,
    "why": behind.why,
    "helped": behind.helped,
    "stats": care.stats,
    "clean": care.clean,
    "export": care.export,
    "import": care.bring,
    "restore": care.restore,
}
