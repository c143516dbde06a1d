"""Search in earlier conversations for people and workers, with the rules for who may read what."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.engine.memory.conversation_archive.compaction import SessionGrowth
from bot.engine.memory.conversation_archive.search import SPOKEN_ROLES, ArchiveSearch, SearchOrder
from bot.engine.memory.conversation_archive.session_context import SessionCarryover
from handlers.ports_workers import HistoryLine, HistoryResult
from storage.db import Database
from storage.memory.conversation_archive import ArchiveAccess
from storage.memory.jobs import CompactionJobRepo
from storage.records.conversation_archive import TranscriptMatch, TranscriptRole
from storage.records.people import Chat, ChatId, ChatKind, Person, PersonId
from storage.sessions import SessionRepo
from storage.subagents import SubagentRepo
from storage.tasks import TaskVisibility

_CHAT, _TASK, _SUBAGENT = "chat:", "task:", "helper:"


def task_of_session(key: str) -> str:
    """ID of the task whose session has this key; empty for other sessions."""
    name = key.removeprefix(_TASK) if key.startswith(_TASK) else ""
    return name.partition(":")[0].partition("/")[0]


def chat_of_session(key: str) -> ChatId | None:
    return ChatId(key.removeprefix(_CHAT)) if key.startswith(_CHAT) else None


def subagent_of_session(key: str) -> str:
    """ID of the sub-agent whose session has this key; empty for other sessions."""
    return key.removeprefix(_SUBAGENT) if key.startswith(_SUBAGENT) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationHistory:
    search: ArchiveSearch
    carryover: SessionCarryover
    growth: SessionGrowth
    get_chat: Callable[[ChatId], Awaitable[Chat]]
    zone: ZoneInfo

    async def access_in_chat(
        self, person: PersonId | None, chat_id: ChatId | None
    ) -> ArchiveAccess:
        """Access within a chat; a group excludes private conversations."""
        if chat_id is None:
            return ArchiveAccess(chat=None)
        chat = await self.get_chat(chat_id)
        own = person if chat.kind is ChatKind.PRIVATE else None
        visible = TaskVisibility(sees_all=False, person=own, chat=chat_id)
        return ArchiveAccess(chat=chat_id, person=own, task_visibility=visible)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationHistoryService:
    """Implements `handlers.ports_workers.HistoryPort`. `redact` removes secrets from results."""

    history: ConversationHistory
    db: Database
    sessions: SessionRepo
    now: Callable[[], datetime]
    redact: Callable[[str], str]

    async def search(
        self, person: Person, chat: Chat, words: Sequence[str], limit: int
    ) -> HistoryResult:
        access = await self.history.access_in_chat(person.id, chat.id)
        search = self.history.search
        deadline = search.start_deadline()
        # A search means one particular passage rather than the latest mention; newer first on ties.
        order = SearchOrder.HYBRID if words else SearchOrder.RECENCY
        found = await search.search_words(
            access, words, limit, roles=SPOKEN_ROLES, order=order, deadline=deadline
        ) or await search.search_near(access, words, limit, roles=SPOKEN_ROLES, deadline=deadline)
        lines = [
            await self._line(each.line, each.snippet, chat.id, near=each.is_partial)
            for each in found
            if each.line is not None
        ]
        return HistoryResult(lines=lines, incomplete=deadline.was_cut)

    async def list_recent(self, person: Person, chat: Chat, limit: int) -> Sequence[HistoryLine]:
        return (await self.search(person, chat, (), limit)).lines

    async def compact(self, chat: ChatId) -> bool:
        async with self.db.write() as tx:
            session = await self.sessions.find_open(f"{_CHAT}{chat}", tx=tx)
            if session is not None:
                jobs = CompactionJobRepo(self.db)
                await jobs.enqueue(tx, session.id, now=self.now(), forced=True)
        self.history.growth.wake_event.set()
        return session is not None

    async def _line(
        self, line: TranscriptMatch, text: str, chat: ChatId, *, near: bool
    ) -> HistoryLine:
        return HistoryLine(
            at=line.at,
            # Prompts of task workers and subagents are generated, not written by people.
            by_bot=line.role is TranscriptRole.ASSISTANT or chat_of_session(line.key) is None,
            text=self.redact(text),
            ref=f"{line.session_id}#{line.message}",
            task=await self._task(line.key),
            partial_match=near,
            elsewhere=chat_of_session(line.key) != chat,
        )

    async def _task(self, key: str) -> str:
        """ID of the task that a session belongs to; empty for chats."""
        if subagent := subagent_of_session(key):
            return (await SubagentRepo(self.db).get(subagent)).task_id or ""
        return task_of_session(key)
