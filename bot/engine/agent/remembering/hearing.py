"""Talk that is remembered: each turn leaves its cell in the transaction that keeps the turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from bot.engine.agent.leave.talks import Keep, Kept
from bot.engine.agent.talk import Conversations
from bot.engine.llm.offline import NAME as OFFLINE
from bot.engine.memory.writing.plainly import Taken
from bot.engine.memory.writing.recorder import Recorder, Turn
from bot.engine.memory.writing.rules import plainly_said
from cards import formats
from cards.words import Words, words_for
from handlers.ports import Answered, Question, Show, TalkState
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.memory.entries import Scope
from storage.records.people import ChatId

log = logging.getLogger(__name__)

_MOST_TOLD = 120


@dataclass(slots=True)
class _Heard:
    """Of one turn: whose memory it went into, and what was taken down at once."""

    scopes: list[Scope] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)

    def clear(self) -> None:
        self.scopes.clear()
        self.taken.clear()


class RememberedTalk:
    """Satisfies `handlers.ports.Talk` and `leave.talks.GoesOn`: what it passes on is what
    `Conversations` answers."""

    def __init__(
        self,
        talk: Conversations,
        *,
        db: Database,
        recorder: Recorder,
        now: Callable[[], datetime],
    ) -> None:
        self._talk = talk
        self._db = db
        self._recorder = recorder
        self._now = now

    async def answer(self, question: Question, show: Show, keep: Keep | None = None) -> Answered:
        heard = _Heard()
        if plainly_said(question.text):
            show = _unless_helpless(show, words_for(question.language))
        answered = await self._talk.answer(question, show, self._keeping(question, keep, heard))
        if answered.interrupted:
            await self._cut(question, heard)
        self._tell(heard)
        return _with_notes(answered, heard.taken, words_for(question.language))

    async def go_on(self, question: Question, keep: Keep) -> Answered:
        heard = _Heard()
        answered = await self._talk.go_on(question, self._keeping(question, keep, heard))
        self._tell(heard)
        return answered

    def interrupt(self, chat_id: ChatId) -> bool:
        return self._talk.interrupt(chat_id)

    def arrived(self, chat_id: ChatId) -> bool:
        return self._talk.arrived(chat_id)

    def queue(self, chat_id: ChatId, queue: str) -> None:
        self._talk.queue(chat_id, queue)

    def waits(self, chat_id: ChatId) -> bool:
        return self._talk.waits(chat_id)

    async def reset(self, chat_id: ChatId) -> bool:
        return await self._talk.reset(chat_id)

    async def state(self, chat_id: ChatId) -> TalkState | None:
        return await self._talk.state(chat_id)

    def _keeping(self, question: Question, keep: Keep | None, heard: _Heard) -> Keep:
        async def keeping(answered: Answered) -> Kept:
            also = None if keep is None else await keep(answered)

            async def kept(tx: Transaction) -> None:
                if also is not None:
                    await also(tx)
                await self._hear(tx, question, _worth(answered), heard)

            return kept

        return keeping

    async def _cut(self, question: Question, heard: _Heard) -> None:
        """The answer is not kept, but what was said is."""
        try:
            async with self._db.write() as tx:
                await self._hear(tx, question, "", heard)
        except StoreUnavailable as error:
            log.warning("what was said in %s is not remembered: %s", question.chat.id, error)

    async def _hear(self, tx: Transaction, question: Question, answer: str, heard: _Heard) -> None:
        heard.clear()
        turn = Turn(
            person=question.person,
            chat=question.chat,
            said=question.text,
            answer=answer,
            source=question.source,
            skill=question.skill,
            at=self._now(),
        )
        cell = await self._recorder.said(tx, turn, heard.taken)
        if cell is not None:
            heard.scopes.append(cell.scope)

    def _tell(self, heard: _Heard) -> None:
        for scope in heard.scopes:
            self._recorder.kept(scope)


def _worth(answered: Answered) -> str:
    """What was answered, but for what is said wherever there is no model."""
    return "" if answered.model == OFFLINE else answered.text


def _with_notes(answered: Answered, taken: Sequence[Taken], words: Words) -> Answered:
    """What was noted at their wish is said, so that nobody wonders, and how it is undone. It is
    the answer itself where there is nobody to give one."""
    notes = tuple(_notes(taken, words))
    if not notes:
        return answered
    helpless = words("offline.cannot_answer")
    if answered.model == OFFLINE and helpless in answered.text:
        return replace(answered, text=answered.text.replace(helpless, "\n\n".join(notes)))
    return replace(answered, notes=(*notes, *answered.notes))


def _unless_helpless(show: Show, words: Words) -> Show:
    """Nobody is told for a moment that nothing was understood."""
    helpless = words("offline.cannot_answer")

    async def shown(text: str) -> None:
        if not (text.startswith(helpless) or helpless.startswith(text.strip())):
            await show(text)

    return shown


def _notes(taken: Sequence[Taken], words: Words) -> Iterator[str]:
    for each in taken:
        text = formats.verbatim(each.entry.text, _MOST_TOLD)
        key = "memory.stands" if each.stands else "memory.noted"
        yield words(key, text=text, id=each.entry.id)
