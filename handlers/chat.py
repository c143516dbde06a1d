"""Handles conversation: answers, messages that wait for one, proposals, models, backends, the
worker context and the transcript."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cards import formats
from cards.actions import AnswerWithoutTask, StartTask, UseSkill
from cards.json_data import backends_data
from cards.model import Card, notice_card
from cards.views import chat as views
from cards.views.backends import backends_card, setup_hint
from cards.views.skills import suggestion_card
from handlers.errors import UsageError, UserError
from handlers.memory_consent import switch_memory
from handlers.parsing import MessageDirectives, choice_directives
from handlers.ports import ChatAnswer, ChatQuestion, TaskProposal
from handlers.ports_workers import HistoryLine
from handlers.request import (
    OFFLINE,
    CommandRegistry,
    Reply,
    Request,
    Silence,
    check_may_choose,
)
from storage.records.messages import DeliveryUrgency, InboxId, InboxRow, IncomingMessage
from storage.records.people import ChatId, ChatMemory, ChatSettings
from storage.records.system import AUTO_MODEL, BackendHealth, ModelChoice
from storage.records.workers import SessionInfo

# --- the conversation


async def check_backend_ready(request: Request, name: str) -> None:
    """Check a backend that is chosen for longer than one message. Raises UserError with a fix for a
    coding CLI that cannot work: the fallback covers only failures that come later."""
    health = await request.services.models.get_health(name)
    if health is not None and health.is_cli and health.problem:
        raise backend_not_ready(request, health)


def backend_not_ready(request: Request, health: BackendHealth) -> UserError:
    text = setup_hint(health, request.words)
    return UserError("backend_not_ready", name=health.name, how=text)


async def check_backend_usable(request: Request, backend: str) -> None:
    """Check a backend that is chosen for one message, which the fallback may answer. Raises
    UserError if neither can work."""
    health = await request.services.models.get_health(backend) if backend else None
    if health is not None and health.is_cli and health.problem and not health.fallback:
        text = setup_hint(health, request.words)
        raise UserError("backend_not_able", name=health.name, how=text)


commands = CommandRegistry("talk")

AUTO_WORDS = frozenset({AUTO_MODEL, "自动"})
"""Words for automatic selection; the next set clears the chat's choice."""

DEFAULT_WORDS = frozenset({"default", "默认"})

_MAX_QUOTE = 120
_WHOLE_SECONDS_FROM = 10


TimedProposer: TypeAlias = Callable[[Request, TaskProposal], Awaitable[Reply | None]]
"""Proposes work for a later time; None if its time cannot be read."""


async def answer_message(
    request: Request,
    *,
    no_proposal: bool = False,
    brief: str = "",
    skill: str = "",
    propose_timed: TimedProposer | None = None,
) -> Reply:
    """Answer a message, or propose a skill or task for it. `brief` is an instruction for the
    worker, from the `skill` of that name."""
    await check_backend_usable(request, request.backend)
    if not no_proposal and (proposal := await _propose_skill(request)):
        return proposal
    question = ChatQuestion(
        person=request.person,
        chat=request.chat,
        text=request.args,
        language=request.words.language,
        source=request.source,
        files=request.files,
        model=request.model,
        backend=request.backend,
        no_proposal=no_proposal,
        brief=brief,
        skill=skill,
        interrupted=request.interrupted,
        missing_files=request.missing_files,
        forwarded=request.forwarded,
    )

    async def show(text: str) -> None:
        await request.services.courier.stream(request.answer_ref, text)

    answer = await request.services.conversations.answer(question, show)
    if answer.superseded and not (answer.text.strip() or answer.notes):
        # Nothing was shown; the interrupting message is answered together with this one.
        return Reply(silence=Silence.INTERRUPTED)
    later = answer.proposal
    if propose_timed is not None and later is not None and later.requested_time:
        timed = await propose_timed(request, later)
        if timed is not None:
            return replace(timed, joined=answer.joined)
    return Reply(card=_answer_card(request, answer), joined=answer.joined)


