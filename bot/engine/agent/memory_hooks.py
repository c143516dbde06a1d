"""Connects workers and chats with memory: context blocks, lookup and usage for workers, and the
turns of chats, recorded in the transaction that stores each turn."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from itertools import chain, zip_longest
from typing import TypeAlias

from pydantic import TypeAdapter

from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.conversation.turn_taking import CommitStep, PrepareCommit
from bot.engine.agent.model_calls import ModelReply
from bot.engine.agent.worker_context import ContextBlock
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import OFFLINE_NAME as OFFLINE
from bot.engine.llm.tool_calls import AgentTool
from bot.engine.memory.access import MemoryReader
from bot.engine.memory.consolidation import NotedStatement
from bot.engine.memory.context_builder import (
    ContextSession,
    MemoryContext,
    MemoryContextBuilder,
    is_instruction,
)
from bot.engine.memory.conversation_archive.history_tools import (
    HistoryToolContext,
    build_history_tools,
)
from bot.engine.memory.conversation_archive.service import ConversationHistory
from bot.engine.memory.decay import TrackedAnswer, UsageTracker
from bot.engine.memory.ingestion import ConversationTurn, MemoryRecorder
from bot.engine.memory.ports import MemorySource, RecalledMemory
from bot.engine.memory.retriever import MemoryRetriever
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import CostAccount, WorkerSpec
from cards import formats
from cards.catalog import TextCatalog, catalog_for
from cards.failure_texts import without_failure_texts
from handlers.ports import AnswerStream, ChatAnswer, ChatQuestion, ConversationState
from storage.db import Database, Transaction
from storage.errors import NotFound, StorageError, StoreUnavailable
from storage.key_value import KeyValueStore
from storage.memory.conversation_archive import ArchiveAccess
from storage.memory.entries import MemoryEntryRepo
from storage.memory.withheld_turns import WithheldTurnRepo
from storage.records.memory import (
    UNREAD_DATE_KEY,
    EntryId,
    MemoryEntry,
    MemoryKind,
    MemoryScope,
    MemoryState,
)
from storage.records.people import Chat, ChatId
from storage.records.tasks import TaskId
from storage.tasks import TaskVisibility

# --- memories and earlier conversations for workers

MEMORY_PREFIX = "memory:"
_UNDECIDED = {MemoryState.CANDIDATE, MemoryState.REJECTED}
_KINDS = tuple(kind for kind in MemoryKind if kind is not MemoryKind.HANDBOOK)


@dataclass(slots=True, kw_only=True)
class WorkerMemoryLookup:
    """Satisfies `memory.ports.MemorySource`; also searches `task_logs`. Dates are shown in
    `zone`."""

    recall: MemoryRetriever
    entries: MemoryEntryRepo
    reader: Callable[[], Awaitable[MemoryReader]]
    task_logs: MemorySource
    zone: tzinfo = UTC

    async def search(self, query: str, limit: int) -> Sequence[RecalledMemory]:
        """Interleave memories and task logs, because their scores are not comparable."""
        reader = await self.reader()
        found = await self.recall.search(reader, query, limit, kinds=_KINDS)
        memories = [self._to_memory(each.entry) for each in found]
        entries = [each for each in memories if each.text]
        logs = await self.task_logs.search(query, limit)
        both = chain.from_iterable(zip_longest(entries, logs))
        return [each for each in both if each is not None][:limit]

    async def get(self, memory_id: str) -> RecalledMemory | None:
        """Return a memory or task log by ID, including archived and replaced memories.

        Unconfirmed and rejected candidates are not returned."""
        if not memory_id.startswith(MEMORY_PREFIX):
            return await self.task_logs.get(memory_id)
        reader = await self.reader()
        try:
            entry = await self.entries.get(
                EntryId(memory_id.removeprefix(MEMORY_PREFIX)), reader.scopes
            )
        except NotFound:
            return None
        return None if entry.state in _UNDECIDED else self._to_memory(entry)

    def _to_memory(self, entry: MemoryEntry) -> RecalledMemory:
        told = [entry.kind.value, entry.category.value, entry.sender]
        if entry.superseded_by is not None and entry.state is not MemoryState.ACTIVE:
            told.append(f"no longer true, see {MEMORY_PREFIX}{entry.superseded_by}")
        elif entry.state is not MemoryState.ACTIVE:
            told.append(entry.state.value)
        if entry.valid_until is not None:
            told.append(f"until {entry.valid_until.astimezone(self.zone):%Y-%m-%d %H:%M}")
        return RecalledMemory(
            id=f"{MEMORY_PREFIX}{entry.id}",
            title=", ".join(filter(None, told)),
            text=without_failure_texts(entry.text),
            at=entry.said_at.astimezone(self.zone),
        )


log = logging.getLogger(__name__)

RECALL_TIMEOUT = 20.0
"""Seconds; after that the chat is answered without memories. It takes milliseconds: only a store
that hangs or a machine with far too much to do comes near this."""

_MAX_SESSIONS = 256

ChatLookup: TypeAlias = Callable[[ChatId], Awaitable[Chat]]
TaskProjectLookup: TypeAlias = Callable[[TaskId], Awaitable[str]]
"""Returns the project folder of a task; empty if it has none."""


@dataclass(frozen=True, slots=True)
class _StandingContext:
    """The memories in a session's system prompt, and those learnt since."""

    shown: MemoryContext = field(default_factory=MemoryContext)
    later: Sequence[MemoryEntry] = ()

    def updated(self, found: MemoryContext) -> _StandingContext:
        known = {(each.entry.id, each.entry.text) for each in self.shown.entries}
        now = {(each.entry.id, each.entry.text): each.entry for each in found.entries}
        later = [entry for key, entry in now.items() if key not in known]
        if not known or known - now.keys() or any(map(is_instruction, later)):
            return _StandingContext(found)
        return _StandingContext(self.shown, later)


