"""Records to test with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    ChatKind,
    ChatSettings,
    Language,
    Person,
    PersonId,
    PersonRole,
)
from storage.records.system import ChannelHealth, ModelChoice, SystemStatus
from storage.records.tasks import (
    EventKind,
    NodeStatus,
    Task,
    TaskControl,
    TaskEvent,
    TaskId,
    TaskPhase,
    TaskPriority,
    TaskStatus,
    TaskStep,
    TaskView,
    UsageTotals,
)
from storage.records.traces import SpanAttribute, SpanKind, SpanState, Trace, TraceSpan
from storage.records.usage import (
    BudgetScope,
    CapUsage,
    CostLine,
    CostQuery,
    CostReport,
    SpendingCap,
)
from storage.records.workers import PersonaFileProblem, PersonaInfo, PersonaList, SessionInfo

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

STARVATION_LIMIT = timedelta(hours=12)
"""How long a task waits, by default, before it goes first whatever its priority."""

OFFLINE = ModelChoice(backend="offline", model="")
OPUS = ModelChoice(backend="anthropic", model="claude-opus")
HAIKU = ModelChoice(backend="anthropic", model="claude-haiku")
GPT = ModelChoice(backend="openai", model="gpt-5")


def make_person(
    id: str = "ann",
    role: PersonRole = PersonRole.MEMBER,
    language: Language | None = Language.ENGLISH,
) -> Person:
    return Person(id=PersonId(id), name=id.title(), role=role, language=language, created_at=NOW)


def make_chat(
    id: str = "c1", kind: ChatKind = ChatKind.PRIVATE, person: Person | None = None
) -> Chat:
    return Chat(
        id=ChatId(id),
        channel=Channel.TELEGRAM,
        external_id=f"ext-{id}",
        thread="",
        kind=kind,
        title="",
        settings=ChatSettings(),
        person_id=person.id if person else None,
    )


def make_task(
    id: str = "k3m9qa",
    status: TaskStatus = TaskStatus.PENDING,
    *,
    title: str = "Water the plants",
    chat: str = "c1",
    by: str = "ann",
    priority: TaskPriority = TaskPriority.IMPORTANT,
    reason: str = "",
    summary: str = "",
    control: TaskControl = TaskControl.RUN,
) -> Task:
    begun = status is not TaskStatus.PENDING
    return Task(
        id=TaskId(id),
        title=title,
        instruction=title,
        priority=priority,
        status=status,
        status_reason=reason,
        phase=TaskPhase.ENDED
        if status.is_final
        else TaskPhase.DOING
        if begun
        else TaskPhase.QUEUED,
        control=control,
        chat_id=ChatId(chat),
        reply_to="",
        created_by=PersonId(by),
        project_dir="",
        model="",
        backend="",
        files=(),
        graph_version=1 if begun else 0,
        epoch=0,
        failures_in_row=0,
        replans=0,
        summary=summary,
        created_at=NOW - timedelta(minutes=10),
        started_at=NOW - timedelta(minutes=5) if begun else None,
        ended_at=NOW if status.is_final else None,
    )


def make_step(
    path: str = "1", title: str = "Find the can", status: NodeStatus = NodeStatus.DONE
) -> TaskStep:
    failed = status is NodeStatus.FAILED
    begun = status not in {NodeStatus.PENDING, NodeStatus.SKIPPED}
    return TaskStep(
        path=path,
        title=title,
        status=status,
        summary="It was in the shed." if status is NodeStatus.DONE else "",
        error="The shed is locked." if failed else "",
        started_at=NOW - timedelta(minutes=4) if begun else None,
        ended_at=NOW - timedelta(minutes=3) if status.is_settled or failed else None,
    )


def make_view(task: Task, *steps: TaskStep, plan: str = "", ahead: int = 0) -> TaskView:
    spent = UsageTotals(calls=3, input_tokens=12_000, output_tokens=345, cost_micros=12_300)
    return TaskView(task=task, plan=plan, steps=steps, spent=spent, tasks_ahead=ahead)


def make_approval(
    id: str = "ap7x2k",
    kind: ApprovalKind = ApprovalKind.HUMAN,
    *,
    chat: str = "c1",
    subject: str = "",
    state: ApprovalState = ApprovalState.WAITING,
    approvers: tuple[str, ...] = (),
) -> Approval:
    decided = state in {ApprovalState.APPROVED, ApprovalState.REJECTED}
    sides = {"name": "Olga", "role": "owner", "accounts": ["telegram:7", "web:local"]}
    return Approval(
        id=id,
        kind=kind,
        task_id=None if kind is ApprovalKind.PAIRING else TaskId("k3m9qa"),
        path="",
        subject=subject,
        chat_id=ChatId(chat),
        title="Delete the old logs",
        detail="rm logs/*.old",
        command_hash="",
        approvers=tuple(map(PersonId, approvers)),
        state=state,
        decided_by=PersonId("olga") if decided else None,
        decided_at=NOW if decided else None,
        reason="too early" if state is ApprovalState.REJECTED else "",
        created_at=NOW,
        expires_at=NOW + timedelta(hours=1),
        payload={"kept": sides, "joined": sides} if kind is ApprovalKind.LINK else {},
    )


def make_event(kind: EventKind, text: str = "") -> TaskEvent:
    return TaskEvent(id=1, task_id=TaskId("k3m9qa"), kind=kind, text=text, at=NOW)


def make_roster() -> PersonaList:
    """Two built in, and one in a file that takes another's place; one file is bad."""
    names = ("pragmatist", "reviewer")
    built_in = tuple(
        PersonaInfo(
            name=name,
            titles={"en": name.title(), "zh": f"角色{n}"},
            descriptions={"en": f"About {name}.", "zh": f"关于{n}"},
            prompt=f"You work as a {name}.",
            traits={"naming": "short"},
            mode="review" if name == "reviewer" else "",
        )
        for n, name in enumerate(names)
    )
    own = PersonaInfo(name="poet", prompt="Verse.", source="poet.md", servers=("tracker",))
    fault = PersonaFileProblem(file="bad.md", reason_key="yaml", detail="line 3")
    return PersonaList(personas=(*built_in, own), errors=(fault,))


