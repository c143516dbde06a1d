"""Every repository, on one database."""

from __future__ import annotations

from dataclasses import dataclass

from bot.engine.workflow.store import WorkStore
from bot.transports.clock import Clock
from storage.approvals import Approvals
from storage.db import Database
from storage.ids import Ids
from storage.mail.actions import Actions
from storage.mail.chats import Chats
from storage.mail.inbox import Inbox
from storage.mail.outbox import Outbox
from storage.marks import Marks
from storage.pairings import Pairings
from storage.people import People
from storage.records.approvals import ApprovalKind
from storage.sessions import SessionRepo
from storage.usage import UsageRepo
from storage.work.graphs import GraphRepo
from storage.work.journal import Journal
from storage.work.logs import LogRepo
from storage.work.queue import TaskQueue
from storage.work.tasks import TaskRepo


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


def build_store(db: Database, clock: Clock) -> Store:
    ids = Ids()
    chats = Chats(db, ids)
    people = People(db, ids, chats)
    marks = Marks(db)
    pairings = Pairings(db, ids, people=people, chats=chats, marks=marks, now=clock.now)
    return Store(
        db=db,
        ids=ids,
        chats=chats,
        people=people,
        marks=marks,
        pairings=pairings,
        approvals=Approvals(
            db, now=clock.now, consequences={ApprovalKind.PAIRING: pairings.settle}
        ),
        inbox=Inbox(db),
        outbox=Outbox(db),
        actions=Actions(db, ids),
        usage=UsageRepo(db),
        sessions=SessionRepo(db),
        work=WorkStore(
            db=db,
            tasks=TaskRepo(db),
            queue=TaskQueue(db),
            graphs=GraphRepo(db),
            journal=Journal(db),
            logs=LogRepo(db),
        ),
    )