@dataclass(slots=True, kw_only=True)
class MemoryBriefing:
    """Builds memory context: `standing_block` for the system prompt, `prompt_block` for each
    message.

    A session keeps its standing block, so that models can cache it, for as long as all of it holds
    and no instruction was added; what else is learnt later is told with a message.

    `record_usage` is a ReplyRecorder of the model gateway."""

    injection: MemoryContextBuilder
    uses: UsageTracker
    get_chat: ChatLookup
    get_project: TaskProjectLookup
    other_context: ContextBlock
    timeout: float = RECALL_TIMEOUT
    _standing_by_session: OrderedDict[str, _StandingContext] = field(
        default_factory=OrderedDict, init=False
    )

    async def standing_block(self, spec: WorkerSpec, persona: Persona) -> str:
        """Sub-agents get no memories; their parent tells them what they need."""
        if spec.depth or not spec.uses_memory:
            return ""

        async def look() -> MemoryContext:
            told = await self.other_context(spec, persona)
            return await self.injection.build_standing(
                await self.resolve_reader(spec, persona), told
            )

        found = await self._with_timeout(look)
        stands = self._standing_by_session.pop(spec.session.id, _StandingContext()).updated(found)
        self._standing_by_session[spec.session.id] = stands
        while len(self._standing_by_session) > _MAX_SESSIONS:
            self._standing_by_session.popitem(last=False)
        told = stands.shown
        self.uses.set_context(spec.session.id, spec.request_text, told.entries)
        return told.text

    async def prompt_block(self, spec: WorkerSpec, persona: Persona) -> str:
        if spec.depth or not spec.uses_memory:
            return ""
        standing = self._standing_by_session.get(spec.session.id, _StandingContext())
        stands = standing.shown

        async def look() -> MemoryContext:
            told = await self.other_context(spec, persona)
            reader = await self.resolve_reader(spec, persona)
            return await self.injection.build_aside(
                reader,
                spec.request_text,
                _memory_session(spec),
                stands,
                told,
                learnt=standing.later,
            )

        told = await self._with_timeout(look)
        self.uses.set_context(spec.session.id, spec.request_text, (*stands.entries, *told.entries))
        return told.text

    async def record_usage(self, tx: Transaction, reply: ModelReply) -> None:
        """Record which memories the answer was based on."""
        value = reply.result.value
        said = value.summary if isinstance(value, StepAnswer) else ""
        await self.uses.record_answer(
            tx,
            TrackedAnswer(
                session=reply.session.id,
                turn=reply.session.turns + 1,
                chat=reply.usage_record.chat_id,
                task=reply.usage_record.task_id,
                text=f"{reply.result.text}\n{said}",
                at=reply.usage_record.at,
                is_continuation=reply.resumed,
            ),
        )

    async def resolve_reader(self, spec: WorkerSpec, persona: Persona) -> MemoryReader:
        """Determine whose memories this worker may read."""
        who = spec.account
        chat = await self.get_chat(who.chat) if who.chat else None
        if who.task is not None:
            project = await self.get_project(who.task)
        else:
            project = "" if chat is None else chat.settings.project
        return MemoryReader(
            chat=chat,
            person=who.person,
            project=project,
            skill=spec.skill,
            agent=persona.name,
        )

    async def _with_timeout(self, look: Callable[[], Awaitable[MemoryContext]]) -> MemoryContext:
        try:
            async with asyncio.timeout(self.timeout):
                return await look()
        except (TimeoutError, StorageError) as error:
            log.warning("no memory is available this time: %r", error)
            return MemoryContext()


