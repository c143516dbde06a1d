"""Serializes answers per chat, shows each as it grows, stores stopped messages, and resumes answers
that were suspended at a tool call."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Protocol, TypeAlias

from bot.engine.llm.backend import AgentEvent, RunNotice, TextDelta
from bot.engine.permissions.requests import ApprovalRequester, describe_lost_calls
from cards import formats
from cards.catalog import catalog_for
from cards.model import Card, notice_card
from cards.views.chat import answer_card
from handlers.errors import BackendFailure
from handlers.ports import AnswerStream, ChatAnswer, ChatQuestion, PeoplePort, TaskProposal
from storage.db import STORE_RETRY_SECONDS, Database, Transaction
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.records.approvals import Approval, ToolCallRecord, ToolCallState
from storage.records.autonomy import HeartbeatRun
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language
from storage.records.workers import ModelSession
from storage.tools import ToolCallRepo

# --- chat answers that were suspended at a tool call

log = logging.getLogger(__name__)


CommitStep: TypeAlias = Callable[[Transaction], Awaitable[None]]
PrepareCommit: TypeAlias = Callable[[ChatAnswer], Awaitable[CommitStep]]
"""Prepares an answer for posting in the transaction that records its turn."""


class ResumableConversation(Protocol):
    async def resume_answer(
        self, question: ChatQuestion, prepare_commit: PrepareCommit
    ) -> ChatAnswer:
        """Continue the suspended answer after all its tool calls have been decided."""
        ...


class CardPoster(Protocol):
    """Posts cards within the caller's transaction; `wake` delivers them after its commit."""

    async def prepare(self, card: Card) -> Card: ...

    async def post(
        self,
        tx: Transaction,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: DeliveryUrgency,
        reply_to: str = "",
    ) -> object: ...

    def wake(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallSuspension:
    """The services that a conversation needs to suspend at a tool call."""

    calls: ToolCallRepo
    requester: ApprovalRequester
    wake: Callable[[], None]

    async def describe_lost_calls(self, session: ModelSession) -> str:
        """Return a system prompt note about an interrupted turn's tool calls; empty if there are
        none."""
        return describe_lost_calls(await self.calls.list_lost(None, session.id))

    async def request_approval(self, tx: Transaction, session_id: str) -> Approval | None:
        """Request approval for the session's next open call."""
        return await self.requester.request_next(
            tx, await self.calls.list_suspended(session_id, tx=tx), None
        )


class SuspendedChatResumer:
    """Requests approvals for suspended chats and resumes decided ones; all state is in the store.

    `show_request` sends an approval card, `refresh_cards` updates cards that no longer need a
    decision. `language` overrides the chat's language."""

    name = "suspended chats"

    def __init__(
        self,
        *,
        db: Database,
        calls: ToolCallRepo,
        requester: ApprovalRequester,
        people: PeoplePort,
        conversation: ResumableConversation,
        post: CardPoster,
        changed: asyncio.Event,
        show_request: Callable[[Approval], Awaitable[None]],
        refresh_cards: Callable[[], Awaitable[None]],
        language: Language | None,
        now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._db = db
        self._calls = calls
        self._requester = requester
        self._people = people
        self._conversation = conversation
        self._post = post
        self._changed = changed
        self._show_request = show_request
        self._refresh_cards = refresh_cards
        self._language = language
        self._now = now
        self._sleep = sleep
        self._failed: dict[str, int] = {}
        self._resuming: dict[str, asyncio.Task[None]] = {}

    async def start(self, stack: AsyncExitStack) -> None:
        """Mark chat calls that were running at the last shutdown as cut off."""
        async with self._db.write() as tx:
            await self._calls.cut_off_chat_calls(tx, now=self._now())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                try:
                    await self.process_suspended(group)
                except StoreUnavailable as error:
                    log.warning("suspended answers wait for the store: %s", error)
                    await self._sleep(STORE_RETRY_SECONDS)
                    continue
                await self._changed.wait()

    async def process_suspended(self, group: asyncio.TaskGroup) -> None:
        """Request approvals for open calls and resume decided sessions."""
        await self._refresh_cards()
        for session_id, calls in _group_by_session(await self._calls.list_suspended_of_chats()):
            if any(call.state is ToolCallState.OPEN for call in calls):
                await self._request_approval(session_id)
            elif session_id not in self._resuming and self._should_try(session_id, calls):
                work = group.create_task(self._resume(session_id, calls))
                self._resuming[session_id] = work

    async def _request_approval(self, session_id: str) -> None:
        async with self._db.write() as tx:
            # Read again: a decision may have arrived since, and a call is asked about once only.
            calls = await self._calls.list_suspended(session_id, tx=tx)
            approval = await self._requester.request_next(tx, calls, None)
        if approval is not None:
            await self._show_request(approval)

    def _should_try(self, session_id: str, calls: Sequence[ToolCallRecord]) -> bool:
        """A failed session waits for the person's next message or the next start."""
        return self._failed.get(session_id) != calls[-1].id

    async def _resume(self, session_id: str, calls: Sequence[ToolCallRecord]) -> None:
        last = calls[-1]
        try:
            await self._resume_answer(last)
        except BackendFailure as failure:
            self._failed[session_id] = last.id
            await self._notify_failure(last, failure)
        except StoreUnavailable as error:
            log.warning("the answer in %s cannot be stored: %s", last.chat_id, error)
            await self._sleep(STORE_RETRY_SECONDS)
        finally:
            del self._resuming[session_id]
            self._changed.set()

    async def _resume_answer(self, last: ToolCallRecord) -> None:
        if last.chat_id is None or last.person_id is None:
            return
        chat = await self._people.get_chat(last.chat_id)
        person = await self._people.get(last.person_id)
        language = await self._language_for(last)
        question = ChatQuestion(
            person=person,
            chat=chat,
            text="",
            language=language,
            source=f"talk:{last.id}",
            no_proposal=True,
            is_continuation=True,
        )

        async def keep(answered: ChatAnswer) -> CommitStep:
            card = answer_card(
                answered.text,
                catalog_for(language),
                notes=answered.notes,
                files=answered.files,
                sizes=answered.sizes,
            )
            ready = await self._post.prepare(card)

            async def kept(tx: Transaction) -> None:
                if answered.text.strip() or answered.files:
                    key = f"talk:{last.id}"
                    await self._post.post(
                        tx, chat.id, ready, key=key, urgency=DeliveryUrgency.ANSWER
                    )

            return kept

        await self._conversation.resume_answer(question, keep)
        self._post.wake()

    async def _notify_failure(self, last: ToolCallRecord, failure: BackendFailure) -> None:
        if last.chat_id is None:
            return
        words = catalog_for(await self._language_for(last))
        card = await self._post.prepare(notice_card("", words(failure.hint)))
        async with self._db.write() as tx:
            key = f"talk:{last.id}:failed"
            await self._post.post(tx, last.chat_id, card, key=key, urgency=DeliveryUrgency.ANSWER)
        self._post.wake()

    async def _language_for(self, call: ToolCallRecord) -> Language:
        if self._language is not None or call.chat_id is None or call.person_id is None:
            return self._language or Language.ENGLISH
        chosen = (await self._people.get_chat(call.chat_id)).settings
        person = await self._people.get(call.person_id)
        spoken = chosen.language or person.language or chosen.client_language
        return spoken or Language.ENGLISH


def _group_by_session(
    calls: Sequence[ToolCallRecord],
) -> Iterator[tuple[str, Sequence[ToolCallRecord]]]:
    ordered = sorted(calls, key=lambda call: (call.session_id, call.id))
    for session_id, of_one in groupby(ordered, key=lambda call: call.session_id):
        yield session_id, tuple(of_one)


# --- one answer at a time per chat

WAIT_MODE = "wait"
_SHOWN_NOTICES = "mcp."
"""Text keys of the notices that are shown with the answer."""


@dataclass(slots=True)
class AnswerInProgress:
    """A running answer; `interrupted` is True if it was cancelled on purpose, `superseded` if that
    was for a newer message."""

    task: asyncio.Task[Any]
    interrupted: bool = False
    superseded: bool = False


class TurnQueue:
    """`default_mode` applies to chats without their own: `cut` interrupts the running answer,
    `wait` queues the message."""

    def __init__(self, default_mode: str) -> None:
        self._default_mode = default_mode
        self._in_progress: dict[ChatId, AnswerInProgress] = {}
        self._locks: dict[ChatId, asyncio.Lock] = {}
        self._waiters: Counter[ChatId] = Counter()

    def queues_messages(self, mode: str) -> bool:
        """Whether messages wait in a chat of this mode; empty is the default."""
        return (mode or self._default_mode) == WAIT_MODE

    def interrupt(self, chat_id: ChatId) -> bool:
        """Cancel the running answer; return False if there is none."""
        turn = self._in_progress.get(chat_id)
        if turn is None or turn.interrupted:
            return False
        turn.interrupted = True
        turn.task.cancel()
        return True

    def on_new_message(self, chat_id: ChatId, mode: str, *, may_interrupt: bool = True) -> bool:
        """Apply the chat's mode to a new message; return True if it has to wait for the running
        answer."""
        if self.queues_messages(mode) or not may_interrupt:
            return chat_id in self._in_progress
        if self.interrupt(chat_id):
            self._in_progress[chat_id].superseded = True
        return False

    @asynccontextmanager
    async def exclusive(self, chat_id: ChatId) -> AsyncGenerator[None]:
        """Run one answer at a time: concurrent answers would corrupt their shared session."""
        lock = self._locks.setdefault(chat_id, asyncio.Lock())
        self._waiters[chat_id] += 1
        try:
            async with lock:
                yield
        finally:
            self._waiters[chat_id] -= 1
            if not self._waiters[chat_id]:
                del self._waiters[chat_id], self._locks[chat_id]

    @asynccontextmanager
    async def track(
        self, chat_id: ChatId, task: asyncio.Task[Any]
    ) -> AsyncGenerator[AnswerInProgress]:
        """Register `task` as the chat's running answer, so that it can be interrupted."""
        turn = self._in_progress[chat_id] = AnswerInProgress(task)
        try:
            yield turn
        finally:
            del self._in_progress[chat_id]


MAX_STOPPED_CHARS = 4000


class StoppedMessages:
    """The last message of a chat whose answer was stopped: the next turn is told about it."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._cache: dict[ChatId, str] = {}

    async def get(self, chat_id: ChatId) -> str:
        """Return the message; empty if there is none."""
        if chat_id not in self._cache:
            self._cache[chat_id] = str(await self._store.get(_mark_name(chat_id)) or "")
        return self._cache[chat_id]

    async def save(self, chat_id: ChatId, text: str) -> None:
        self._cache[chat_id] = text[-MAX_STOPPED_CHARS:]
        try:
            await self._store.put(_mark_name(chat_id), self._cache[chat_id])
        except StoreUnavailable as error:
            log.warning("a stopped message in %s is not stored: %s", chat_id, error)

    async def clear(self, chat_id: ChatId) -> None:
        if await self.get(chat_id):
            self._cache[chat_id] = ""
            await self._store.put(_mark_name(chat_id), None)


def _mark_name(chat_id: ChatId) -> str:
    return f"unanswered:{chat_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationExpiry:
    """Limits after which the next message starts a new conversation; 0 disables a limit."""

    max_idle: timedelta = timedelta(minutes=60)
    max_turns: int = 0
    max_tokens: int = 0

    def has_expired(self, session: ModelSession, now: datetime) -> bool:
        idle = bool(self.max_idle) and now - session.last_used_at > self.max_idle
        turns = bool(self.max_turns) and session.turns >= self.max_turns
        return idle or turns or (bool(self.max_tokens) and session.tokens > self.max_tokens)


class AnswerSoFar:
    """An answer so far, and its display to a person. `last_told` is the newest run of the heartbeat
    that its prompt tells of."""

    def __init__(self, question: ChatQuestion, show: AnswerStream, begun: datetime) -> None:
        self.question = question
        self.begun = begun
        self.text = ""
        self.notices: list[str] = []
        self.proposals: list[TaskProposal] = []
        self.last_told: HeartbeatRun | None = None
        self._show = show
        self.words = catalog_for(question.language)

    async def watch(self, event: AgentEvent) -> None:
        """Satisfies `EventListener`."""
        if isinstance(event, TextDelta):
            self.text += event.text
            await self._show(self.text)
        elif isinstance(event, RunNotice):
            notice = formats.notice_text(event.key, event.facts, self.words)
            if event.passing:
                await self._show(f"{self.text}\n\n{notice}".strip())
            elif event.key.startswith(_SHOWN_NOTICES):
                self.notices.append(notice)

    def clear(self) -> None:
        self.text = ""
        self.notices.clear()
        self.proposals.clear()
