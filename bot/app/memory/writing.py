"""What writes memories: people's own hands, and what is said and done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from bot.app.lifecycle import Service
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.desk import Desk
from bot.engine.agent.remembering.hearing import RememberedTalk
from bot.engine.agent.remembering.silent import SilentDesk
from bot.engine.agent.talk import Conversations
from bot.engine.llm.registry import Registry
from bot.engine.memory.changed import Changed
from bot.engine.memory.writing.deciding import Deciding
from bot.engine.memory.writing.drawing.admission import Preset
from bot.engine.memory.writing.drawing.drawer import Drawer
from bot.engine.memory.writing.drawing.keeping import Keeper
from bot.engine.memory.writing.ended import TaskListener
from bot.engine.memory.writing.plainly import Plainly
from bot.engine.memory.writing.quality import Quality
from bot.engine.memory.writing.recorder import Recorder
from bot.engine.memory.writing.service import MemoryWriter
from bot.transports.clock import Clock
from storage.memory.cells import Cells
from storage.memory.ended import EndedTasks
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.memory.jobs import JobRepo
from storage.records.status import ModelChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """`changed` tells of everything that is written."""

    changed: Changed
    entries: EntryRepo
    cells: Cells
    writer: MemoryWriter
    recorder: Recorder
    quality: Quality
    listener: TaskListener
    drawer: Drawer
    deciding: Deciding

    @property
    def services(self) -> Sequence[Service]:
        """What writes by itself while the program runs."""
        return self.listener, self.drawer

    def tell_decided(self) -> None:
        """To be called once a decision is through."""
        scopes = set(self.deciding.decided)
        self.deciding.decided.clear()
        self.changed.tell(*scopes)

    def heard(self, talk: Conversations, store: Store, clock: Clock) -> RememberedTalk:
        """Talk that leaves its cells."""
        return RememberedTalk(talk, db=store.db, recorder=self.recorder, now=clock.now)


def build_writing(
    settings: Settings,
    store: Store,
    clock: Clock,
    desk: Desk,
    models: Registry,
    *,
    mask: Callable[[str], str],
) -> Writing:
    changed, index = Changed(), Index(store.db)
    wanted = settings.memory
    entries = EntryRepo(store.db, store.ids, index, zone=settings.zone)
    cells, jobs = Cells(store.db, entries), JobRepo(store.db)
    quality = Quality(store.marks)
    recorder = Recorder(
        cells=cells,
        plainly=Plainly(entries, cells),
        jobs=jobs if wanted.extract else None,
        changed=changed,
        mask=mask,
        rest=timedelta(seconds=wanted.extract_after_seconds),
    )

    def takes_notes() -> ModelChoice:
        """Whom the settings name, else the one for small things, else the program's own."""
        return (
            models.pick(wanted.extract_model) or models.pick(settings.model_small) or models.default
        )

    return Writing(
        changed=changed,
        entries=entries,
        cells=cells,
        quality=quality,
        deciding=store.deciding,
        writer=MemoryWriter(
            db=store.db,
            entries=entries,
            cells=cells,
            deciding=store.deciding,
            changed=changed,
            mask=mask,
            now=clock.now,
        ),
        recorder=recorder,
        listener=TaskListener(
            db=store.db,
            ended=EndedTasks(store.db, store.marks),
            task_of=store.work.tasks.get,
            chat_of=store.people.chat,
            person_of=store.people.get,
            recorder=recorder,
            now=clock.now,
        ),
        drawer=Drawer(
            db=store.db,
            jobs=jobs,
            cells=cells,
            keeper=Keeper(entries=entries, cells=cells, index=index, quality=quality),
            quality=quality,
            model=SilentDesk(desk, takes_notes),
            changed=changed,
            mask=mask,
            now=clock.now,
            most_an_hour=wanted.extract_per_hour,
            admission=Preset(wanted.admission),
        ),
    )
