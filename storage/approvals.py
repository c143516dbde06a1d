"""Decisions people owe: a row first, a card second; the first decision wins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import Row, bindparam, func, select, update

from storage.db import Database, Transaction
from storage.dialect import insert_or_ignore
from storage.errors import AmbiguousId, NotAllowed, NotFound, WrongState
from storage.ids import Ids
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import ChatId, Person, PersonId, Role
from storage.records.tasks import TaskId
from storage.schema import actions, approvals

Consequence: TypeAlias = Callable[[Transaction, Approval], Awaitable[None]]
"""What follows from a decision, in the transaction that takes it."""

ALWAYS = "always"

_CANDIDATES = 5
_LONGEST_ID = 64

_BY_ID = select(approvals).where(approvals.c.id == bindparam("id"))

_ABOUT = (
    select(approvals)
    .where(approvals.c.kind == bindparam("kind"), approvals.c.subject == bindparam("subject"))
    .order_by(approvals.c.created_at.desc())
    .limit(1)
)

_BY_PREFIX = (
    select(approvals)
    .where(approvals.c.id.startswith(bindparam("prefix"), autoescape=False))
    .order_by(approvals.c.created_at.desc())
)

_WAITING = (
    select(approvals)
    .where(
        approvals.c.state == ApprovalState.WAITING.value,
        approvals.c.expires_at > bindparam("now"),
    )
    .order_by(approvals.c.created_at, approvals.c.id)
)

_OVERDUE = select(approvals.c.id).where(
    approvals.c.state == ApprovalState.WAITING.value, approvals.c.expires_at <= bindparam("now")
)

_NEXT_EXPIRY = select(func.min(approvals.c.expires_at)).where(
    approvals.c.state == ApprovalState.WAITING.value
)

_OF_TASK = (
    select(approvals)
    .where(approvals.c.task_id == bindparam("task"))
    .order_by(approvals.c.created_at, approvals.c.id)
)

# Buttons by which a request can be decided, while they still stand on a card.
_SHOWN_OPEN = select(actions.c.action).where(
    actions.c.card_key.startswith("approval:"), ~actions.c.retired
)

_SETTLE = (
    update(approvals)
    .where(approvals.c.id == bindparam("which"), approvals.c.state == ApprovalState.WAITING.value)
    .values(
        state=bindparam("verdict"),
        decided_by=bindparam("who"),
        decided_at=bindparam("at"),
        decided_for=bindparam("source"),
        reason=bindparam("why"),
        payload=bindparam("facts"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApproval:
    """A decision to ask for. See `Approval` for the fields."""

    kind: ApprovalKind
    chat_id: ChatId
    title: str
    expires_at: datetime
    task_id: TaskId | None = None
    path: str = ""
    subject: str = ""
    detail: str = ""
    command_hash: str = ""
    approvers: tuple[PersonId, ...] = ()
    payload: Mapping[str, Any] = field(default_factory=dict)


class Approvals:
    """Shaped as handlers.ports.Approvals, but for NotAllowed where that says Forbidden.

    `consequences` says for each kind what a decision leads to; `now` is the clock.
    """

    def __init__(
        self,
        db: Database,
        *,
        now: Callable[[], datetime],
        consequences: Mapping[ApprovalKind, Consequence],
    ) -> None:
        self._db = db
        self._now = now
        self._consequences = consequences

    async def get(self, approval_id: str) -> Approval:
        async with self._db.read() as view:
            row = (await view.execute(_BY_ID, {"id": approval_id})).one_or_none()
        if row is None:
            raise NotFound("approval", approval_id)
        return _approval(row, self._now())

    async def waiting(self, *, by: Person, chat: ChatId | None) -> Sequence[Approval]:
        now = self._now()
        async with self._db.read() as view:
            rows = (await view.execute(_WAITING, {"now": now})).all()
        found = (_approval(row, now) for row in rows if chat is None or row.chat_id == chat)
        return tuple(each for each in found if each.may_be_decided_by(by))

    async def open_of(self, kind: ApprovalKind) -> Sequence[Approval]:
        """All of a kind that wait, whoever may decide, oldest first."""
        now = self._now()
        async with self._db.read() as view:
            rows = (await view.execute(_WAITING, {"now": now})).all()
        return tuple(_approval(row, now) for row in rows if row.kind == kind.value)

    async def find(self, prefix: str) -> Approval:
        """By id or its beginning. One that waits goes before those that are settled."""
        wanted = prefix.strip().lower()
        if not wanted.isalnum() or len(wanted) > _LONGEST_ID:
            raise NotFound("approval", prefix)
        async with self._db.read() as view:
            rows = (await view.execute(_BY_PREFIX, {"prefix": wanted})).all()
        found = [_approval(row, self._now()) for row in rows]
        exact = [each for each in found if each.id == wanted]
        waiting = [each for each in found if each.state is ApprovalState.WAITING]
        return _only(exact or waiting or found, prefix)

    async def decide(
        self,
        approval: Approval,
        *,
        approve: bool,
        by: Person,
        source: str,
        reason: str = "",
        scope: str = "",
    ) -> Approval:
        """Settle it and do what follows from it, in one transaction.

        The first decision wins: WrongState tells of an earlier one, or that it is too late. The
        same `source` again gets what it decided. NotAllowed if `by` is not an approver; `scope`
        is how far a yes reaches, and what is allowed for always is allowed by an owner.
        """
        async with self._db.write() as tx:
            row = (await tx.execute(_BY_ID, {"id": approval.id})).one_or_none()
            if row is None:
                raise NotFound("approval", approval.id)
            now = self._now()
            current = _approval(row, now)
            if source and row.decided_for == source and row.decided_by == by.id:
                return current
            beyond = scope == ALWAYS and by.role is not Role.OWNER
            if beyond or not current.may_be_decided_by(by):
                raise NotAllowed("approval", current.id)
            if current.state is not ApprovalState.WAITING:
                raise WrongState("approval", current.id, current.state.value)
            settled = replace(
                current,
                state=ApprovalState.APPROVED if approve else ApprovalState.REJECTED,
                decided_by=by.id,
                decided_at=now,
                reason=reason,
                payload={**current.payload, "reach": scope} if scope else current.payload,
            )
            await self._settle(tx, settled, source)
        return settled

    async def of_task(self, task_id: TaskId) -> Sequence[Approval]:
        """All that was ever asked about it, oldest first."""
        now = self._now()
        async with self._db.read() as view:
            rows = (await view.execute(_OF_TASK, {"task": task_id})).all()
        return tuple(_approval(row, now) for row in rows)

    async def next_expiry(self) -> datetime | None:
        """When the first of those that wait will be too late."""
        async with self._db.read() as view:
            due: datetime | None = await view.scalar(_NEXT_EXPIRY)
        return due

    async def expire(self) -> Sequence[Approval]:
        """Settle what nobody decided in time, one after the other; those it settled are
        returned, expired."""
        now = self._now()
        async with self._db.read() as view:
            overdue = (await view.scalars(_OVERDUE, {"now": now})).all()
        settled = [await self._expire(each) for each in overdue]
        return tuple(each for each in settled if each is not None)

    async def outdated(self) -> Sequence[Approval]:
        """Settled ones of which a card still shows the buttons: a crash came between."""
        now = self._now()
        async with self._db.read() as view:
            shown = {
                each.get("approval_id") if each.get("kind") == "decide" else each.get("question_id")
                for each in await view.scalars(_SHOWN_OPEN)
                if each.get("kind") in {"decide", "answer"}
            }
            rows = [
                (await view.execute(_BY_ID, {"id": each})).one_or_none()
                for each in sorted(filter(None, shown))
            ]
        return tuple(
            _approval(row, now)
            for row in rows
            if row is not None and row.state != ApprovalState.WAITING.value
        )

    async def _expire(self, approval_id: str) -> Approval | None:
        async with self._db.write() as tx:
            row = (await tx.execute(_BY_ID, {"id": approval_id})).one()
            now = self._now()
            current = _approval(row, now)
            # Decided, or the clock set back, since we looked.
            if row.state != ApprovalState.WAITING.value or row.expires_at > now:
                return None
            overdue = replace(current, decided_at=now)
            await self._settle(tx, overdue, "")
        return overdue

    async def _settle(self, tx: Transaction, settled: Approval, source: str) -> None:
        verdict = {
            "which": settled.id,
            "verdict": settled.state.value,
            "who": settled.decided_by,
            "at": settled.decided_at,
            "source": source,
            "why": settled.reason,
            "facts": dict(settled.payload),
        }
        await tx.execute(_SETTLE, verdict)
        consequence = self._consequences.get(settled.kind)
        if consequence is not None:
            await consequence(tx, settled)


async def add_approval(tx: Transaction, new: NewApproval, *, ids: Ids, now: datetime) -> Approval:
    """Ask for a decision within a larger transaction."""
    while True:
        approval = Approval(
            id=ids.task(),
            kind=new.kind,
            task_id=new.task_id,
            path=new.path,
            subject=new.subject,
            chat_id=new.chat_id,
            title=new.title,
            detail=new.detail,
            command_hash=new.command_hash,
            approvers=new.approvers,
            state=ApprovalState.WAITING,
            decided_by=None,
            decided_at=None,
            reason="",
            created_at=now,
            expires_at=new.expires_at,
            payload=new.payload,
        )
        added = await tx.execute(
            insert_or_ignore(tx.dialect.name, approvals).values(_values(approval))
        )
        # Ids are short enough for people, so two may meet.
        if added.rowcount:
            return approval


async def approval_by_id(view: Transaction, approval_id: str, *, now: datetime) -> Approval | None:
    row = (await view.execute(_BY_ID, {"id": approval_id})).one_or_none()
    return None if row is None else _approval(row, now)


async def approval_of_step(
    view: Transaction, kind: ApprovalKind, task_id: TaskId, path: str, *, now: datetime
) -> Approval | None:
    """The newest of this kind on this step of the task."""
    query = (
        select(approvals)
        .where(
            approvals.c.task_id == task_id,
            approvals.c.kind == kind.value,
            approvals.c.path == path,
        )
        .order_by(approvals.c.created_at.desc(), approvals.c.id)
        .limit(1)
    )
    row = (await view.execute(query)).one_or_none()
    return None if row is None else _approval(row, now)


async def approval_about(
    view: Transaction, kind: ApprovalKind, subject: str, *, now: datetime
) -> Approval:
    """The newest of this kind on this subject."""
    facts = {"kind": kind.value, "subject": subject}
    row = (await view.execute(_ABOUT, facts)).one_or_none()
    if row is None:
        raise NotFound("approval", subject)
    return _approval(row, now)


def _only(found: Sequence[Approval], prefix: str) -> Approval:
    if not found:
        raise NotFound("approval", prefix)
    if len(found) > 1:
        raise AmbiguousId(prefix, tuple(each.id for each in found[:_CANDIDATES]))
    return found[0]


def _values(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.id,
        "kind": approval.kind.value,
        "task_id": approval.task_id,
        "path": approval.path,
        "subject": approval.subject,
        "chat_id": approval.chat_id,
        "title": approval.title,
        "detail": approval.detail,
        "command_hash": approval.command_hash,
        "approvers": list(approval.approvers),
        "state": approval.state.value,
        "created_at": approval.created_at,
        "expires_at": approval.expires_at,
        "payload": dict(approval.payload),
    }


def _approval(row: Row[Any], now: datetime) -> Approval:
    state = ApprovalState(row.state)
    if state is ApprovalState.WAITING and row.expires_at <= now:
        state = ApprovalState.EXPIRED
    return Approval(
        id=row.id,
        kind=ApprovalKind(row.kind),
        task_id=TaskId(row.task_id) if row.task_id else None,
        path=row.path,
        subject=row.subject,
        chat_id=ChatId(row.chat_id),
        title=row.title,
        detail=row.detail,
        command_hash=row.command_hash,
        approvers=tuple(PersonId(each) for each in row.approvers),
        state=state,
        decided_by=PersonId(row.decided_by) if row.decided_by else None,
        decided_at=row.decided_at,
        reason=row.reason,
        created_at=row.created_at,
        expires_at=row.expires_at,
        payload=row.payload,
    )
