"""Records to test with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.money import Cap, CapLeft, Scope
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    ChatKind,
    ChatSettings,
    Language,
    Person,
    PersonId,
    Role,
)
from storage.records.personas import PersonaFault, Portrait, Roster
from storage.records.sessions import SessionFacts
from storage.records.status import (
    ChannelHealth,
    CostLine,
    CostQuery,
    CostReport,
    ModelChoice,
    SystemStatus,
)
from storage.records.tasks import (
    Control,
    EventKind,
    NodeStatus,
    Phase,
    Priority,
    Spent,
    Step,
    Task,
    TaskEvent,
    TaskId,
    TaskStatus,
    TaskView,
)
from storage.records.workers.spans import Attribute, Span, SpanKind, SpanState, Trace

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

OFFLINE = ModelChoice(backend="offline", model="")
OPUS = ModelChoice(backend="anthropic", model="claude-opus")
HAIKU = ModelChoice(backend="anthropic", model="claude-haiku")
GPT = ModelChoice(backend="openai", model="gpt-5")


def a_person(
    id: str = "ann", role: Role = Role.MEMBER, language: Language | None = Language.ENGLISH
) -> Person:
    return Person(id=PersonId(id), name=id.title(), role=role, language=language, created_at=NOW)


def a_chat(id: str = "c1", kind: ChatKind = ChatKind.PRIVATE, person: Person | None = None) -> Chat:
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


def a_task(
    id: str = "k3m9qa",
    status: TaskStatus = TaskStatus.PENDING,
    *,
    title: str = "Water the plants",
    chat: str = "c1",
    by: str = "ann",
    priority: Priority = Priority.IMPORTANT,
    reason: str = "",
    summary: str = "",
    control: Control = Control.RUN,
) -> Task:
    begun = status is not TaskStatus.PENDING
    return Task(
        id=TaskId(id),
        title=title,
        instruction=title,
        priority=priority,
        status=status,
        status_reason=reason,
        phase=Phase.ENDED if status.is_final else Phase.DOING if begun else Phase.QUEUED,
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


def a_step(
    path: str = "1", title: str = "Find the can", status: NodeStatus = NodeStatus.DONE
) -> Step:
    failed = status is NodeStatus.FAILED
    begun = status not in {NodeStatus.PENDING, NodeStatus.SKIPPED}
    return Step(
        path=path,
        title=title,
        status=status,
        summary="It was in the shed." if status is NodeStatus.DONE else "",
        error="The shed is locked." if failed else "",
        started_at=NOW - timedelta(minutes=4) if begun else None,
        ended_at=NOW - timedelta(minutes=3) if status.is_settled or failed else None,
    )


def a_view(task: Task, *steps: Step, plan: str = "", ahead: int = 0) -> TaskView:
    spent = Spent(calls=3, input_tokens=12_000, output_tokens=345, cost_micros=12_300)
    return TaskView(task=task, plan=plan, steps=steps, spent=spent, ahead=ahead)


def an_approval(
    id: str = "ap7x2k",
    kind: ApprovalKind = ApprovalKind.HUMAN,
    *,
    chat: str = "c1",
    subject: str = "",
    state: ApprovalState = ApprovalState.WAITING,
    approvers: tuple[str, ...] = (),
) -> Approval:
    decided = state in {ApprovalState.APPROVED, ApprovalState.REJECTED}
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
    )


def an_event(kind: EventKind, text: str = "") -> TaskEvent:
    return TaskEvent(id=1, task_id=TaskId("k3m9qa"), kind=kind, text=text, at=NOW)


def a_roster() -> Roster:
    """Two built in, and one in a file that takes another's place; one file is bad."""
    names = ("pragmatist", "reviewer")
    built_in = tuple(
        Portrait(
            name=name,
            title={"en": name.title(), "zh": f"角色{n}"},
            about={"en": f"About {name}.", "zh": f"关于{n}"},
            prompt=f"You work as a {name}.",
            traits={"naming": "short"},
            mode="review" if name == "reviewer" else "",
        )
        for n, name in enumerate(names)
    )
    own = Portrait(name="poet", prompt="Verse.", source="poet.md", servers=("tracker",))
    fault = PersonaFault(file="bad.md", why="yaml", detail="line 3")
    return Roster(personas=(*built_in, own), faults=(fault,))


def a_session() -> SessionFacts:
    return SessionFacts(
        id="5e551011",
        key="task:k3m9qa",
        backend="anthropic",
        model="claude-opus",
        persona="tester",
        turns=1,
        messages=2,
        started_at=NOW,
        last_used_at=NOW,
        open=True,
    )


def a_cost_report(query: CostQuery | None = None) -> CostReport:
    spent = Spent(
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
        whole=spent,
        today=spent,
        week=spent,
        month=spent,
        models=lines,
        purposes=(CostLine(name="plan", spent=spent),),
        chats=(CostLine(name="telegram Team", spent=spent),) if query.named else (),
        people=tuple(CostLine(name=name, spent=spent) for name in ("Olga", "Ann"))
        if query.named
        else (),
        caps=(
            CapLeft(
                scope=Scope.DAY,
                allowed=Cap(micros=30_000_000),
                granted=Cap(micros=5_000_000),
                used=Cap(micros=4200, tokens=1700),
            ),
        ),
        unseen=("opus",),
    )


def a_system_status() -> SystemStatus:
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
        recent=(a_task(),),
    )


def a_span(
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
    spent: Spent | None = None,
    attributes: Mapping[str, Attribute] | None = None,
) -> Span:
    """`at` is in seconds after NOW."""
    begun = NOW + timedelta(seconds=at)
    return Span(
        id=id,
        parent=parent,
        name=name or id,
        kind=kind,
        state=state,
        started_at=begun,
        ended_at=None if state.is_open else begun + timedelta(seconds=seconds),
        error=error,
        attributes=attributes or {},
        spent=spent or Spent(),
        depth=depth,
    )


def a_trace(task_id: TaskId, *spans: Span) -> Trace:
    whole = a_span("whole", SpanKind.WORKFLOW, name="Paint it")
    return Trace(id="f" * 32, task_id=task_id, at=NOW, spans=spans or (whole,))
