"""Decisions that tasks wait for, within the transactions that move those tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, func, or_, select, update

from storage.db import Transaction
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import PersonId, Role
from storage.records.tasks import EventKind, TaskId
from storage.schema import approvals, events, identities, people

_OWNERS = select(people.c.id).where(people.c.role == Role.OWNER.value).order_by(people.c.created_at)

_BEGUN = (
    select(func.coalesce(func.max(events.c.id), 0))
    .where(events.c.task_id == bindparam("task"), events.c.kind == EventKind.STARTED.value)
    .scalar_subquery()
)

_AWAITED = select(events.c.text).where(
    events.c.task_id == bindparam("task"),
    events.c.kind == EventKind.WAITING.value,
    events.c.id > _BEGUN,
)

_OPEN = select(approvals).where(
    approvals.c.task_id == bindparam("task"),
    approvals.c.state == ApprovalState.WAITING.value,
)

_NAMES = select(people.c.id, people.c.name).where(people.c.id.in_(bindparam("ids", expanding=True)))

_LET_IN = people.c.id.in_(select(identities.c.person_id))

_BY_ID = select(people.c.id).where(
    _LET_IN,
    or_(
        people.c.id == bindparam("id"),
        people.c.id.in_(
            select(identities.c.person_id).where(
                identities.c.channel == bindparam("channel"),
                identities.c.external_id == bindparam("account"),
            )
        ),
    ),
)

_ALL_NAMES = select(people.c.id, people.c.name).where(_LET_IN)

_CLOSE = (
    update(approvals)
    .where(approvals.c.id == bindparam("which"), approvals.c.state == ApprovalState.WAITING.value)
    .values(state=ApprovalState.EXPIRED.value, decided_at=bindparam("at"), reason=bindparam("why"))
)

_NOTE = update(approvals).where(approvals.c.id == bindparam("which"))


async def owner_ids(view: Transaction) -> tuple[PersonId, ...]:
    return tuple(PersonId(each) for each in await view.scalars(_OWNERS))


async def person_called(view: Transaction, name: str) -> PersonId | None:
    """Who of those let in has that id, that account, as `channel:id`, or, alone, that name in
    whatever case."""
    channel, _, account = (each.strip() for each in name.partition(":"))
    found = await view.scalars(_BY_ID, {"id": name, "channel": channel.lower(), "account": account})
    if exact := list(found):
        return PersonId(exact[0])
    rows = (await view.execute(_ALL_NAMES)).all()
    same = [row.id for row in rows if row.name.strip().casefold() == name.casefold()]
    return PersonId(same[0]) if len(same) == 1 else None


async def awaited_by(view: Transaction, task_id: TaskId) -> frozenset[str]:
    """The ids of the approvals that the task has begun to wait for since it was last taken up."""
    return frozenset(await view.scalars(_AWAITED, {"task": task_id}))


async def asked_at(view: Transaction, task_id: TaskId) -> Mapping[str, tuple[str, ...]]:
    """The paths of a task's steps that wait for a person, with the names of those who may decide;
    none where any owner may."""
    rows = (await view.execute(_OPEN, {"task": task_id})).all()
    paths = {row.path: tuple(row.approvers) for row in rows if row.path}
    ids = {person for approvers in paths.values() for person in approvers}
    if not ids:
        return paths
    found = await view.execute(_NAMES, {"ids": list(ids)})
    names = {row.id: row.name for row in found}
    return {
        path: tuple(names[each] for each in approvers if each in names)
        for path, approvers in paths.items()
    }


async def withdraw(tx: Transaction, approval_id: str, *, why: str, now: datetime) -> bool:
    """Close a request that nobody has to decide any more; nothing follows from it. `why` is a
    catalogue key. False if it does not wait."""
    closed = await tx.execute(_CLOSE, {"which": approval_id, "at": now, "why": why})
    return closed.rowcount == 1


async def withdraw_of_task(
    tx: Transaction,
    task_id: TaskId,
    *,
    why: str,
    now: datetime,
    kinds: Collection[ApprovalKind],
    but: Callable[[str], bool] | None = None,
) -> None:
    """The same for every request of these kinds that waits for a decision on this task alone;
    `but` says at which of its steps, by their paths, requests stay."""
    for row in (await tx.execute(_OPEN, {"task": task_id})).all():
        alone = set(row.payload.get("tasks", ())) <= {task_id}
        stays = but is not None and but(row.path)
        if ApprovalKind(row.kind) in kinds and alone and not stays:
            await withdraw(tx, row.id, why=why, now=now)


async def remark(tx: Transaction, approval: Approval, **facts: Any) -> None:
    """Add to what is known about a request."""
    payload = {**approval.payload, **facts}
    await tx.execute(_NOTE.values(payload=payload), {"which": approval.id})