async def decline_proposal(request: Request, action: AnswerWithoutTask, card_key: str) -> Reply:
    """Answer the message in the chat after its proposal was declined."""
    await request.services.courier.send(
        request.chat.id,
        views.proposal_declined_card(action.text, request.words),
        key=card_key,
        urgency=DeliveryUrgency.ANSWER,
    )
    chat_request = replace(
        request, args=action.text, files=action.files, model=action.model, backend=action.backend
    )
    return await answer_message(chat_request, no_proposal=True)


@commands("new", aliases=("reset", "新对话", "重置"), immediate=True)
async def reset_conversation(request: Request) -> Reply:
    if request.chat.settings.incognito and (request.in_private or request.by_owner):
        return await switch_memory(request, ChatMemory.ON)
    request.services.conversations.interrupt(request.chat.id)
    had_one = await request.services.conversations.reset(request.chat.id)
    return _text_reply(request, "talk.reset" if had_one else "talk.nothing_to_reset")


@commands("chat", aliases=("session", "会话"), immediate=True)
async def show_conversation(request: Request) -> Reply:
    state = await request.services.conversations.state(request.chat.id)
    if state is None:
        return _text_reply(request, "talk.none")
    return Reply(
        card=views.session_card(
            turns=state.turns,
            choice=state.model,
            last_used_at=state.last_used_at,
            now=request.now,
            words=request.words,
        )
    )


@commands("model", aliases=("模型",), immediate=True, verbatim=True)
async def choose_model(request: Request) -> Reply:
    if not request.args:
        return Reply(card=_models_card(request, request.chat.settings))
    return Reply(
        card=_models_card(request, await _save_model_choice(request, request.args), changed=True)
    )


async def pick_model(request: Request, name: str) -> Card:
    """Choose a model by the card."""
    return _models_card(request, await _save_model_choice(request, name), changed=True)


def stop_answer(request: Request) -> Reply | None:
    """Stop the answer in this chat; None if there is none."""
    if request.services.conversations.interrupt(request.chat.id):
        return _text_reply(request, "talk.stopped")
    return None


def text_card(text: str) -> Card:
    """A short answer without a title."""
    return notice_card("", text)


async def _propose_skill(request: Request) -> Reply | None:
    """Propose a skill whose triggers match; it is used only with consent."""
    project = request.chat.settings.project
    skill = await request.services.skills.find_triggered(request.args, project=project)
    if skill is None:
        return None
    model, backend, files = request.model, request.backend, request.files
    use = UseSkill(name=skill.name, text=request.args, model=model, backend=backend, files=files)
    talk = AnswerWithoutTask(text=request.args, model=model, backend=backend, files=files)
    return Reply(card=suggestion_card(skill, use, talk, request.words))


def _answer_card(request: Request, answer: ChatAnswer) -> Card:
    words = request.words
    proposal = answer.proposal
    if proposal is None:
        interruption = (words("talk.interrupted"),) if answer.interrupted else ()
        notes = (*answer.notes, *interruption, _model_note(request, answer))
        text = answer.text
        if answer.interrupted and not text.strip():
            text = words(
                "talk.not_answered", text=formats.escape_markdown(request.args, _MAX_QUOTE)
            )
        if not (text.strip() or answer.files or answer.notes or interruption):
            text = words("talk.no_answer")
        return views.answer_card(
            text,
            words,
            notes=notes,
            files=answer.files,
            sizes=answer.sizes,
            can_connect=request.by_owner and request.in_private,
        )
    start = StartTask(
        text=proposal.text,
        priority=proposal.priority,
        model=request.model,
        backend=request.backend,
        title=proposal.title,
        files=request.files,
        message_id=request.message_id,
    )
    decline = AnswerWithoutTask(
        text=request.args, model=request.model, backend=request.backend, files=request.files
    )
    return views.proposal_card(
        start,
        decline,
        words,
        answer_text=answer.text,
        requested_time=proposal.requested_time,
        notes=answer.notes,
    )


