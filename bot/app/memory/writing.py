"""What writes memories: people's own hands, and what is said and done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from bot.app.lifecycle import Service
from bot.app.memory.recall import Recalling
from bot.app.store import Store
from bot.config.settings import Settings
from bot.engine.agent.desk import Desk
from bot.engine.agent.masking import Masking
from bot.engine.agent.remembering.hearing import RememberedTalk
from bot.engine.agent.remembering.silent import SilentDesk
from bot.engine.agent.talk import Conversations
from bot.engine.llm.registry import Registry
from bot.engine.memory.changed import Changed
from bot.engine.memory.episodes.retelling import Reteller
from bot.engine.memory.meaning.meanings import Meanings
from bot.engine.memory.uses import Uses
from bot.engine.memory.writing.deciding import Deciding
from bot.engine.memory.writing.drawing.admission import Preset
from bot.engine.memory.writing.drawing.drawer import Drawer
from bot.engine.memory.writing.drawing.keeping import DRAWN, Keeper
from bot.engine.memory.writing.drawing.sense import Sense
from bot.engine.memory.writing.ended import TaskListener
from bot.engine.memory.writing.plainly import Plainly
from bot.engine.memory.writing.quality import Quality
from bot.engine.memory.writing.recorder import Recorder
from bot.engine.memory.writing.service import MemoryWriter
from bot.transports.clock import Clock
from storage.memory.cells import Cells
from storage.memory.ended import EndedTasks
from storage.memory.entries import EntryRepo
from storage.memory.jobs import JobRepo
from storage.memory.living.uses import UseRepo
from storage.memory.samples import VectorSamples
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
    reteller: Reteller | None

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


class Place(Protocol):
    """What is known where workers are at home."""

    @property
    def models(self) -> Registry: ...

    @property
    def masking(self) -> Masking: ...

    @property
    def memory(self) -> Recalling: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """What all parts are made from."""

    settings: Settings
    store: Store
    clock: Clock
    mask: Callable[[str], str]
    changed: Changed
    jobs: JobRepo
    quality: Quality

    def writer(self) -> MemoryWriter:
        return MemoryWriter(
            db=self.store.db,
            entries=self.store.memory.entries,
            cells=self.store.memory.cells,
            deciding=self.store.deciding,
            changed=self.changed,
            mask=self.mask,
            now=self.clock.now,
        )

    def recorder(self) -> Recorder:
        wanted = self.settings.memory
        return Recorder(
            cells=self.store.memory.cells,
            plainly=Plainly(
                self.store.memory.entries, self.store.memory.cells, zone=self.settings.zone
            ),
            jobs=self.jobs if wanted.extract else None,
            changed=self.changed,
            mask=self.mask,
            rest=timedelta(seconds=wanted.extract_after_seconds),
        )

    def listener(self, recorder: Recorder) -> TaskListener:
        store = self.store
        return TaskListener(
            db=store.db,
            ended=EndedTasks(store.db, store.marks),
            task_of=store.work.tasks.get,
            chat_of=store.people.chat,
            person_of=store.people.get,
            recorder=recorder,
            judge=Uses(
                db=store.db,
                entries=self.store.memory.entries,
                repo=UseRepo(store.db),
                now=self.clock.now,
            ).task_ended,
        )

    def sense(self, meanings: Meanings | None) -> Sense | None:
        """What facts mean, where there is a service that tells it."""
        if meanings is None:
            return None
        return Sense(
            embeds=meanings.embedder,
            finds=meanings.vectors,
            samples=VectorSamples(self.store.db),
            kinds=DRAWN,
            now=self.clock.now,
        )

    def silent(self, desk: Desk, models: Registry) -> SilentDesk:
        """Whoever takes notes."""
        named = self.settings.memory.extract_model or self.settings.model_small

        def takes_notes() -> ModelChoice:
            """Whom the settings name, else the one for small things, else the program's own."""
            return (models.pick(named) if named else None) or models.default

        return SilentDesk(desk, takes_notes)

    def reteller(self, model: SilentDesk) -> Reteller | None:
        """Who sums up conversations, where a model is wanted for that."""
        if not self.settings.memory.episodes_by_model:
            return None
        return Reteller(db=self.store.db, model=model, mask=self.mask, now=self.clock.now)

    def drawer(self, model: SilentDesk, meanings: Meanings | None) -> Drawer:
        wanted, memory = self.settings.memory, self.store.memory
        return Drawer(
            db=self.store.db,
            jobs=self.jobs,
            cells=memory.cells,
            keeper=Keeper(
                entries=memory.entries,
                cells=memory.cells,
                index=memory.index,
                quality=self.quality,
            ),
            quality=self.quality,
            model=model,
            changed=self.changed,
            mask=self.mask,
            now=self.clock.now,
            most_an_hour=wanted.extract_per_hour,
            admission=Preset(wanted.admission),
            sense=self.sense(meanings),
            zone=self.settings.zone,
        )


def build_writing(
    settings: Settings, store: Store, clock: Clock, desk: Desk, place: Place
) -> Writing:
    making = _Making(
        settings=settings,
        store=store,
        clock=clock,
        mask=place.masking.mask,
        changed=Changed(),
        jobs=JobRepo(store.db),
        quality=Quality(store.marks),
    )
    recorder, model = making.recorder(), making.silent(desk, place.models)
    return Writing(
        changed=making.changed,
        entries=store.memory.entries,
        cells=store.memory.cells,
        quality=making.quality,
        deciding=store.deciding,
        writer=making.writer(),
        recorder=recorder,
        listener=making.listener(recorder),
        drawer=making.drawer(model, place.memory.meanings),
        reteller=making.reteller(model),
    )