def make_session() -> SessionInfo:
    return SessionInfo(
        id="5e551011",
        key="task:k3m9qa",
        backend="anthropic",
        model="claude-opus",
        persona="tester",
        turns=1,
        message_count=2,
        started_at=NOW,
        last_used_at=NOW,
        is_open=True,
    )


def make_cost_report(query: CostQuery | None = None) -> CostReport:
    spent = UsageTotals(
        calls=2,
        input_tokens=1500,
        output_tokens=200,
        cost_micros=4200,
        unpriced=1,
        cache_read_tokens=900,
        cache_write_tokens=300,
    )
    lines = (CostLine(name="opus", spent=spent),)
    query = query or CostQuery()
    return CostReport(
        query=query,
        total=spent,
        today=spent,
        week=spent,
        month=spent,
        models=lines,
        purposes=(CostLine(name="plan", spent=spent),),
        chats=(CostLine(name="telegram Team", spent=spent),)
        if query.lists_chats_and_people
        else (),
        people=tuple(CostLine(name=name, spent=spent) for name in ("Olga", "Ann"))
        if query.lists_chats_and_people
        else (),
        caps=(
            CapUsage(
                scope=BudgetScope.DAY,
                allowed=SpendingCap(micros=30_000_000),
                granted=SpendingCap(micros=5_000_000),
                used=SpendingCap(micros=4200, tokens=1700),
            ),
        ),
        unpriced_models=("opus",),
    )


def make_system_status() -> SystemStatus:
    return SystemStatus(
        version="0.1.0",
        pid=42,
        started_at=NOW - timedelta(hours=3),
        memory_bytes=90_000_000,
        model=OFFLINE,
        channels=(
            ChannelHealth(channel=Channel.WEB),
            ChannelHealth(channel=Channel.TELEGRAM, alert="token", facts={"seconds": 60}),
        ),
        slots=3,
        counts={TaskStatus.RUNNING: 1, TaskStatus.COMPLETED: 3, TaskStatus.FAILED: 1},
        today=2,
        waiting_approvals=1,
        queued_messages=0,
        recent=(make_task(),),
    )


def make_span(
    id: str,
    kind: SpanKind = SpanKind.NODE,
    state: SpanState = SpanState.DONE,
    *,
    parent: str = "",
    name: str = "",
    at: float = 0,
    seconds: float = 1,
    depth: int = 0,
    error: str = "",
    spent: UsageTotals | None = None,
    attributes: Mapping[str, SpanAttribute] | None = None,
) -> TraceSpan:
    """`at` is in seconds after NOW."""
    begun = NOW + timedelta(seconds=at)
    return TraceSpan(
        id=id,
        parent=parent,
        name=name or id,
        kind=kind,
        state=state,
        started_at=begun,
        ended_at=None if state.is_open else begun + timedelta(seconds=seconds),
        error=error,
        attributes=attributes or {},
        spent=spent or UsageTotals(),
        depth=depth,
    )


def make_trace(task_id: TaskId, *spans: TraceSpan) -> Trace:
    whole = make_span("whole", SpanKind.WORKFLOW, name="Paint it")
    return Trace(id="f" * 32, task_id=task_id, taken_at=NOW, spans=spans or (whole,))
