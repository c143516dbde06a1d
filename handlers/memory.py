"""Handles /memory, /remember and /forget, requests to memory in plain words, and buttons on memory
cards."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import assert_never

from cards import formats, memory_actions
from cards.model import CardTone, TextBlock, notice_card
from cards.views import memory as views
from handlers import memory_reports
from handlers.errors import UsageError, UserError
from handlers.flags import parse_flags
from handlers.memory_consent import decide_withheld, switch_memory
from handlers.parsing import parse_number, split_first_word
from handlers.ports_workers import MemoryRequestRejected
from handlers.request import CommandRegistry, Reply, Request
from storage.records.memory import (
    MemoryEntry,
    MemoryListFilter,
    MemoryMatch,
    MemoryPage,
)
from storage.records.people import ChatMemory

_MAX_LINE = 200

_MAX_LENGTH = 120


async def explain_rejection(answer: Awaitable[Reply]) -> Reply:
    """Await the answer and explain a rejected request."""
    try:
        return await answer
    except MemoryRequestRejected as error:
        raise rejection_error(error) from error


def rejection_error(error: MemoryRequestRejected) -> UserError:
    detail = formats.single_line(error.detail, _MAX_LINE)
    return UserError(f"memory_{error.reason}", detail=detail)


def entry_reply(request: Request, key: str, entry: MemoryEntry, **facts: object) -> Reply:
    """One line about an entry."""
    text = request.words(
        key, **{"id": entry.id, "text": views.entry_text(entry, request.words, _MAX_LINE), **facts}
    )
    return Reply(card=notice_card("", text, tone=CardTone.GOOD), data=views.entry_data(entry))


_MAX_SHOWN_ID = 20


async def add_command(request: Request, rest: str) -> Reply:
    flags = parse_flags(rest, valued=("scope", "for"))
    if not flags.text:
        raise UserError("memory_empty")
    entry = await request.services.memory.add(
        request.person,
        request.chat,
        flags.text,
        scope=flags.options.get("scope", flags.options.get("for", "")),
        source=request.source,
    )
    return entry_reply(request, "memory.added", entry)


async def edit_command(request: Request, rest: str) -> Reply:
    entry_id, text = _split_entry_id(rest)
    if not text:
        raise UserError("memory_how_edit", id=entry_id)
    return await edit_entry(request, entry_id, text)


async def edit_entry(request: Request, entry_id: str, text: str, *, revision: int = 0) -> Reply:
    entry = await request.services.memory.edit(
        request.person, request.chat, entry_id, text, revision=revision
    )
    return entry_reply(request, "memory.edited", entry)


async def forget_command(request: Request, rest: str) -> Reply:
    return await forget_entry(request, _split_entry_id(rest)[0])


async def forget_entry(request: Request, entry_id: str, *, revision: int = 0) -> Reply:
    try:
        entry = await request.services.memory.forget(
            request.person, request.chat, entry_id, source=request.source, revision=revision
        )
    except MemoryRequestRejected as refusal:
        if refusal.reason != "forgotten":
            raise
        # An earlier run of this request deleted it and died before replying.
        text = request.words("memory.gone", id=formats.single_line(entry_id, _MAX_SHOWN_ID))
        return Reply(card=notice_card("", text, tone=CardTone.GOOD))
    # Without its text, because replies are stored.
    return entry_reply(request, "memory.gone", entry)


async def forget_entries(
    request: Request, entry_ids: Sequence[str], revisions: Sequence[int] = ()
) -> Reply:
    """Forget entries as they were shown; missing ones are skipped. Raises MemoryRequestRejected if
    one has changed, or if none is left."""
    last_reply: Reply | None = None
    for each, revision in zip_longest(entry_ids, revisions, fillvalue=0):
        try:
            last_reply = await forget_entry(request, str(each), revision=int(revision))
        except MemoryRequestRejected as refusal:
            if refusal.reason == "changed" or (last_reply is None and each == entry_ids[-1]):
                raise
    if len(entry_ids) == 1 or last_reply is None:
        return last_reply or Reply()
    text = request.words("memory.forgotten_all", n=len(entry_ids))
    return replace(last_reply, card=notice_card("", text, tone=CardTone.GOOD))


async def pin_command(request: Request, rest: str, *, pinned: bool) -> Reply:
    return await set_pinned(request, _split_entry_id(rest)[0], pinned=pinned)


async def set_pinned(request: Request, entry_id: str, *, pinned: bool) -> Reply:
    entry = await request.services.memory.pin(request.person, request.chat, entry_id, pinned=pinned)
    return entry_reply(request, "memory.pinned" if pinned else "memory.unpinned", entry)


async def move_command(request: Request, rest: str) -> Reply:
    entry_id, scope = _split_entry_id(rest)
    if not scope:
        raise UserError("memory_how_move", id=entry_id)
    entry = await request.services.memory.move(request.person, request.chat, entry_id, scope)
    return entry_reply(
        request, "memory.moved", entry, scope=views.scope_name(entry.scope, request.words)
    )


async def decide_candidate(
    request: Request, entry_id: str, *, keep: bool, wording: str = ""
) -> Reply:
    entry = await request.services.memory.decide(
        request.person, request.chat, entry_id.strip(), keep=keep, wording=wording
    )
    return entry_reply(request, "memory.kept" if keep else "memory.dropped", entry)


def _split_entry_id(rest: str) -> tuple[str, str]:
    entry_id, more = split_first_word(rest)
    if not entry_id:
        raise UserError("memory_which")
    return entry_id, more


commands = CommandRegistry("memory")

MAX_FOUND = 10

_SUBCOMMAND_WORDS = {
    **dict.fromkeys(("list", "ls", "列表"), "list"),
    **dict.fromkeys(("add", "remember", "添加", "记住"), "add"),
    **dict.fromkeys(("search", "find", "搜索", "查找", "搜"), "search"),
    **dict.fromkeys(("about", "关于"), "about"),
    **dict.fromkeys(("show", "get", "查看", "显示"), "show"),
    **dict.fromkeys(("edit", "change", "修改", "编辑"), "edit"),
    **dict.fromkeys(("forget", "delete", "rm", "忘记", "删除"), "forget"),
    **dict.fromkeys(("pin", "固定", "置顶"), "pin"),
    **dict.fromkeys(("unpin", "取消固定", "取消置顶"), "unpin"),
    **dict.fromkeys(("move", "移动"), "move"),
    **dict.fromkeys(("why", "为什么", "依据"), "why"),
    **dict.fromkeys(("helped", "有用"), "helped"),
    **dict.fromkeys(("stats", "统计"), "stats"),
    **dict.fromkeys(("clean", "清理"), "clean"),
    **dict.fromkeys(("export", "导出"), "export"),
    **dict.fromkeys(("import", "导入"), "import"),
    **dict.fromkeys(("restore", "恢复"), "restore"),
    **dict.fromkeys(("off", "关", "关闭"), "off"),
    **dict.fromkeys(("on", "开", "打开", "开启"), "on"),
}
_KIND_WORDS = {
    **{each.value: each for each in MemoryListFilter},
    "记得": MemoryListFilter.KNOWN,
    "全部": MemoryListFilter.ALL,
    "手册": MemoryListFilter.HANDBOOK,
    **dict.fromkeys(("个人资料", "资料", "画像"), MemoryListFilter.PROFILE),
    "长期": MemoryListFilter.LONGTERM,
    "事实": MemoryListFilter.FACTS,
    "原话": MemoryListFilter.CELLS,
    **dict.fromkeys(("经历", "情景"), MemoryListFilter.EPISODES),
    "候选": MemoryListFilter.CANDIDATES,
    "归档": MemoryListFilter.ARCHIVED,
    "过时": MemoryListFilter.SUPERSEDED,
    "丢弃": MemoryListFilter.REJECTED,
}
_KEEP_WORDS, _DROP_WORDS = (
    {"keep", "yes", "confirm", "保留", "确认"},
    {"drop", "no", "reject", "丢弃", "拒绝"},
)


@commands("memory", aliases=("mem", "记忆"), verbatim=True)
async def manage_memory(request: Request) -> Reply:
    first, rest = split_first_word(request.args)
    word = _SUBCOMMAND_WORDS.get(first.casefold(), "") if first else "list"
    if not word and _KIND_WORDS.get(first.casefold()):
        word, rest = "list", request.args
    if word not in _SUBCOMMANDS:
        raise UserError("memory_no_order", word=formats.code_text(request.args, 60))
    return await explain_rejection(_SUBCOMMANDS[word](request, rest))


@commands("remember", aliases=("记住",), verbatim=True)
async def remember_text(request: Request) -> Reply:
    return await explain_rejection(add_command(request, request.args))


@commands("boss", aliases=("手册", "handbook"), verbatim=True)
async def manage_handbook(request: Request) -> Reply:
    return await explain_rejection(_handbook_reply(request))


@commands("profile", aliases=("个人资料", "画像"))
async def show_profile(request: Request) -> Reply:
    page = await _fetch_page(request, MemoryListFilter.PROFILE)
    data = {"profile": [views.entry_data(each) for each in page.entries]}
    card = views.profile_card(
        page.entries, request.words, zone=request.zone, shared=not request.in_private
    )
    return Reply(card=card, data=data)


@commands("candidates", aliases=("候选",))
async def manage_candidates(request: Request) -> Reply:
    first, rest = split_first_word(request.args)
    if not first:
        page = await _fetch_page(request, MemoryListFilter.CANDIDATES)
        data = {"candidates": [views.entry_data(each) for each in page.entries]}
        card = views.candidates_card(page.entries, request.words, zone=request.zone)
        return Reply(card=card, data=data)
    word = first.casefold()
    if word not in _KEEP_WORDS | _DROP_WORDS or not rest:
        raise UsageError("candidates")
    return await explain_rejection(decide_candidate(request, rest, keep=word in _KEEP_WORDS))


async def handle_memory_press(
    request: Request,
    action: memory_actions.MemoryAction,
    card_key: str,
    value: str,
    form: Mapping[str, str],
) -> Reply:
    """Handle a button or form about memories; the caller has checked permission."""
    return await explain_rejection(_perform_press(request, action, card_key, value, form))


async def _perform_press(  # noqa: C901, PLR0912 - one line for each action of the closed union
    request: Request,
    action: memory_actions.MemoryAction,
    card_key: str,
    value: str,
    form: Mapping[str, str],
) -> Reply:
    match action:
        case memory_actions.ListMemories(wanted=kind, scope=scope, page=page):
            reply = await _list_reply(request, kind, scope, page)
        case memory_actions.ShowMemory(entry_id=entry_id):
            return await _show_entry(request, entry_id or value)
        case memory_actions.ForgetMemory(
            entry_id=entry_id, among=among, also=also, revisions=revisions, noted=noted
        ):
            reply = await forget_entries(request, (entry_id, *also), revisions)
            if noted:
                reply = await _noted_left(request, noted, reply)
            if among:
                reply = await choose_what_to_forget(request, among, forgotten=reply) or reply
        case memory_actions.PinMemory(entry_id=entry_id, pinned=pinned):
            await set_pinned(request, entry_id, pinned=pinned)
            reply = await _show_entry(request, entry_id)
        case memory_actions.SubmitMemoryEdit(entry_id=entry_id, revision=revision):
            await edit_entry(request, entry_id, form.get(views.EDIT_FIELD, ""), revision=revision)
            reply = await _show_entry(request, entry_id)
        case memory_actions.DecideMemoryCandidate(
            entry_id=entry_id, keep=keep, listed=in_list, wording=wording
        ):
            reply = await decide_candidate(request, entry_id, keep=keep, wording=wording)
            if in_list:
                reply = await _remaining_candidates(request, reply) or reply
        case memory_actions.CleanMemory():
            reply = await memory_reports.clean_up(request, "yes")
        case memory_actions.DecideWithheldMessage():
            return await decide_withheld(request, action, card_key)
        case memory_actions.MarkMemoriesHelpful():
            reply = await memory_reports.helped_pressed(request, action)
        case _:
            assert_never(action)
    return replace(reply, key=card_key, in_place=True)


async def _list_command(request: Request, rest: str) -> Reply:
    flags = parse_flags(rest, valued=("scope", "page"))
    word, more = split_first_word(flags.text)
    flags_behind = parse_flags(more, valued=("scope", "page"))
    options = {**flags.options, **flags_behind.options}
    kind = _KIND_WORDS.get(word.casefold()) if word else MemoryListFilter.KNOWN
    if kind is None:
        raise UserError("memory_no_kind", word=formats.code_text(word, 60))
    page = max(1, parse_number(options.get("page", "1")))
    return await _list_reply(request, kind, options.get("scope", ""), page)


async def _list_reply(request: Request, kind: MemoryListFilter, scope: str, page: int) -> Reply:
    listing = await request.services.memory.list(
        request.person, request.chat, kind, scope=scope, page=page
    )
    data = {
        "memories": [views.entry_data(each) for each in listing.entries],
        "total": listing.total,
    }
    card = views.memories_page_card(
        listing, kind, request.words, zone=request.zone, scope=scope, shared=not request.in_private
    )
    if request.chat.settings.memory_off:
        state = request.words(f"memory.is_{request.chat.settings.memory}")
        card = replace(card, blocks=(TextBlock(state), *card.blocks))
    return Reply(card=card, data=data)


async def search_command(request: Request, rest: str) -> Reply:
    if not rest:
        raise UserError("memory_how_search")
    matches, direct, indirect = await _search_entries(request, rest)
    data = {"memories": [views.search_hit_data(each) for each in matches]}
    card = views.memory_search_card(
        direct or indirect, indirect if direct else (), rest, request.words, zone=request.zone
    )
    return Reply(card=card, data=data)


async def _remaining_candidates(request: Request, decision: Reply) -> Reply | None:
    page = await _fetch_page(request, MemoryListFilter.CANDIDATES)
    if not page.entries:
        return None
    card = views.candidates_card(
        page.entries, request.words, zone=request.zone, decided_text=_card_text(decision)
    )
    return Reply(card=card, data=decision.data)


async def list_known(request: Request) -> Reply:
    """List everything that was derived from conversations."""
    return await explain_rejection(_list_reply(request, MemoryListFilter.KNOWN, "", 1))


async def choose_what_to_forget(
    request: Request, query: str, *, forgotten: Reply | None = None
) -> Reply | None:
    """Matching entries to choose from; None if there are none. `forgotten` is the reply about what
    was just forgotten."""
    matches, entries, _ = await _search_entries(request, query)
    if not entries:
        return None
    card = views.forget_choice_card(
        entries, query, request.words, zone=request.zone, forgotten_text=_card_text(forgotten)
    )
    return Reply(card=card, data={"memories": [views.search_hit_data(each) for each in matches]})


async def _noted_left(request: Request, ids: Sequence[str], forgotten: Reply) -> Reply:
    """The entries of a card of noted facts that are still kept."""
    memory, left = request.services.memory, []
    for each in ids:
        with suppress(MemoryRequestRejected):
            left.append((await memory.show(request.person, request.chat, each)).entry)
    card = views.noted_card(
        left, request.words, zone=request.zone, forgotten_text=_card_text(forgotten)
    )
    return replace(forgotten, card=card)


async def _search_entries(
    request: Request, query: str
) -> tuple[Sequence[MemoryMatch], Sequence[MemoryEntry], Sequence[MemoryEntry]]:
    """Find all matches, those that contain a word of the query, and the others."""
    matches = await request.services.memory.search(
        request.person, request.chat, query, limit=MAX_FOUND
    )
    direct = [hit.entry for hit in matches if not hit.is_indirect]
    return matches, direct, [hit.entry for hit in matches if hit.is_indirect]


def _card_text(reply: Reply | None) -> str:
    blocks = () if reply is None or reply.card is None else reply.card.blocks
    return "\n".join(each.markdown for each in blocks if isinstance(each, TextBlock))


async def _show_entry(request: Request, rest: str) -> Reply:
    entry_id, _ = _split_entry_id(rest)
    details = await request.services.memory.show(request.person, request.chat, entry_id)
    card = views.entry_card(
        details.entry,
        request.words,
        zone=request.zone,
        strength=details.strength,
        editable=details.is_editable,
    )
    return Reply(card=card, data={**views.entry_data(details.entry), "strength": details.strength})


async def _handbook_reply(request: Request) -> Reply:
    first, text = split_first_word(request.args)
    memory = request.services.memory
    if text:
        entry = await memory.write_chapter(request.person, request.chat, first, text)
        return entry_reply(request, "memory.chapter_written", entry, chapter=entry.label)
    chapters = await memory.get_handbook(request.person, request.chat)
    selection = [each for each in chapters if not first or views.matches_chapter(each, first)]
    data = {"chapters": {each.label: each.text for each in selection}}
    return Reply(card=views.handbook_card(selection, request.words), data=data)


async def _fetch_page(request: Request, kind: MemoryListFilter) -> MemoryPage:
    return await request.services.memory.list(request.person, request.chat, kind)


async def _switch_command(request: Request, _rest: str, *, memory: ChatMemory) -> Reply:
    return await switch_memory(request, memory)


_SUBCOMMANDS: Mapping[str, Callable[[Request, str], Awaitable[Reply]]] = {
    "list": _list_command,
    "add": add_command,
    "search": search_command,
    "about": memory_reports.show_about,
    "show": _show_entry,
    "edit": edit_command,
    "forget": forget_command,
    "pin": partial(pin_command, pinned=True),
    "unpin": partial(pin_command, pinned=False),
    "move": move_command,
    "why": memory_reports.show_used_memories,
    "helped": memory_reports.helped_command,
    "stats": memory_reports.show_stats,
    "clean": memory_reports.clean_up,
    "export": memory_reports.export_memories,
    "import": memory_reports.import_memories,
    "restore": memory_reports.restore_backup,
    "off": partial(_switch_command, memory=ChatMemory.OFF),
    "on": partial(_switch_command, memory=ChatMemory.ON),
}


async def answer_memory_request(request: Request) -> Reply | None:
    """Answer a message that consists of a request to the memory. None for anything else, or if
    nothing matches what to forget: a model would only claim to have forgotten it."""
    text = request.args.strip()
    if len(text) > _MAX_LENGTH or request.files:
        return None
    if asks_what_is_known(text):
        return await list_known(request)
    topic = topic_to_forget(text)
    if not topic:
        return None
    return await choose_what_to_forget(request, topic)


_MAX_TOPIC_WORDS = 12


def asks_what_is_known(text: str) -> bool:
    """Recognizes questions such as “what do you remember about me?”, “你记得我什么”."""
    return any(pattern.fullmatch(text.strip()) for pattern in _ASKS_WHAT_IS_KNOWN)


def topic_to_forget(text: str) -> str:
    """The topic of “forget what I said about my cat”; empty for anything else."""
    phrase = next((hit for each in _ASKS_TO_FORGET if (hit := each.fullmatch(text.strip()))), None)
    if phrase is None or _QUESTION.search(text):
        return ""
    topic = phrase["what"].strip(" \t“”\"'‘’「」")
    if topic.casefold() in _NO_TOPIC or len(topic.split()) > _MAX_TOPIC_WORDS:
        return ""
    return topic


def _compile_all(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(each, re.IGNORECASE) for each in patterns)


_PLEASE = r"(?:(?:please|now|ok|okay|hey|so|and|can you|could you|would you)[, ]+)*"
_PUNCTUATION_END = r"[\s.!?。！？]*"
_ASKS_WHAT_IS_KNOWN = _compile_all(
    rf"{_PLEASE}what (?:do|did) you (?:still |already |actually )?"
    rf"(?:(?:remember|have noted)(?: (?:about|of|on) me)?|know about me){_PUNCTUATION_END}",
    rf"{_PLEASE}what (?:have you|did you) (?:remember|note|learn|store|save|memori[sz]e)"
    rf"(?:e?d|nt|t)?(?: (?:about|of|on) me)?{_PUNCTUATION_END}",
    rf"{_PLEASE}(?:show|tell|list)(?: me)? (?:all |everything )?(?:what |that )?you"
    rf" (?:remember|know) about me{_PUNCTUATION_END}",
    rf"{_PLEASE}(?:show|list)(?: me)?(?: all)?(?: of)? (?:my|your) memories{_PUNCTUATION_END}",
    rf"(?:请|那|现在)?你(?:都|还|现在)*(?:记得|记住了?|知道|了解)(?:了)?(?:关于)?我的?"
    rf"(?:些|哪些|什么|多少)+(?:事情|事|信息|内容)?(?:呢|呀|啊|吗)?{_PUNCTUATION_END}",
    rf"你(?:都|还)*对我(?:还)?(?:了解|知道|记得)(?:多少|哪些|些?什么)(?:呢|呀|啊)?{_PUNCTUATION_END}",
    rf"你(?:都|还|现在)*(?:记得|记住)了?(?:些|哪些|什么)+(?:事情|事|内容)?(?:呢|呀|啊)?{_PUNCTUATION_END}",
)
_ASKS_TO_FORGET = _compile_all(
    rf"{_PLEASE}(?:forget|delete|erase)(?: again)? (?:what|everything|all|anything)(?: that)?"
    r" (?:i|we|i['’]ve|you)(?: have| had)? (?:ever |just )?"
    r"(?:said|told you|mentioned|wrote|know|remember|noted)(?: to you)? (?:about|of|on)"
    rf" (?P<what>.+?){_PUNCTUATION_END}",
    rf"{_PLEASE}(?:forget|delete|erase) (?:the |your |all |any )*(?:memor(?:y|ies)|notes?)"
    rf" (?:about|of|on) (?P<what>.+?){_PUNCTUATION_END}",
    rf"{_PLEASE}forget (?:that|about) (?P<what>[^,;]+?){_PUNCTUATION_END}",
    rf"(?:请|帮我|麻烦)*把(?:关于)?(?P<what>[^，,。]+?)(?:的(?:事情|事|记忆|内容))?(?:都|给)*"
    rf"(?:忘掉|忘记|忘了)(?:吧|了)?{_PUNCTUATION_END}",
    rf"(?:请|帮我|麻烦)*(?:忘掉|忘记|忘了)(?:我)?(?:说过|告诉过你|讲过)?(?:的)?(?:所有)?关于"
    rf"(?P<what>[^，,。]+?)(?:的(?:事情|事|话|记忆|内容))?(?:吧)?{_PUNCTUATION_END}",
    rf"(?:请|帮我|麻烦)*删(?:除|掉)(?:所有)?关于(?P<what>[^，,。]+?)的(?:记忆|记录){_PUNCTUATION_END}",
    rf"(?:请|帮我|麻烦)*(?:忘掉|忘记)(?P<what>[^，,。]+?)(?:的(?:事情|事|话|记忆|内容))?(?:吧)?{_PUNCTUATION_END}",
)
_QUESTION = re.compile(r"吗|怎么|如何|为什么|是不是")
_NO_TOPIC = frozenset(
    word
    for words in (
        "it that this these those everything all me him her them",
        "它 这个 那个 这件 这 那 他 她 我 掉 吧 了",
    )
    for word in words.split()
)
