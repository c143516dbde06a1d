"""Stores approval requests; the first decision on a request wins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import Row, bindparam, func, select, update

from storage.db import Database, Transaction, record_from, row_from
from storage.dialect import insert_or_ignore
from storage.errors import NotAllowed, NotFound, WrongState
from storage.ids import IdGenerator, parse_id_prefix, single_match
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import ChatId, Person, PersonId, PersonRole
from storage.records.tasks import EventKind, TaskId
from storage.schema import actions, approvals, events, people

DecisionHandler: TypeAlias = Callable[[Transaction, Approval], Awaitable[None]]
"""Applies a decision's effects within the transaction that records it."""

ALWAYS_SCOPE = "always"

_MAX_SEARCHED = 1000
"""Settled requests among which those of one person are found."""

_WAITING = approvals.c.state == ApprovalState.WAITING

_BY_ID = select(approvals).where(approvals.c.id == bindparam("id"))

_NEWEST_BY_SUBJECT = (
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

_ALL_WAITING = (
    select(approvals)
    .where(_WAITING, approvals.c.expires_at > bindparam("now"))
    .order_by(approvals.c.created_at, approvals.c.id)
)

_SETTLED = (
    select(approvals)
    .where(~_WAITING | (approvals.c.expires_at <= bindparam("now")))
    .order_by(func.coalesce(approvals.c.decided_at, approvals.c.expires_at).desc(), approvals.c.id)
)

_OVERDUE = select(approvals.c.id).where(_WAITING, approvals.c.expires_at <= bindparam("now"))

_NEXT_EXPIRY = select(func.min(approvals.c.expires_at)).where(_WAITING)

_BY_TASK = (
    select(approvals)
    .where(approvals.c.task_id == bindparam("task"))
    .order_by(approvals.c.created_at, approvals.c.id)
)

# Actions of live buttons and forms that decide a request.
_VISIBLE_BUTTON_ACTIONS = select(actions.c.action).where(
    actions.c.card_key.startswith("approval:"), ~actions.c.retired
)

_UPDATE = update(approvals).where(approvals.c.id == bindparam("which"))

_SETTLE = _UPDATE.where(_WAITING).values(
    state=bindparam("verdict"),
    decided_by=bindparam("who"),
    decided_at=bindparam("at"),
    decided_for=bindparam("source"),
    reason=bindparam("why"),
    payload=bindparam("facts"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApproval:
    """An approval request to create. `Approval` describes the fields."""

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


@dataclass(eq=False)
class ApprovalRepo:
    """Implements handlers.ports.ApprovalPort, but raises NotAllowed where the port says Forbidden.

    `decision_handlers` maps each kind to the handler of its decisions; `now` is the clock.
    """

    db: Database
    now: Callable[[], datetime]
    decision_handlers: Mapping[ApprovalKind, DecisionHandler]

    async def get(self, approval_id: str) -> Approval:
        async with self.db.read_once() as view:
            return _approval(await _row(view, approval_id), self.now())

    async def list_waiting(self, *, by: Person, chat: ChatId | None) -> Sequence[Approval]:
        waiting = await self._list_waiting()
        here = (each for each in waiting if chat is None or each.chat_id == chat)
        return tuple(each for each in here if each.can_be_decided_by(by))

    async def list_settled(self, *, by: Person, limit: int) -> Sequence[Approval]:
        now, sees_all = self.now(), by.role is PersonRole.OWNER
        query = _SETTLED.limit(limit if sees_all else _MAX_SEARCHED)
        found = [_approval(row, now) for row in await self.db.fetch_all(query, {"now": now})]
        return [each for each in found if sees_all or each.can_be_decided_by(by)][:limit]

    async def list_waiting_of_kind(
        self, kind: ApprovalKind, *, tx: Transaction | None = None
    ) -> Sequence[Approval]:
        """All waiting requests of a kind, whoever may decide them, oldest first."""
        return tuple(each for each in await self._list_waiting(tx) if each.kind is kind)

    async def _list_waiting(self, tx: Transaction | None = None) -> Sequence[Approval]:
        now = self.now()
        rows = await self.db.fetch_all(_ALL_WAITING, {"now": now}, tx=tx)
        return [_approval(row, now) for row in rows]

    async def find(self, prefix: str) -> Approval:
        """Find a request by its id or a prefix of it. Waiting requests win over settled ones."""
        wanted = parse_id_prefix("approval", prefix)
        rows = await self.db.fetch_all(_BY_PREFIX, {"prefix": wanted})
        found = [_approval(row, self.now()) for row in rows]
        exact = [each for each in found if each.id == wanted]
        waiting = [each for each in found if each.state is ApprovalState.WAITING]
        return single_match(exact or waiting or found, wanted, "approval", prefix)

    async def decide(
        self,
        approval: Approval,
        *,
        approve: bool,
        by: Person,
        source: str,
        reason: str = "",
        scope: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> Approval:
        """Record a decision, with the `values` of a form, and apply its effects in one
        transaction.

        The first decision wins: WrongState if the request was already decided or has expired. The
        same `source` gets its earlier result again. NotAllowed if `by` is not an approver, or if
        `scope` is permanent and `by` is not an owner. `scope` says how far an approval reaches.
        """
        async with self.db.write() as tx:
            row = await _row(tx, approval.id)
            now = self.now()
            current = _approval(row, now)
            if source and row.decided_for == source and row.decided_by == by.id:
                return current
            beyond = scope == ALWAYS_SCOPE and by.role is not PersonRole.OWNER
            if beyond or not current.can_be_decided_by(by):
                raise NotAllowed("approval", current.id)
            if current.state is not ApprovalState.WAITING:
                raise WrongState("approval", current.id, current.state.value)
            settled = replace(
                current,
                state=ApprovalState.APPROVED if approve else ApprovalState.REJECTED,
                decided_by=by.id,
                decided_at=now,
                reason=reason,
                payload={
                    **current.payload,
                    **({"reach": scope} if scope else {}),
                    **({} if values is None else {"values": dict(values)}),
                },
            )
            await self._settle(tx, settled, source)
        return settled

    async def list_by_task(self, task_id: TaskId) -> Sequence[Approval]:
        """All requests ever made about a task, oldest first."""
        rows = await self.db.fetch_all(_BY_TASK, {"task": task_id})
        return tuple(_approval(row, self.now()) for row in rows)

    async def next_expiry(self) -> datetime | None:
        """The earliest expiry among waiting requests."""
        due: datetime | None = await self.db.fetch_value(_NEXT_EXPIRY)
        return due

    async def expire_overdue(self) -> Sequence[Approval]:
        """Expire overdue requests one by one and return those this call expired."""
        overdue = await self.db.fetch_all(_OVERDUE, {"now": self.now()})
        settled = [await self._expire_one(row.id) for row in overdue]
        return tuple(each for each in settled if each is not None)

    async def list_with_stale_buttons(self) -> Sequence[Approval]:
        """Settled requests whose cards still show buttons, as after a crash."""
        now = self.now()
        async with self.db.read() as view:
            shown = {
                each.get("approval_id") if each.get("kind") == "decide" else each.get("question_id")
                for each in await view.scalars(_VISIBLE_BUTTON_ACTIONS)
                if each.get("kind") in {"decide", "answer"}
            } - {None}
            query = select(approvals).where(approvals.c.id.in_(shown), ~_WAITING)
            rows = (await view.execute(query.order_by(approvals.c.id))).all()
        return tuple(_approval(row, now) for row in rows)

    async def _expire_one(self, approval_id: str) -> Approval | None:
        async with self.db.write() as tx:
            row = await _row(tx, approval_id)
            now = self.now()
            current = _approval(row, now)
            # Decided meanwhile, or the clock was set back.
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
        consequence = self.decision_handlers.get(settled.kind)
        if consequence is not None:
            await consequence(tx, settled)


async def add_approval(
    tx: Transaction, new: NewApproval, *, ids: IdGenerator, now: datetime
) -> Approval:
    """Create a request within a larger transaction."""
    while True:
        approval = Approval(
            **row_from(new),
            id=ids.short_id(),
            state=ApprovalState.WAITING,
            decided_by=None,
            decided_at=None,
            reason="",
            created_at=now,
        )
        added = await tx.execute(
            insert_or_ignore(tx.dialect.name, approvals).values(row_from(approval))
        )
        # Ids are short for people to type, so two may collide.
        if added.rowcount:
            return approval


async def _row(view: Transaction, approval_id: str) -> Row[Any]:
    row = (await view.execute(_BY_ID, {"id": approval_id})).one_or_none()
    if row is None:
        raise NotFound("approval", approval_id)
    return row


async def find_approval(view: Transaction, approval_id: str, *, now: datetime) -> Approval | None:
    row = (await view.execute(_BY_ID, {"id": approval_id})).one_or_none()
    return None if row is None else _approval(row, now)


async def newest_approval_of_step(
    view: Transaction, kind: ApprovalKind, task_id: TaskId, path: str, *, now: datetime
) -> Approval | None:
    """The newest request of this kind for this step of the task."""
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


async def newest_approval_of_subject(
    view: Transaction, kind: ApprovalKind, subject: str, *, now: datetime
) -> Approval:
    """The newest request of this kind on this subject."""
    facts = {"kind": kind.value, "subject": subject}
    row = (await view.execute(_NEWEST_BY_SUBJECT, facts)).one_or_none()
    if row is None:
        raise NotFound("approval", subject)
    return _approval(row, now)


def _approval(row: Row[Any], now: datetime) -> Approval:
    state = ApprovalState(row.state)
    if state is ApprovalState.WAITING and row.expires_at <= now:
        state = ApprovalState.EXPIRED
    return record_from(Approval, row, state=state)


_LAST_START = (
    select(func.coalesce(func.max(events.c.id), 0))
    .where(events.c.task_id == bindparam("task"), events.c.kind == EventKind.STARTED.value)
    .scalar_subquery()
)

_AWAITED_APPROVALS = select(events.c.text).where(
    events.c.task_id == bindparam("task"),
    events.c.kind == EventKind.WAITING.value,
    events.c.id > _LAST_START,
)

_WAITING_OF_TASK = select(approvals).where(approvals.c.task_id == bindparam("task"), _WAITING)

_PERSON_NAMES = select(people.c.id, people.c.name).where(
    people.c.id.in_(bindparam("ids", expanding=True))
)


_WITHDRAW = _UPDATE.where(_WAITING).values(
    state=ApprovalState.EXPIRED.value, decided_at=bindparam("at"), reason=bindparam("why")
)


async def awaited_approval_ids(view: Transaction, task_id: TaskId) -> frozenset[str]:
    """Ids of the approvals the task has waited for since it last started running."""
    return frozenset(await view.scalars(_AWAITED_APPROVALS, {"task": task_id}))


async def steps_awaiting_approval(
    view: Transaction, task_id: TaskId
) -> Mapping[str, tuple[str, ...]]:
    """Approver names by the path of each step that awaits approval; empty if any owner may
    decide."""
    rows = (await view.execute(_WAITING_OF_TASK, {"task": task_id})).all()
    paths = {row.path: tuple(row.approvers) for row in rows if row.path}
    ids = {person for approvers in paths.values() for person in approvers}
    if not ids:
        return paths
    found = await view.execute(_PERSON_NAMES, {"ids": list(ids)})
    names = {row.id: row.name for row in found}
    return {
        path: tuple(names[each] for each in approvers if each in names)
        for path, approvers in paths.items()
    }


async def withdraw_approval(
    tx: Transaction, approval_id: str, *, reason_key: str, now: datetime
) -> bool:
    """Close a waiting request without effects. `reason_key` is a catalogue key. Returns False if
    the request is not waiting."""
    closed = await tx.execute(_WITHDRAW, {"which": approval_id, "at": now, "why": reason_key})
    return closed.rowcount == 1


async def withdraw_task_approvals(
    tx: Transaction,
    task_id: TaskId,
    *,
    reason_key: str,
    now: datetime,
    kinds: Collection[ApprovalKind],
    keeps_step: Callable[[str], bool] | None = None,
) -> None:
    """Withdraw waiting requests of these kinds that concern this task alone, except those of steps
    where `keeps_step(path)` is true."""
    for row in (await tx.execute(_WAITING_OF_TASK, {"task": task_id})).all():
        alone = set(row.payload.get("tasks", ())) <= {task_id}
        stays = keeps_step is not None and keeps_step(row.path)
        if ApprovalKind(row.kind) in kinds and alone and not stays:
            await withdraw_approval(tx, row.id, reason_key=reason_key, now=now)


async def extend_approval_payload(tx: Transaction, approval: Approval, **facts: Any) -> None:
    """Add facts to a request's payload."""
    payload = {**approval.payload, **facts}
    await tx.execute(_UPDATE.values(payload=payload), {"which": approval.id})


async def outdate_step_decisions(
    tx: Transaction, task_id: TaskId, paths: Collection[str], *, fact: str
) -> None:
    """Add this fact to the payload of the task's decisions about these steps."""
    for row in (await tx.execute(_BY_TASK, {"task": task_id})).all():
        if row.path in paths:
            payload = {**row.payload, fact: True}
            await tx.execute(_UPDATE.values(payload=payload), {"which": row.id})


async def find_waiting_budget_request(
    tx: Transaction, subject: str, *, now: datetime
) -> Approval | None:
    """The cap's waiting request, if any."""
    try:
        newest = await newest_approval_of_subject(tx, ApprovalKind.BUDGET, subject, now=now)
    except NotFound:
        return None
    return newest if newest.state is ApprovalState.WAITING else None