def _model_note(request: Request, answer: ChatAnswer) -> str:
    """Name the model and the time taken. Without a model the answer itself says so."""
    if not answer.model or answer.model == OFFLINE:
        return ""
    seconds = (
        f"{answer.seconds:.1f}" if answer.seconds < _WHOLE_SECONDS_FROM else f"{answer.seconds:.0f}"
    )
    return request.words("talk.by", model=answer.model, seconds=seconds)


async def _save_model_choice(request: Request, name: str) -> ChatSettings:
    await check_may_choose(request)
    directives = _resolve_model(request, name)
    if directives.backend:
        await check_backend_ready(request, name.removeprefix("@"))
    chat = await request.services.people.update_chat_settings(
        request.chat, model=directives.model, backend=directives.backend
    )
    return chat.settings


def _resolve_model(request: Request, name: str) -> MessageDirectives:
    if name.casefold() in AUTO_WORDS:
        return MessageDirectives(model=AUTO_MODEL)
    if name.casefold() in DEFAULT_WORDS:
        return MessageDirectives()
    name = name.removeprefix("@")
    choice = request.services.models.resolve_choice(name)
    if choice is None:
        names = ["auto", *(each.name for each in request.services.models.list_choices())]
        name_list = " · ".join(f"`{each}`" for each in names)
        raise UserError("unknown_model", name=name[:60], names=name_list)
    return choice_directives(name, choice)


def _models_card(request: Request, settings: ChatSettings, *, changed: bool = False) -> Card:
    model = "" if settings.model == AUTO_MODEL else settings.model
    choice_name = ModelChoice(backend=settings.backend, model=model).name
    return views.models_card(
        request.services.models.list_choices(),
        chosen_name=choice_name if settings.backend or model else "",
        words=request.words,
        auto=settings.model == AUTO_MODEL,
        changed=changed,
    )


def _text_reply(request: Request, key: str) -> Reply:
    return Reply(card=text_card(request.words(key)))


context_commands = CommandRegistry("talk")


@context_commands("context", aliases=("上下文",), immediate=True)
async def show_context(request: Request) -> Reply:
    parts = await request.services.worker_context.list_parts(request.chat, request.person)
    data = {
        "parts": [
            {
                "name": each.name,
                "state": each.state.value,
                "size": each.size,
                "used": each.used_characters,
            }
            for each in parts
        ]
    }
    return Reply(card=views.context_card(parts, request.words), data=data)


backend_commands = CommandRegistry("talk")

_LIST_WORDS = {"list", "ls", "列表"}
_CHECK_WORDS = {"check", "检查"}
_MAX_BACKEND_NAME = 60


@backend_commands("backend", aliases=("后端",), immediate=True, verbatim=True)
async def manage_backend(request: Request) -> Reply:
    word, _, rest = request.args.strip().partition(" ")
    if not word or (word.casefold() in _LIST_WORDS and not rest):
        return await _backend_report(request, "")
    if word.casefold() in _CHECK_WORDS:
        return await _backend_report(request, rest.strip())
    return await _choose_backend(request)


async def _choose_backend(request: Request) -> Reply:
    """An unusable backend is rejected and nothing changes."""
    name = request.args.strip()
    if name.casefold() in AUTO_WORDS | DEFAULT_WORDS:
        return await choose_model(request)
    health = await request.services.models.get_health(name)
    if health is None:
        return await _unknown_backend(request, name)
    if health.problem:
        raise backend_not_ready(request, health)
    return await choose_model(request)


async def _backend_report(request: Request, name: str) -> Reply:
    report = await request.services.models.report(name)
    if report is None:
        return await _unknown_backend(request, name)
    hints = {each.name: setup_hint(each, request.words) for each in report.backends}
    data = backends_data(report, hints)
    problems = [each.name for each in report.backends if each.problem] if name else []
    if problems:
        data["error"] = hints[problems[0]]
    return Reply(card=backends_card(report, request.words), good=not problems, data=data)


