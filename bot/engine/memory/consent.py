"""Keeps nothing of what a person did not want remembered: at once in memory, and when the
conversation ends everywhere else. `consent_rules` recognises the wish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.ingestion import ConversationTurn, MemoryRecorder
from bot.engine.memory.noise_filter import NoiseKind, classify_noise
from bot.engine.memory.withheld_files import WithheldFileEraser
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.key_value import KeyValueStore
from storage.memory.cells import CellRepo
from storage.memory.entries import MemoryEntryRepo
from storage.memory.withheld_turns import ERASED_TEXT, WithheldTurnRepo, WithheldTurns
from storage.records.memory import EntryId, MemoryEntry
from storage.records.messages import InboxRow, IncomingMessage
from storage.records.people import Chat, ChatId, Person
from storage.records.workers import ModelSession
from storage.sessions import SessionRepo
from storage.shared_files import SharedFiles

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 10.0
_RESULT_TIME = timedelta(minutes=10)
_SOURCE = "inbox:"
_EXPECTED = "consent.next:"
_EXPECTED_WITHIN = timedelta(days=1)


@dataclass(slots=True, kw_only=True)
class MemoryConsent:
    db: Database
    entries: MemoryEntryRepo
    cells: CellRepo
    withheld: WithheldTurnRepo
    sessions: SessionRepo
    recorder: MemoryRecorder
    key_values: KeyValueStore
    feed: MemoryChangeFeed
    now: Callable[[], datetime]

    async def withhold_this(self, chat: Chat, source: str) -> None:
        """Not to keep this message and its answer. Call it before they are worked on."""
        gone: Sequence[MemoryEntry] = ()
        async with self.db.write() as tx:
            row = await self._find_row(tx, source)
            if row is not None:
                gone = await self._withhold(tx, chat, row)
        self.feed.publish(*{each.scope for each in gone})

    async def withhold_before(
        self, chat: Chat, source: str, reply_to: str, *, is_sure: bool = True
    ) -> bool:
        """Not to keep the message replied to, or else the sender's last one, nor what was drawn
        from it. False if there is none of theirs. Unless it `is_sure`, it may be kept after all;
        False too if it is withheld already."""
        gone: list[MemoryEntry] = []
        async with self.db.write() as tx:
            row = await self._find_row(tx, source)
            said = None if row is None else await self._find_said_before(tx, row, reply_to)
            if row is None or said is None:
                return False
            held = await self.withheld.get(chat.id, tx=tx)
            if not is_sure and held is not None and held.has_message(said.source):
                return False
            versions = await self.withheld.list_versions(tx, said)
            rows = [*versions, *await self.withheld.list_joined(tx, said)]
            session = await self.sessions.find_open(f"chat:{chat.id}", tx=tx)
            since = min(each.received_at for each in rows)
            until = None
            if session is None or session.last_used_at < since:
                # Of an earlier conversation: later ones have nothing of it.
                until = await self._end_of(tx, said, row)
            await self.withheld.add(tx, chat.id, rows, (since, until))
            await self.withheld.add(tx, chat.id, [row], (row.received_at, None))
            gone += await self._forget(tx, rows, for_good=is_sure)
        self.feed.publish(*{each.scope for each in gone})
        return True

    async def expect_next(self, chat: Chat, source: str) -> None:
        """Not to keep this message, nor the sender's next one, which `withhold_expected`
        recognises."""
        name = f"{_EXPECTED}{chat.id}"
        gone: Sequence[MemoryEntry] = ()
        async with self.db.write() as tx:
            row = await self._find_row(tx, source)
            if row is not None:
                expected = dict(await self.key_values.read(tx, name) or {})
                expected[row.incoming.sender.external_id] = row.received_at.isoformat()
                await self.key_values.write(tx, name, expected)
                gone = await self._withhold(tx, chat, row)
        self.feed.publish(*{each.scope for each in gone})

    async def withhold_expected(self, chat: Chat, source: str) -> bool:
        """Withhold this message if it is the one that was announced. A greeting is none."""
        name = f"{_EXPECTED}{chat.id}"
        if not await self.key_values.get(name):
            return False
        async with self.db.write() as tx:
            row = await self._find_row(tx, source)
            expected = dict(await self.key_values.read(tx, name) or {})
            if row is None or not isinstance(row.incoming, IncomingMessage):
                return False
            since = expected.get(row.incoming.sender.external_id)
            if since is None or classify_noise(row.incoming.text) is NoiseKind.GREETING:
                return False
            del expected[row.incoming.sender.external_id]
            await self.key_values.write(tx, name, expected)
            if row.received_at - datetime.fromisoformat(since) > _EXPECTED_WITHIN:
                return False
            gone = await self._withhold(tx, chat, row)
        self.feed.publish(*{each.scope for each in gone})
        return True

    async def expect_no_more(self, chat: Chat, source: str) -> bool:
        """Take back the announcement of this message's sender. False if there is none."""
        name = f"{_EXPECTED}{chat.id}"
        if not await self.key_values.get(name):
            return False
        async with self.db.write() as tx:
            row = await self._find_row(tx, source)
            expected = dict(await self.key_values.read(tx, name) or {})
            since = None if row is None else expected.pop(row.incoming.sender.external_id, None)
            if row is None or since is None:
                return False
            await self.key_values.write(tx, name, expected)
            return row.received_at - datetime.fromisoformat(since) <= _EXPECTED_WITHIN

    async def keep_after_all(
        self, person: Person, chat: Chat, source: str, *, with_before: bool
    ) -> bool:
        """Keep this message, which was withheld in doubt, and the one before it where that was
        withheld too. False if they are erased by now."""
        recorded: list[MemoryEntry] = []
        async with self.db.write() as tx:
            row = await self._find_row(tx, source)
            held = await self.withheld.get(chat.id, tx=tx)
            if row is None or not isinstance(row.incoming, IncomingMessage):
                return False
            if held is None or not held.has_message(source):
                return row.incoming.text != ERASED_TEXT
            before = await self._find_said_before(tx, row, _reply_to(row)) if with_before else None
            for each in filter(None, (before, row)):
                versions = await self.withheld.list_versions(tx, each)
                joined = await self.withheld.list_joined(tx, each)
                await self.withheld.release(tx, chat.id, [*versions, *joined])
                if isinstance(each.incoming, IncomingMessage):
                    turn = _turn_of(each, each.incoming, person, chat)
                    cell = await self.recorder.record_turn(tx, turn, [])
                    recorded += [] if cell is None else [cell]
        self.feed.publish(*{each.scope for each in recorded})
        return True

    async def withhold_chat(self, chat: Chat, source: str) -> None:
        """Not to keep anything of the chat's current conversation."""
        async with self.db.write() as tx:
            row = await self._find_row(tx, source)
            if row is None:
                return
            session = await self.sessions.find_open(f"chat:{chat.id}", tx=tx)
            rows: Sequence[InboxRow] = [row]
            if session is not None:
                rows = await self.withheld.list_messages(
                    tx, chat.id, since=await self._beginning_of(tx, session, chat.id)
                )
            since = min(each.received_at for each in rows)
            await self.withheld.add(tx, chat.id, rows, (since, None))
            gone = await self._forget(tx, rows)
        self.feed.publish(*{each.scope for each in gone})

    async def _withhold(self, tx: Transaction, chat: Chat, row: InboxRow) -> Sequence[MemoryEntry]:
        """Withhold all versions of a message. Returns what is forgotten by it."""
        rows = await self.withheld.list_versions(tx, row)
        since = min(each.received_at for each in rows)
        await self.withheld.add(tx, chat.id, rows, (since, None))
        return await self._forget(tx, rows)

    async def _find_row(self, tx: Transaction, source: str) -> InboxRow | None:
        number = source.removeprefix(_SOURCE)
        return await self.withheld.get_message(tx, int(number)) if number.isdecimal() else None

    async def _find_said_before(
        self, tx: Transaction, row: InboxRow, reply_to: str
    ) -> InboxRow | None:
        if reply_to:
            said = await self.withheld.find_replied_to(tx, row.chat_id, reply_to)
            is_mine = said is not None and said.incoming.sender == row.incoming.sender
            return said if is_mine else None
        for each in await self.withheld.list_before(tx, row):
            said_text = each.incoming.text if isinstance(each.incoming, IncomingMessage) else ""
            if said_text.strip() and not said_text.lstrip().startswith("/"):
                return each
        return None

    async def _end_of(self, tx: Transaction, said: InboxRow, row: InboxRow) -> datetime:
        after = await self.withheld.list_messages(tx, said.chat_id, since=said.received_at)
        return min(
            (each.received_at for each in after if each.id > said.id), default=row.received_at
        )

    async def _beginning_of(self, tx: Transaction, session: ModelSession, chat: ChatId) -> datetime:
        """When the message came that began this conversation."""
        before = await self.withheld.list_messages(
            tx, chat, since=session.started_at - timedelta(minutes=1)
        )
        first = [each.received_at for each in before if each.received_at <= session.started_at]
        return max(first, default=session.started_at)

    async def _forget(
        self, tx: Transaction, rows: Sequence[InboxRow], *, for_good: bool = True
    ) -> Sequence[MemoryEntry]:
        """Forget the cells of these messages and everything that was drawn from them. What it had
        replaced holds again. `for_good`: they must not come back by themselves."""
        gone: dict[EntryId, MemoryEntry] = {}
        for row in rows:
            cell = await self.entries.find_by_source(f"turn:{row.source}", tx=tx)
            if cell is not None:
                gone[cell.id] = cell
                gone |= {each.id: each for each in await self.cells.list_drawn_from(tx, cell)}
        before = [
            old
            for each in gone.values()
            for old in await self.entries.list_predecessors(tx, each)
            if old.id not in gone and old.superseded_by == each.id
        ]
        if for_good:
            await self.entries.forget(tx, *gone.values(), now=self.now())
        else:
            await self.entries.delete_all(tx, [*gone.values()])
        for old in before:
            await self.entries.restore(tx, old, now=self.now())
        return [*gone.values(), *before]


