"""Records chat turns in memory, in the transaction that stores each turn."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from pydantic import TypeAdapter

from bot.engine.agent.conversation.resumption import CommitStep, PrepareCommit
from bot.engine.agent.conversation.service import ConversationService
from bot.engine.llm.backend import OFFLINE_NAME as OFFLINE
from bot.engine.memory.consolidation import NotedStatement
from bot.engine.memory.ingestion import ConversationTurn, MemoryRecorder
from cards import formats
from cards.catalog import TextCatalog, catalog_for
from handlers.ports import AnswerStream, ChatAnswer, ChatQuestion, ConversationState
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.records.memory import MemoryScope
from storage.records.people import ChatId

log = logging.getLogger(__name__)

_MAX_NOTE_CHARS = 120
_ANSWERS = TypeAdapter(ChatAnswer)


@dataclass(slots=True)
class _RecordedTurn:
    """The scopes that one turn was recorded in and the statements noted from it."""

    scopes: list[MemoryScope] = field(default_factory=list)
    noted: list[NotedStatement] = field(default_factory=list)

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
        return _with_notes(answered, heard.noted, catalog_for(question.language))

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
                    told = _with_notes(answered, heard.noted, catalog_for(question.language))
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
        turn = ConversationTurn(
            person=question.person,
            chat=question.chat,
            user_text=question.text,
            assistant_text=answer,
            source=question.source,
            skill=question.skill,
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


def _with_notes(
    answered: ChatAnswer, taken: Sequence[NotedStatement], words: TextCatalog
) -> ChatAnswer:
    """Add a note on each noted statement and how to undo it.

    The notes replace the offline backend's “cannot answer” text."""
    notes = tuple(_noted_lines(taken, words))
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
