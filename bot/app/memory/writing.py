"""What writes memories: people's own hands, and what is said and done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bot.app.store import Store
from bot.engine.agent.remembering.hearing import RememberedTalk
from bot.engine.agent.talk import Conversations
from bot.engine.memory.changed import Changed
from bot.engine.memory.writing.plainly import Plainly
from bot.engine.memory.writing.recorder import Recorder
from bot.engine.memory.writing.service import MemoryWriter
from bot.transports.clock import Clock
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.index import Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """`changed` tells of everything that is written."""

    changed: Changed
    entries: EntryRepo
    cells: Cells
    writer: MemoryWriter
    recorder: Recorder

    def heard(self, talk: Conversations, store: Store, clock: Clock) -> RememberedTalk:
        """Talk that leaves its cells."""
        return RememberedTalk(talk, db=store.db, recorder=self.recorder, now=clock.now)


def build_writing(store: Store, clock: Clock, *, mask: Callable[[str], str]) -> Writing:
    changed = Changed()
    entries = EntryRepo(store.db, store.ids, Index(store.db))
    cells = Cells(store.db, entries)
    return Writing(
        changed=changed,
        entries=entries,
        cells=cells,
        writer=MemoryWriter(
            db=store.db, entries=entries, cells=cells, changed=changed, mask=mask, now=clock.now
        ),
        recorder=Recorder(cells=cells, plainly=Plainly(entries, cells), changed=changed, mask=mask),
    )
