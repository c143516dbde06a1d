"""What stood before a model when it answered, and what of it the answer has used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from enum import StrEnum

from bot.engine.memory.cited import is_cited
from bot.engine.memory.life import Reinforcement, reinforced
from storage.db import Database, Transaction
from storage.memory.entries import EntryRepo
from storage.memory.living.uses import Use, UseRepo
from storage.records.memory.entries import Entry, EntryId, Scope
from storage.records.memory.shown import Behind, UsedEntry
from storage.records.people import ChatId
from storage.records.tasks import TaskId

_MOST_WAITING = 256
"""Answers under way whose memories are known; of older ones nothing is noted."""


class Block(StrEnum):
    """Where an entry stands. The first three are told at the front, and stay the same from turn
    to turn; the others stand beside what is asked."""

    HANDBOOK = "handbook"
    PROFILE = "profile"
    LONGTERM = "longterm"
    SIMILAR = "similar"
    RECENT = "recent"

    @property
    def stands(self) -> bool:
        return self in {Block.HANDBOOK, Block.PROFILE, Block.LONGTERM}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An entry in its place; `score` and `parts` say why, where it was looked for. It was said
    `on` that day where its reader lives, and there is `room` for so many tokens of its text."""

    entry: Entry
    block: Block
    on: date
    room: int
    score: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer of a model. `goes_on` says that it was not asked anew: nothing stood beside."""

    session: str
    turn: int
    chat: ChatId | None
    task: TaskId | None
    text: str
    at: datetime
    goes_on: bool = False


@dataclass(slots=True, kw_only=True)
class _Stood:
    """What stands before an answer: that of the first turn that it is booked with."""

    asked: str = ""
    shown: Sequence[Shown] = ()
    turn: int = 0


class Uses:
    def __init__(
        self, *, db: Database, entries: EntryRepo, repo: UseRepo, now: Callable[[], datetime]
    ) -> None:
        self._db = db
        self._entries = entries
        self._repo = repo
        self._now = now
        self._standing: OrderedDict[str, _Stood] = OrderedDict()

    def stand(self, session: str, asked: str, shown: Sequence[Shown]) -> None:
        """These, and no others, stand before the next answer of this session, to what is
        `asked`: words of that prove no use."""
        self._standing[session] = _Stood(asked=asked, shown=shown)
        self._standing.move_to_end(session)
        while len(self._standing) > _MOST_WAITING:
            self._standing.popitem(last=False)

    async def heard(self, session: str, since: int) -> Collection[EntryId]:
        """What was told beside what was asked, from this turn on."""
        known = await self._repo.heard(session, since)
        return {entry for entry, block in known.items() if not Block(block).stands}

    async def book(self, tx: Transaction, answer: Answered) -> None:
        """Note what stood there with the answer that it led to, and what of it was used. The same
        answer may come again: its transaction may have failed."""
        stood = self._standing.get(answer.session, _Stood())
        stood.turn = stood.turn or answer.turn
        if stood.turn != answer.turn:
            return
        asked = stood.asked
        shown = [each for each in stood.shown if each.block.stands or not answer.goes_on]
        if not shown:
            return
        await self._repo.add(tx, [_use(each, answer) for each in shown])
        aside = [each.entry.id for each in shown if not each.block.stands]
        await self._repo.showed(tx, aside, answer.at)
        used = [each.entry for each in shown if is_cited(each.entry, answer.text, asked)]
        await self._confirm(tx, answer.session, answer.turn, used, Reinforcement.USED)

    async def last(self, chat: ChatId, scopes: Sequence[Scope] | None = None) -> Behind:
        """What stood before the model at this chat's last answer, for a reader of these scopes;
        None: of all."""
        turn = await self._repo.last(chat)
        if turn is None:
            return Behind()
        behind = await self.of_answer(chat, turn.session, turn.number, scopes)
        return replace(behind, at=turn.at, by=turn.backend)

    async def of_answer(
        self, chat: ChatId, session: str, turn: int, scopes: Sequence[Scope] | None = None
    ) -> Behind:
        """The same of one answer in this chat."""
        behind = await self._told(await self._repo.of_turn(chat, session, turn), scopes)
        return replace(behind, session=session, turn=turn)

    async def of_task(self, task: TaskId, scopes: Sequence[Scope] | None = None) -> Behind:
        """What stood before the model in a task's steps, each once."""
        uses = await self._repo.of_task(task)
        used = {each.entry for each in uses if each.confirmed_at}
        once = {each.entry: each for each in uses if each.confirmed_at or each.entry not in used}
        return await self._told(list(once.values()), scopes)

    async def confirm(
        self, chat: ChatId, session: str, turn: int, scopes: Sequence[Scope] | None = None
    ) -> int:
        """Somebody who reads these scopes says that what was looked for helped that answer in
        this chat. How many entries were not known to be used before."""
        async with self._db.write() as tx:
            uses = await self._repo.of_turn(chat, session, turn, tx=tx)
            wanted = [each for each in uses if each.block == Block.SIMILAR]
            entries = await self._loaded(wanted, scopes, tx)
            return await self._confirm(
                tx, session, turn, list(entries.values()), Reinforcement.USED
            )

    async def task_ended(self, tx: Transaction, task: TaskId, well: bool) -> None:
        """What a task was told and has used counts more after it ended well, less otherwise."""
        by = Reinforcement.SUCCEEDED if well else Reinforcement.FAILED
        uses = [each for each in await self._repo.of_task(task, tx=tx) if each.confirmed_at]
        for entry in (await self._loaded(uses, None, tx)).values():
            await self._repo.used(tx, entry, reinforced(entry, by, self._now()), self._now())

    async def _confirm(
        self,
        tx: Transaction,
        session: str,
        turn: int,
        entries: Sequence[Entry],
        by: Reinforcement,
    ) -> int:
        if not entries:
            return 0
        now = self._now()
        fresh = await self._repo.confirm(tx, session, turn, [each.id for each in entries], now)
        for entry in entries:
            if entry.id in fresh:
                await self._repo.used(tx, entry, reinforced(entry, by, now), now)
        return len(fresh)

    async def _told(self, uses: Sequence[Use], scopes: Sequence[Scope] | None) -> Behind:
        seen = await self._loaded(uses, scopes)
        others = [each for each in uses if each.entry not in seen]
        hidden = set() if scopes is None else set(await self._loaded(others, None))
        told = [_told(each, seen) for each in uses if each.entry not in hidden]
        at = max((each.at for each in uses), default=None)
        return Behind(used=told, hidden=len(hidden), at=at)

    async def _loaded(
        self, uses: Sequence[Use], scopes: Sequence[Scope] | None, tx: Transaction | None = None
    ) -> Mapping[EntryId, Entry]:
        ids = {each.entry for each in uses}
        found = await self._entries.with_ids(ids, scopes, tx=tx) if ids else ()
        return {each.id: each for each in found}


def _told(use: Use, seen: Mapping[EntryId, Entry]) -> UsedEntry:
    return UsedEntry(
        entry=seen.get(use.entry),
        id=use.entry,
        block=use.block,
        score=use.score,
        parts=use.parts,
        at=use.at,
        confirmed=use.confirmed_at is not None,
    )


def _use(shown: Shown, answer: Answered) -> Use:
    return Use(
        session=answer.session,
        turn=answer.turn,
        chat=answer.chat,
        task=answer.task,
        entry=shown.entry.id,
        block=shown.block.value,
        score=shown.score,
        parts=shown.parts,
        at=answer.at,
    )
