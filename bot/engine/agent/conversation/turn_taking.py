"""Serializes answers per chat, shows each as it grows, stores stopped messages and decides when a
conversation expires."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from bot.engine.llm.backend import AgentEvent, RunNotice, TextDelta
from cards import formats
from cards.catalog import catalog_for
from handlers.ports import AnswerStream, ChatQuestion, TaskProposal
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.records.heartbeat import HeartbeatRun
from storage.records.people import ChatId
from storage.records.workers import ModelSession

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


log = logging.getLogger(__name__)

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