async def _unknown_backend(request: Request, name: str) -> Reply:
    """Reply with the list of backends."""
    report = await request.services.models.report()
    assert report is not None
    hints = {each.name: setup_hint(each, request.words) for each in report.backends}
    error = request.words("backends.unknown", name=name[:_MAX_BACKEND_NAME])
    data = {**backends_data(report, hints), "error": error}
    return Reply(card=backends_card(report, request.words, error=error), good=False, data=data)


history_commands = CommandRegistry("talk")

_MAX_FOUND, _MAX_RECENT = 10, 6
_MAX_QUERY = 200
_SEARCH_WORDS = frozenset({"search", "find", "搜索", "查找", "找"})
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|(\S+)')


@history_commands("history", aliases=("历史", "聊天记录"), immediate=True, verbatim=True)
async def search_history(request: Request) -> Reply:
    first, _, rest = request.args.strip().partition(" ")
    query = rest.strip() if first.casefold() in _SEARCH_WORDS else request.args.strip()
    if first.casefold() in _SEARCH_WORDS and not query:
        raise UsageError("history")
    history = request.services.history
    incomplete = False
    if query:
        result = await history.search(
            request.person, request.chat, _search_terms(query), _MAX_FOUND
        )
        lines, incomplete = result.lines, result.incomplete
    else:
        lines = await history.list_recent(request.person, request.chat, _MAX_RECENT)
    card = views.history_card(
        [(each.at, each.by_bot, each.text, each.task, each.elsewhere) for each in lines],
        query,
        request.words,
        zone=request.zone,
        partial=any(each.partial_match for each in lines),
        incomplete=incomplete,
    )
    return Reply(card=card, data={"lines": _history_data(lines)})


@history_commands("compact", aliases=("压缩", "整理对话"), immediate=True)
async def compact_conversation(request: Request) -> Reply:
    has_begun = await request.services.history.compact(request.chat.id)
    text = request.words("history.compacting" if has_begun else "talk.none")
    return Reply(card=notice_card("", text))


def _search_terms(text: str) -> Sequence[str]:
    terms = [next(filter(None, each.groups())) for each in _QUOTED.finditer(text[:_MAX_QUERY])]
    return [word.strip() for word in terms if word.strip()]


def _history_data(lines: Sequence[HistoryLine]) -> list[dict[str, Any]]:
    return [
        {
            "at": each.at.isoformat(),
            "by": "assistant" if each.by_bot else "user",
            "text": each.text,
            "ref": each.ref,
            "task": each.task,
        }
        for each in lines
    ]


transcript_commands = CommandRegistry("system")

_MAX_SESSIONS = 20


@transcript_commands("transcript", aliases=("会话记录",), immediate=True)
async def export_transcript(request: Request) -> Reply:
    request.require_owner()
    if not request.in_private:
        raise UserError("only_in_private", command="transcript")
    session_id = request.args.strip()
    if not session_id:
        sessions = await request.services.transcripts.list_recent(_MAX_SESSIONS)
        card = views.sessions_card(sessions, request.words, zone=request.zone)
        return Reply(card=card, data={"sessions": [_session_data(each) for each in sessions]})
    export = await request.services.transcripts.export(session_id)
    card = views.transcript_card(
        export.session, export.path, size=export.size, lines=export.lines, words=request.words
    )
    data = {
        "session": _session_data(export.session),
        "file": export.absolute_path,
        "lines": export.lines,
    }
    return Reply(card=card, data=data)


def _session_data(each: SessionInfo) -> dict[str, Any]:
    return {
        "id": each.id,
        "key": each.key,
        "backend": each.backend,
        "model": each.model,
        "persona": each.persona,
        "turns": each.turns,
        "messages": each.message_count,
        "open": each.is_open,
        "started_at": each.started_at.isoformat(),
        "last_used_at": each.last_used_at.isoformat(),
    }


# --- messages that arrive while an answer is written

MAX_SHOWN = 20
"""Waiting messages of one chat that are shown their position; further ones wait as well."""