def _memory_session(job: WorkerSpec) -> ContextSession:
    return ContextSession(
        id=job.session.id,
        turns=job.session.turns,
        started_at=job.session.started_at,
        chat=job.account.chat if job.is_chat else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHistory:
    """Gives workers earlier conversations: tools to search them, and the end of the previous
    session. `task_visibility` describes everyone who sees a task."""

    history: ConversationHistory
    task_visibility: Callable[[TaskId], Awaitable[TaskVisibility]]

    def tools(self, spec: WorkerSpec, _persona: Persona) -> Sequence[AgentTool]:
        if spec.is_chat and not spec.uses_memory:
            return ()
        context = HistoryToolContext(
            search=self.history.search,
            get_access=partial(self.access_for, spec.account),
            zone=self.history.zone,
        )
        return build_history_tools(context)

    async def carryover_block(self, spec: WorkerSpec, _persona: Persona) -> str:
        """Context block with the end of the previous session."""
        if spec.depth or (spec.is_chat and not spec.uses_memory):
            return ""  # a subagent gets a complete instruction and has only one session
        return await self.history.carryover.build(spec.session.id, is_task=not spec.is_chat)

    async def access_for(self, account: CostAccount) -> ArchiveAccess:
        """A task's worker may read what everyone who sees the task may read."""
        if account.task is None:
            return await self.history.access_in_chat(account.person, account.chat)
        visible = await self.task_visibility(account.task)
        return ArchiveAccess(chat=visible.chat, person=visible.person, task_visibility=visible)


# --- chat turns into memory
# Each in the transaction that stores the turn.

_MAX_NOTE_CHARS = 120
_ANSWERS = TypeAdapter(ChatAnswer)


@dataclass(slots=True)
class _RecordedTurn:
    """The scopes that one turn was recorded in, the statements noted from it, and what a model has
    noted from earlier ones."""

    scopes: list[MemoryScope] = field(default_factory=list)
    noted: list[NotedStatement] = field(default_factory=list)
    noted_before: Sequence[MemoryEntry] = ()

    def clear(self) -> None:
        self.scopes.clear()
        self.noted.clear()


class RecordedConversation:
    """Wraps ConversationService; satisfies `handlers.ports.ChatPort` and
    `ResumableConversation`.

    The answer to a message is stored with its turn: where a crash came before it was posted, the
    message is handled again and gets it without another call."""

    def __init__(
        self,
        conversation: ConversationService,
        *,
        db: Database,
        recorder: MemoryRecorder,
        now: Callable[[], datetime],
    ) -> None:
        self._conversation = conversation
        self._db = db
        self._answers = KeyValueStore(db)
        self._recorder = recorder
        self._withheld = WithheldTurnRepo(db)
        self._now = now

    async def answer(
        self,
        question: ChatQuestion,
        stream: AnswerStream,
        prepare_commit: PrepareCommit | None = None,
    ) -> ChatAnswer:
        # Imported on first use: its many patterns cost the start.
        from bot.engine.memory.explicit_statements import find_explicit_statements

        if (stored := await self._find_answer(question)) is not None:
            return stored
        heard = _RecordedTurn()
        if find_explicit_statements(question.text):
            stream = _hide_fallback_text(stream, catalog_for(question.language))
        answered = await self._conversation.answer(
            question, stream, self._recording(question, prepare_commit, heard)
        )
        if answered.interrupted:
            await self._record_interrupted(question, heard)
        self._notify_recorder(heard)
        words = catalog_for(question.language)
        answered = await self._with_consent_note(question, answered, words)
        if question.chat.settings.incognito:
            answered = replace(answered, notes=(*answered.notes, words("memory.incognito_note")))
        return _with_notes(answered, heard, words)

    async def _with_consent_note(
        self, question: ChatQuestion, answered: ChatAnswer, words: TextCatalog
    ) -> ChatAnswer:
        """Say what is not remembered, if the message asked for it."""
        from bot.engine.memory.consent_rules import find_consent_request

        wish = find_consent_request(question.text)
        withheld = await self._withheld.get(question.chat.id)
        if wish is None or not wish.is_sure:
            return answered
        if withheld is None or not withheld.has_message(question.source):
            return answered
        note = words(f"memory.withheld_{wish.wanted}")
        return replace(answered, notes=(note, *answered.notes))

    async def resume_answer(
        self, question: ChatQuestion, prepare_commit: PrepareCommit
    ) -> ChatAnswer:
        heard = _RecordedTurn()
        answered = await self._conversation.resume_answer(
            question, self._recording(question, prepare_commit, heard)
        )
        self._notify_recorder(heard)
        return answered

    def interrupt(self, chat_id: ChatId) -> bool:
        return self._conversation.interrupt(chat_id)

    def on_new_message(self, chat_id: ChatId, mode: str, *, may_interrupt: bool = True) -> bool:
        return self._conversation.on_new_message(chat_id, mode, may_interrupt=may_interrupt)

    def queues_messages(self, mode: str) -> bool:
        return self._conversation.queues_messages(mode)

    async def reset(self, chat_id: ChatId) -> bool:
        return await self._conversation.reset(chat_id)

    async def state(self, chat_id: ChatId) -> ConversationState | None:
        return await self._conversation.state(chat_id)

    def _recording(
        self, question: ChatQuestion, keep: PrepareCommit | None, heard: _RecordedTurn
    ) -> PrepareCommit:
        async def keeping(answered: ChatAnswer) -> CommitStep:
            also = None if keep is None else await keep(answered)

            async def kept(tx: Transaction) -> None:
                if also is not None:
                    await also(tx)
                await self._record(tx, question, _recordable_answer(answered), heard)
                if not question.is_continuation:
                    heard.noted_before = await self._recorder.noted.take_for_answer(
                        tx, question.chat.id
                    )
                    told = _with_notes(answered, heard, catalog_for(question.language))
                    await self._store_answer(tx, question, told)

            return kept

        return keeping

    async def _store_answer(
        self, tx: Transaction, question: ChatQuestion, answered: ChatAnswer
    ) -> None:
        told = _ANSWERS.dump_python(answered, mode="json")
        value = {"question": _fingerprint(question), "answer": told}
        await self._answers.write(tx, _answer_key(question), value)

    async def _find_answer(self, question: ChatQuestion) -> ChatAnswer | None:
        value = await self._answers.get(_answer_key(question))
        if value is None:
            return None
        answered = _ANSWERS.validate_python(value["answer"])
        if question.source in answered.joined:
            # The message that interrupted this one is handled again too, and has the answer.
            return ChatAnswer(text="", interrupted=True, superseded=True)
        return answered if value["question"] == _fingerprint(question) else None

    async def _record_interrupted(self, question: ChatQuestion, heard: _RecordedTurn) -> None:
        """Record the user's message without the interrupted answer."""
        try:
            async with self._db.write() as tx:
                await self._record(tx, question, "", heard)
        except StoreUnavailable as error:
            log.warning("messages in %s are not remembered: %s", question.chat.id, error)

    async def _record(
        self, tx: Transaction, question: ChatQuestion, answer: str, heard: _RecordedTurn
    ) -> None:
        heard.clear()
        withheld = await self._withheld.get(question.chat.id, tx=tx)
        if withheld is not None:
            if withheld.has_message(question.source):
                return
            answer = ""  # it may repeat what must not be kept
        turn = ConversationTurn(
            person=question.person,
            chat=question.chat,
            user_text=question.text,
            assistant_text=answer,
            source=question.source,
            skill=question.skill,
            forwarded=question.forwarded,
            at=self._now(),
        )
        cell = await self._recorder.record_turn(tx, turn, heard.noted)
        if cell is not None:
            heard.scopes.append(cell.scope)

    def _notify_recorder(self, heard: _RecordedTurn) -> None:
        for scope in heard.scopes:
            self._recorder.publish_change(scope)


def _answer_key(question: ChatQuestion) -> str:
    """One answer is kept for each chat: the last."""
    return f"chat.answer.{question.chat.id}"


def _fingerprint(question: ChatQuestion) -> str:
    """Of the message; not of what it is answered by."""
    parts = (question.source, question.text, question.brief, question.skill, question.no_proposal)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _recordable_answer(answered: ChatAnswer) -> str:
    """Return the answer's text, except for the offline backend's fixed reply."""
    return "" if answered.model == OFFLINE else answered.text


def _with_notes(answered: ChatAnswer, heard: _RecordedTurn, words: TextCatalog) -> ChatAnswer:
    """Add a note on each noted statement and how to undo it, and one on what was noted before.

    The notes on statements replace the offline backend's “cannot answer” text."""
    if before := heard.noted_before:
        told = (f"{formats.escape_markdown(e.text, _MAX_NOTE_CHARS)} (`{e.id}`)" for e in before)
        line = words("memory.noted_before", texts=" · ".join(told))
        answered = replace(answered, notes=(*answered.notes, line))
    notes = tuple(_noted_lines(heard.noted, words))
    if not notes:
        return answered
    helpless = words("offline.cannot_answer")
    if answered.model == OFFLINE and helpless in answered.text:
        return replace(answered, text=answered.text.replace(helpless, "\n\n".join(notes)))
    return replace(answered, notes=(*notes, *answered.notes))


def _hide_fallback_text(show: AnswerStream, words: TextCatalog) -> AnswerStream:
    """Don't stream the offline backend's “cannot answer” text."""
    helpless = words("offline.cannot_answer")

    async def shown(text: str) -> None:
        if not (text.startswith(helpless) or helpless.startswith(text.strip())):
            await show(text)

    return shown


def _noted_lines(taken: Sequence[NotedStatement], words: TextCatalog) -> Iterator[str]:
    for each in taken:
        text = formats.escape_markdown(each.entry.text, _MAX_NOTE_CHARS)
        key = "memory.stands" if each.blocked_by_manual else "memory.noted"
        yield words(key, text=text, id=each.entry.id)
        if UNREAD_DATE_KEY in each.entry.extra:
            yield words("memory.unread_date")
