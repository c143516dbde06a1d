"""Every repository, on one database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo

from bot.app.services import LanguageOfTask
from bot.engine.agent.budget import grant
from bot.engine.agent.leave.asking import Asker
from bot.engine.agent.leave.decided import Decided
from bot.engine.dispatch.decisions import Decisions
from bot.engine.memory.writing.deciding import Deciding
from bot.engine.memory.writing.quality import Quality
from bot.engine.workflow.store import WorkStore
from bot.transports.clock import Clock
from handlers.language import guessed
from storage.agents.calls import CallRepo
from storage.agents.grants import GrantRepo
from storage.approvals import Approvals, Consequence
from storage.db import Database
from storage.ids import Ids
from storage.mail.actions import Actions
from storage.mail.chats import Chats
from storage.mail.inbox import Inbox
from storage.mail.outbox import Outbox
from storage.marks import Marks
from storage.memory.cells import Cells
from storage.memory.entries import EntryRepo
from storage.memory.index import Index
from storage.pairings import Pairings
from storage.people import People
from storage.records.approvals import ApprovalKind
from storage.records.people import Language, PersonId
from storage.sessions import SessionRepo
from storage.usage import UsageRepo


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRepos:
    """What is remembered, the words by which it is found, and turns of talk as cells."""

    index: Index
    entries: EntryRepo
    cells: Cells

    @classmethod
    def on(cls, db: Database, ids: Ids, zone: tzinfo) -> MemoryRepos:
        index = Index(db)
        entries = EntryRepo(db, ids, index, zone=zone)
        return cls(index=index, entries=entries, cells=Cells(db, entries))


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    db: Database
    ids: Ids
    chats: Chats
    people: People
    marks: Marks
    pairings: Pairings
    approvals: Approvals
    inbox: Inbox
    outbox: Outbox
    actions: Actions
    usage: UsageRepo
    sessions: SessionRepo
    work: WorkStore
    calls: CallRepo
    grants: GrantRepo
    asker: Asker
    memory: MemoryRepos
    deciding: Deciding


def build_store(
    db: Database,
    clock: Clock,
    language: Language | None = None,
    lifetime: timedelta = timedelta(days=7),
    *,
    zone: tzinfo = UTC,
) -> Store:
    """`language` is the one all cards are written in, None for that of whoever reads them;
    `lifetime` is how long workers' requests stay open; in `zone` days begin and end."""
    ids = Ids()
    chats = Chats(db, ids)
    people = People(db, ids, chats)
    marks = Marks(db)
    pairings = Pairings(db, ids, people=people, chats=chats, marks=marks, now=clock.now)
    work = WorkStore.on(db)
    language_of = LanguageOfTask(people, guessed, language)
    calls, grants = CallRepo(db), GrantRepo(db)
    asker = Asker(calls=calls, lifetime=lifetime, ids=ids, now=clock.now)
    decided = Decided(calls=calls, grants=grants, asker=asker, now=clock.now)
    memory = MemoryRepos.on(db, ids, zone)
    deciding = Deciding(
        entries=memory.entries, cells=memory.cells, quality=Quality(marks), now=clock.now
    )
    return Store(
        db=db,
        ids=ids,
        chats=chats,
        people=people,
        marks=marks,
        pairings=pairings,
        approvals=Approvals(
            db,
            now=clock.now,
            consequences={
                ApprovalKind.PAIRING: pairings.settle,
                ApprovalKind.MEMORY: deciding.settle,
                **_for_tasks(work, people, language_of, clock, decided),
            },
        ),
        inbox=Inbox(db),
        outbox=Outbox(db),
        actions=Actions(db, ids),
        usage=UsageRepo(db),
        sessions=SessionRepo(db),
        work=work,
        calls=calls,
        grants=grants,
        asker=asker,
        memory=memory,
        deciding=deciding,
    )


def _for_tasks(
    work: WorkStore,
    people: People,
    language_of: LanguageOfTask,
    clock: Clock,
    decided: Decided,
) -> Mapping[ApprovalKind, Consequence]:
    async def name_of(person: PersonId) -> str:
        return (await people.get(person)).name

    decisions = Decisions(
        store=work,
        language_of=language_of,
        name_of=name_of,
        now=clock.now,
        grant=grant,
        decided=decided,
    )
    return decisions.consequences