def _reply_to(row: InboxRow) -> str:
    return row.incoming.reply_to if isinstance(row.incoming, IncomingMessage) else ""


def _turn_of(row: InboxRow, said: IncomingMessage, person: Person, chat: Chat) -> ConversationTurn:
    return ConversationTurn(
        person=person,
        chat=chat,
        user_text=said.text,
        assistant_text="",  # it was not recorded while nobody had decided
        source=row.source,
        at=row.received_at,
        forwarded=said.forwarded,
    )


@dataclass(slots=True, kw_only=True)
class WithheldTurnEraser:
    """A service that ends idle conversations with words that must not be kept, and cleans the
    database file after they were erased. All state is in the store."""

    name = "withheld turns"

    db: Database
    withheld: WithheldTurnRepo
    sessions: SessionRepo
    max_idle: timedelta
    close_session: Callable[[str], Awaitable[bool]]
    files: WithheldFileEraser
    shared: SharedFiles
    now: Callable[[], datetime]
    _stopped: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while True:
            try:
                await self.sweep()
            except StoreUnavailable as error:
                log.warning("what must not be kept waits for the store: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS):
                    await self._stopped.wait()

    async def sweep(self) -> None:
        for turns in await self.withheld.list_all():
            if any(until is None for _, until in turns.spans) and await self._is_in_use(turns):
                continue
            await self._erase(turns)

    async def _is_in_use(self, turns: WithheldTurns) -> bool:
        """Whether the conversation with these words goes on. One that is idle is closed. Where
        there is none, a result can be read for a while."""
        key = f"chat:{turns.chat}"
        session = await self.sessions.find_open(key)
        if session is None:
            return await self.withheld.has_task_since(turns, self.now() - _RESULT_TIME)
        if not self.max_idle or self.now() - session.last_used_at <= self.max_idle:
            return True
        await self.close_session(key)
        return False

    async def _erase(self, turns: WithheldTurns) -> None:
        """Rows first, then files, then backups; the note of all goes last, so that a crash in
        between repeats what is left."""
        async with self.db.write() as tx:
            if not await self.withheld.erase(tx, turns):
                return
        traces = await self.withheld.find_traces(turns)
        await self.shared.forget(traces.folders, traces.to_json())
        await self.files.erase(traces)
        await self.db.truncate_log()
        if not await self.files.replace_backups(traces.since):
            return
        async with self.db.write() as tx:
            await self.withheld.drop(tx, turns)
        await self.db.truncate_log()
