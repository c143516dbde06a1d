"""Memory that is written, on a real store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from bot.engine.agent.remembering.hearing import RememberedTalk
from bot.engine.agent.talk import Conversations
from bot.engine.agent.workbench import Workbench
from bot.engine.llm.base import BackendError
from bot.engine.memory.changed import Changed
from bot.engine.memory.scopes import Reader
from bot.engine.memory.writing.deciding import Deciding
from bot.engine.memory.writing.drawing.admission import Preset
from bot.engine.memory.writing.drawing.drawer import Drawer
from bot.engine.memory.writing.drawing.extraction import DrawnFact, Extraction, Register
from bot.engine.memory.writing.drawing.keeping import DRAWN, Keeper
from bot.engine.memory.writing.drawing.sense import Embeds, Sense
from bot.engine.memory.writing.drawing.silent import Told, Wish
from bot.engine.memory.writing.plainly import Plainly
from bot.engine.memory.writing.quality import Quality
from bot.engine.memory.writing.recorder import Recorder, Turn
from bot.engine.memory.writing.rights import By
from bot.engine.memory.writing.service import MemoryWriter
from handlers.ports import Question
from storage import schema
from storage.db import Transaction
from storage.dialect import insert_or_ignore
from storage.ids import Ids
from storage.marks import Marks
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.memory.jobs import JobRepo
from storage.memory.living.vectors import Vectors
from storage.memory.samples import VectorSamples
from storage.memory.words import terms
from storage.records.memory.entries import Entry, EntryState, MemoryKind, Scope, ScopeKind
from storage.records.people import Chat, ChatId, Language, Person
from storage.sessions import SessionRepo
from tests.engine_world import (
    BOSS,
    CHAT,
    GROUP,
    MATE,
    START,
    Engine,
    FakeBackend,
    engine,
    no_wait,
)

MATES_CHAT = replace(CHAT, id=ChatId("c2"), external_id="mate", person_id=MATE.id)
MINE = Scope(ScopeKind.PERSON, BOSS.id)
MATES = Scope(ScopeKind.PERSON, MATE.id)
TEAM = Scope(ScopeKind.CHAT, GROUP.id)
ALL_KINDS = tuple(MemoryKind)

BY_BOSS = By(person=BOSS, reader=Reader(chat=CHAT, person=BOSS.id))
BY_MATE = By(person=MATE, reader=Reader(chat=MATES_CHAT, person=MATE.id))
BOSS_IN_TEAM = By(person=BOSS, reader=Reader(chat=GROUP, person=BOSS.id))
MATE_IN_TEAM = By(person=MATE, reader=Reader(chat=GROUP, person=MATE.id))


def mask(text: str) -> str:
    return text.replace("hunter2", "••••")


Answer = BaseModel | BackendError | None


@dataclass
class Notes:
    """A model that takes notes: it gives its `answers` in their order, then nothing worth
    keeping. `asked` is what it was told."""

    answers: list[Answer | Callable[[Wish], Answer]] = field(default_factory=list)
    asked: list[Wish] = field(default_factory=list)
    booked: int = 0
    there: bool = True

    async def ready(self) -> bool:
        return self.there

    async def ask(self, wish: Wish) -> Told:
        self.asked.append(wish)
        answer = self.answers.pop(0) if self.answers else wish.form()
        if callable(answer) and not isinstance(answer, BaseModel):
            answer = answer(wish)
        if isinstance(answer, BackendError):
            raise answer

        async def book(_tx: Transaction) -> None:
            self.booked += 1

        return Told(value=answer, book=book)


def drawn(text: str, **changes: Any) -> DrawnFact:
    facts = {"category": "preferences", "confidence": 0.9, "turns": [1], **changes}
    return DrawnFact.model_validate({"text": text, **facts})


def notes_of(*facts: DrawnFact, register: str = "real") -> Extraction:
    return Extraction(conversation_register=Register(register), memories=list(facts))


@dataclass
class Memory:
    """`world` is the engine below it."""

    world: Engine
    changed: Changed
    index: Index
    entries: EntryRepo
    cells: Cells
    writer: MemoryWriter
    deciding: Deciding
    recorder: Recorder
    jobs: JobRepo
    quality: Quality
    keeper: Keeper
    notes: Notes
    drawer: Drawer
    vectors: Vectors

    async def draw(self) -> float:
        """Do all that is due; seconds until there may be more."""
        while (rest := await self.drawer.turn()) == 0:
            pass
        return rest

    async def all(
        self, *kinds: MemoryKind, states: tuple[EntryState, ...] = (EntryState.ACTIVE,)
    ) -> list[Entry]:
        """Of everybody, the oldest first."""
        found = await self.entries.list(None, kinds=kinds or ALL_KINDS, states=states)
        return sorted(found, key=lambda each: each.number)

    async def texts(self, *kinds: MemoryKind) -> list[str]:
        return [each.text for each in await self.all(*kinds)]

    async def found(self, query: str, *scopes: Scope) -> list[str]:
        words = dict.fromkeys(terms(query), 1.0)
        hits = await self.index.search(scopes or (MINE,), words, 10)
        found = await self.entries.numbered([hit.number for hit in hits], None)
        return [each.text for each in found]

    async def say(
        self,
        said: str,
        answer: str = "",
        *,
        source: str = "",
        person: Person = BOSS,
        chat: Chat = CHAT,
    ) -> Entry | None:
        turn = Turn(
            person=person,
            chat=chat,
            said=said,
            answer=answer,
            source=source or f"inbox:{said}",
            at=self.world.clock(),
        )
        async with self.world.db.write() as tx:
            return await self.recorder.said(tx, turn)

    def talk(self, home: Path) -> RememberedTalk:
        world = self.world
        talk = Conversations(
            db=world.db,
            sessions=SessionRepo(world.db),
            desk=world.desk,
            home=home,
            bench=Workbench(),
            now=world.clock,
            sleep=no_wait,
        )
        return RememberedTalk(talk, db=world.db, recorder=self.recorder, now=world.clock)


@asynccontextmanager
async def remembering(
    home: Path,
    backend: FakeBackend | None = None,
    notes: Notes | None = None,
    *,
    admission: Preset = Preset.OFF,
    embeds: Embeds | None = None,
    zone: tzinfo = UTC,
) -> AsyncGenerator[Memory, None]:
    """`embeds` tells what texts mean; in `zone` days begin and end."""
    async with engine(home, backend, running=False) as world:
        await _settle_in(world)
        index, changed = Index(world.db), Changed()
        entries = EntryRepo(world.db, Ids(), index)
        cells, jobs = Cells(world.db, entries), JobRepo(world.db)
        quality, notes = Quality(Marks(world.db)), notes or Notes()
        deciding = Deciding(entries=entries, cells=cells, quality=quality, now=world.clock)
        keeper = Keeper(entries=entries, cells=cells, index=index, quality=quality)
        vectors = Vectors(world.db)
        sense = None
        if embeds is not None:
            sense = Sense(
                embeds=embeds,
                finds=vectors,
                samples=VectorSamples(world.db),
                kinds=DRAWN,
                now=world.clock,
            )
        yield Memory(
            world=world,
            changed=changed,
            index=index,
            entries=entries,
            cells=cells,
            writer=MemoryWriter(
                db=world.db,
                entries=entries,
                cells=cells,
                deciding=deciding,
                changed=changed,
                mask=mask,
                now=world.clock,
            ),
            deciding=deciding,
            recorder=Recorder(
                cells=cells,
                plainly=Plainly(entries, cells, zone=zone),
                jobs=jobs,
                changed=changed,
                mask=mask,
            ),
            jobs=jobs,
            quality=quality,
            keeper=keeper,
            notes=notes,
            drawer=Drawer(
                db=world.db,
                jobs=jobs,
                cells=cells,
                keeper=keeper,
                quality=quality,
                model=notes,
                changed=changed,
                mask=mask,
                now=world.clock,
                admission=admission,
                sense=sense,
                zone=zone,
            ),
            vectors=vectors,
        )


async def _settle_in(world: Engine) -> None:
    """The mate has a chat of their own as well."""
    chat = {
        "id": MATES_CHAT.id,
        "channel": MATES_CHAT.channel,
        "external_id": MATES_CHAT.external_id,
        "thread": "",
        "kind": MATES_CHAT.kind,
        "title": "",
        "settings": {},
        "person_id": MATE.id,
        "created_at": START,
    }
    async with world.db.write() as tx:
        await tx.execute(insert_or_ignore(world.db.dialect, schema.chats).values(chat))


def question(text: str, source: str = "inbox:1", **changes: Any) -> Question:
    facts: dict[str, Any] = {"person": BOSS, "chat": CHAT, **changes}
    return Question(text=text, language=Language.ENGLISH, source=source, **facts)


async def unseen(_text: str) -> None:
    """Nobody looks while it is written."""