INTERRUPT_MODE = "cut"
WAIT_MODE = "wait"
_MODE_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("cut", "interrupt", "打断"), INTERRUPT_MODE),
    **dict.fromkeys(("wait", "queue", "排队", "等待"), WAIT_MODE),
    **dict.fromkeys(("auto", "default", "自动", "默认"), ""),
}
_SPLIT_MESSAGE_LENGTH = 3500
"""A text this long may be the first part of a split message."""

_HELD_WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("handle", "处理"), True),
    **dict.fromkeys(("drop", "忽略"), False),
}


@commands("queue", aliases=("排队",), immediate=True)
async def choose_queue_mode(request: Request) -> Reply:
    word = request.args.strip().casefold()
    if not word:
        return _mode_reply(request, request.chat.settings.queue, "queue.now")
    if word in _HELD_WORDS:
        return Reply(card=await decide_held(request, handle=_HELD_WORDS[word]))
    if word not in _MODE_WORDS:
        raise UserError("queue_word", word=request.args[:40])
    await check_may_choose(request)
    mode = _MODE_WORDS[word]
    await request.services.people.update_chat_settings(request.chat, queue=mode)
    return _mode_reply(request, mode, "queue.changed")


async def decide_held(request: Request, *, handle: bool) -> Card:
    """Have the chat's held messages handled, or leave them unanswered. In a group only owners may
    decide, because the messages act in the name of those who wrote them."""
    if not request.in_private:
        request.require_owner()
    held = request.services.held
    done = await (held.release if handle else held.drop)(request.chat.id)
    key = ("held.handled" if handle else "held.dropped") if done else "held.none"
    return notice_card("", request.words(key, n=done))


def _mode_reply(request: Request, mode: str, key: str) -> Reply:
    waits = request.services.conversations.queues_messages(mode)
    how = request.words(f"queue.{WAIT_MODE if waits else INTERRUPT_MODE}")
    card = notice_card(request.words("queue.title"), request.words(key, how=how))
    return Reply(card=card, data={"queue": WAIT_MODE if waits else INTERRUPT_MODE})


class WaitingMessages:
    """Tracks, by chat, messages that wait for an answer to end. For display only: the inbox stores
    them and has them answered in order."""

    def __init__(self) -> None:
        self._waiting_ids: dict[ChatId, list[InboxId]] = {}
        self._split_message_chats: set[ChatId] = set()

    def add(self, row: InboxRow) -> None:
        self._waiting_ids.setdefault(row.chat_id, []).append(row.id)

    def remove(self, row: InboxRow) -> None:
        """Forget a message that was taken back."""
        self._keep(row.chat_id, lambda each: each != row.id)

    def start_turn(self, row: InboxRow) -> None:
        """Start this message's turn, and that of all before it."""
        self._keep(row.chat_id, lambda each: each > row.id)

    def get_position(self, row: InboxRow) -> int:
        """The message's place in the line, from 1; 0 for a message whose place is not shown."""
        rows = self._waiting_ids.get(row.chat_id, [])[:MAX_SHOWN]
        return rows.index(row.id) + 1 if row.id in rows and not self._needs_no_answer(row) else 0

    def count_waiting(self, chat_id: ChatId) -> int:
        return len(self._waiting_ids.get(chat_id, ()))

    def _keep(self, chat_id: ChatId, waits: Callable[[InboxId], bool]) -> None:
        rows = [each for each in self._waiting_ids.pop(chat_id, []) if waits(each)]
        if rows:
            self._waiting_ids[chat_id] = rows
        else:
            self._split_message_chats.discard(chat_id)

    def _needs_no_answer(self, row: InboxRow) -> bool:
        """Files without text and parts of a split message get no answer of their own."""
        message = row.incoming
        if not isinstance(message, IncomingMessage) or not message.text.strip():
            return True
        if len(message.text) >= _SPLIT_MESSAGE_LENGTH:
            self._split_message_chats.add(row.chat_id)
        return row.chat_id in self._split_message_chats
