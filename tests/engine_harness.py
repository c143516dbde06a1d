"""A small engine for tests: a real store in a file, a backend that does as it is told."""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, Self
from zoneinfo import ZoneInfo

from sqlalchemy import insert, make_url

from bot.engine.agent.model_gateway import ModelGateway
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.llm.answer_schemas import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.backend import (
    AgentEvent,
    BackendReadiness,
    RunLimits,
    RunPurpose,
    RunRequest,
    RunResult,
    TextDelta,
    TokenUsage,
)
from bot.engine.llm.backend_registry import BackendSelector
from bot.engine.mcp.client.server_pool import McpServerPool
from bot.engine.permissions.requests import ApprovalRequester as ToolAsker
from bot.engine.permissions.requests import DecisionRecorder
from bot.engine.tasks.access import TaskAccess
from bot.engine.tasks.dispatch import OFFER_AFTER, LocalDispatcher
from bot.engine.tasks.reruns import TaskRerunner
from bot.engine.tasks.service import TaskService
from bot.engine.tasks.shared_dispatch import SharedDispatcher
from bot.engine.tasks.undoing import TaskUndoing
from bot.engine.timing import DueTimer
from bot.engine.tracing.span_recorder import SpanRecorder
from bot.engine.workflow.call_steps import CallSteps
from bot.engine.workflow.definition import Workflow, dump_workflow
from bot.engine.workflow.live_progress import LiveProgress
from bot.engine.workflow.presentation.task_view import TaskViewLoader
from bot.engine.workflow.runner import TaskRunner
from bot.engine.workflow.step_approvals import CapExtensionRequester, StepApprovalRequester
from bot.engine.workflow.step_executor import AttachImages, RunnerDeps
from bot.engine.workflow.task_store import TaskStore
from bot.engine.workspaces.task_workspaces import TaskArtifacts
from cards.courier import CardRef, Courier, OwnerCardSender
from cards.model import Card
from storage import schema
from storage.db import Database, Transaction
from storage.ids import IdGenerator
from storage.migrate import migration_engine
from storage.records.messages import DeliveryUrgency
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
from storage.records.processes import ProcessRole, WorkerProcess
from storage.records.tasks import (
    NewTask,
    Task,
    TaskEvent,
    TaskId,
    TaskPriority,
    TaskStatus,
    TaskView,
)
from storage.tools import PermissionGrantRepo, ToolCallRepo
from storage.traces import SpanRepo
from storage.usage import UsageRepo
from storage.worker_processes import WorkerProcessRepo
from tests.agent_builders import make_context_builder, make_gateway
from tests.bot.engine.workspaces.git_project import always_adopted
from tests.builders import STARVATION_LIMIT
from tests.fakes.backends import OnlyBackend
from tests.migrated_database import database_file, migrated_file
from tests.postgresql_server import USES_POSTGRESQL, connect, create_database
from tests.waiting import ChangeSignal, wait_until

RISKY_WORDS = ("deploy",)
APPROVAL_LIFETIME = timedelta(days=7)
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

BOSS = Person(
    id=PersonId("p1"),
    name="Boss",
    role=PersonRole.OWNER,
    language=Language.ENGLISH,
    created_at=START,
)
MATE = replace(BOSS, id=PersonId("p2"), name="Mate", role=PersonRole.MEMBER)
CHAT = Chat(
    id=ChatId("c1"),
    channel=Channel.WEB,
    external_id="local",
    thread="",
    kind=ChatKind.PRIVATE,
    title="",
    settings=ChatSettings(),
    person_id=BOSS.id,
)
GROUP = replace(
    CHAT, id=ChatId("g1"), external_id="team", kind=ChatKind.GROUP, title="Team", person_id=None
)
THREAD = replace(GROUP, id=ChatId("g2"), thread="t1")
CHATS = {chat.id: chat for chat in (CHAT, GROUP, THREAD)}


class ManualClock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def advance(self, **span: float) -> None:
        self.time += timedelta(**span)

    def advance_to(self, time: datetime) -> None:
        self.time = max(self.time, time)


def make_plan(*titles: str, repeatable: bool = True) -> PlanAnswer:
    steps = [PlanStep(title=title, repeatable=repeatable) for title in titles]
    return PlanAnswer(plan="As asked.", steps=steps)


def run_result(value: Any = None, text: str = "") -> RunResult:
    return RunResult(
        text=text,
        value=value,
        model="fake-1",
        usage=TokenUsage(requests=1, input_tokens=10, output_tokens=5),
        new_history=({"said": text or str(value)},),
    )


@dataclass
class FakeBackend:
    """Plans `steps`, does each at once, and records its requests. A held step waits until it is
    released; `on_step` may then return another answer, raise, or return an event to wait for.
    `context` is the session's length that it reports."""

    steps: tuple[str, ...] = ("one", "two", "three")
    repeatable: bool = True
    on_step: Callable[[str], Any] = field(default=lambda _title: None)
    on_plan: Callable[[], Any] = field(default=lambda: None)
    requests: list[RunRequest] = field(default_factory=list)
    context: int = 0
    name: str = "fake"
    models: tuple[str, ...] = ("fake-1",)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    accepts_tools: bool = True
    writes_calls: bool = False

    @property
    def started_steps(self) -> list[str]:
        """Titles of the steps that were begun, in order."""
        return [r.facts["step"]["title"] for r in self.requests if r.purpose is RunPurpose.STEP]

    def hold(self, *titles: str) -> list[asyncio.Event]:
        """Let these steps wait; setting an event releases its step."""
        self.gates |= {title: asyncio.Event() for title in titles}
        return [self.gates[title] for title in titles]

    def release(self, *titles: str) -> None:
        """Release these steps, or all."""
        for title in titles or tuple(self.gates):
            self.gates[title].set()

    async def wait_until_started(self, *titles: str) -> None:
        await wait_until(lambda: set(titles) <= set(self.started_steps))

    async def check(self) -> BackendReadiness:
        return BackendReadiness()

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncGenerator[_FakeRun, None]:
        self.requests.append(request)
        yield _FakeRun(self, request)

    async def respond(self, request: RunRequest) -> RunResult:
        if request.purpose is RunPurpose.PLAN:
            told = self.on_plan()
            value = told or make_plan(*self.steps, repeatable=self.repeatable)
        elif request.purpose is RunPurpose.STEP:
            title = request.facts["step"]["title"]
            if gate := self.gates.get(title):
                await gate.wait()
            told = self.on_step(title)
            if isinstance(told, asyncio.Event):
                await told.wait()
                told = None
            value = told or StepAnswer(status="done", summary=f"did {title}")
        else:
            return run_result(text="hello there")
        if isinstance(value, BaseException):
            raise value
        return replace(
            run_result(value), context_tokens=self.context, writes_calls=self.writes_calls
        )


class _FakeRun:
    def __init__(self, backend: FakeBackend, request: RunRequest) -> None:
        self._backend = backend
        self._request = request
        self._result: RunResult | None = None

    @property
    def events(self) -> AsyncIterator[AgentEvent]:
        return self._events()

    @property
    def result(self) -> RunResult:
        assert self._result is not None
        return self._result

    @property
    def usage_so_far(self) -> TokenUsage:
        return TokenUsage(requests=1, input_tokens=10)

    async def _events(self) -> AsyncIterator[AgentEvent]:
        self._result = await self._backend.respond(self._request)
        for word in self._result.text.split():
            yield TextDelta(text=word + " ")


def owner_cards(courier: Courier, chats: Sequence[Chat]) -> OwnerCardSender:
    """In English, to the chats that are in the list when a card is sent."""

    async def list_chats() -> Sequence[Chat]:
        return chats

    async def english(_chat: Chat) -> Language:
        return Language.ENGLISH

    return OwnerCardSender(list_chats=list_chats, language_of=english, courier=courier)


class RecordingCourier:
    """Keeps the newest card under each key, and every revision in order."""

    def __init__(self) -> None:
        self.cards: dict[str, Card] = {}
        self.sent: list[tuple[str, Card]] = []
        self.replies: dict[str, str] = {}
        self.streamed: list[str] = []

    async def send(
        self, to: ChatId, card: Card, *, key: str, urgency: DeliveryUrgency, reply_to: str = ""
    ) -> CardRef:
        if self.cards.get(key) != card:
            self.cards[key] = card
            self.sent.append((key, card))
        return CardRef(key=key, revision=sum(k == key for k, _ in self.sent))

    async def prepare(self, card: Card) -> Card:
        return card

    async def post(
        self,
        tx: Transaction,
        to: ChatId,
        card: Card,
        *,
        key: str,
        urgency: DeliveryUrgency,
        reply_to: str = "",
    ) -> CardRef:
        self.replies[key] = reply_to
        return await self.send(to, card, key=key, urgency=urgency, reply_to=reply_to)

    async def find_message(self, tx: Transaction, key: str) -> str:
        return f"message of {key}" if key in self.cards else ""

    def wake(self) -> None: ...

    async def stream(self, ref: CardRef, markdown: str) -> None:
        self.streamed.append(markdown)


@dataclass
class EngineHarness:
    """One life of the engine; `close` ends it the way kill -9 would, or politely. `changed` is
    set whenever there are events to tell."""

    db: WatchedDatabase
    store: TaskStore
    tasks: TaskService
    dispatcher: LocalDispatcher
    views: TaskViewLoader
    gateway: ModelGateway
    backend: FakeBackend
    clock: ManualClock
    changed: asyncio.Event
    runner: TaskRunner
    _ids: Any = field(default_factory=count)

    async def create_task(self, text: str = "Do it", source: str = "", **changes: Any) -> Task:
        return await self.tasks.create(self._new(text, source, changes))

    async def run_workflow(
        self, workflow: Workflow, text: str = "Do it", source: str = "", **changes: Any
    ) -> Task:
        """The same with this plan: nobody plans it."""
        new = self._new(text, source, changes)
        return await self.tasks.run_workflow(new, dump_workflow(workflow))

    def _new(self, text: str, source: str, changes: dict[str, Any]) -> NewTask:
        return NewTask(
            title=text[:40],
            instruction=text,
            priority=changes.pop("priority", TaskPriority.IMPORTANT),
            chat_id=changes.pop("chat_id", CHAT.id),
            created_by=BOSS.id,
            source=source or f"test:{next(self._ids)}",
            **changes,
        )

    async def until(self, task: Task, *statuses: TaskStatus) -> TaskView:
        """Wait until the task has one of these statuses; any final one by default."""
        wanted = statuses or tuple(status for status in TaskStatus if status.is_final)

        async def look() -> TaskView | None:
            if self.db.glance_at_status(task.id) not in wanted:
                return None
            view = await self.views.view(task.id)
            return view if view.task.status in wanted else None

        return await self.db.commits.until_found(look)


class WatchedDatabase(Database):
    """Tells of each commit, so that a test need not ask again and again."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self.commits = ChangeSignal()
        self._glances: Any = None
        self._glance = ""
        self.url = ""

    @classmethod
    async def open(cls, url: str, stack: AsyncExitStack) -> Self:
        made = await super().open(url, stack)
        made.url, mark = url, "?"
        if made.dialect == "sqlite":
            path = url.removeprefix("sqlite:///")
            made._glances = sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)
        else:
            mark = "%s"
            made._glances = await asyncio.to_thread(connect, url)
        made._glance = f"SELECT status FROM tasks WHERE id = {mark}"
        stack.callback(made._glances.close)
        return made

    def glance_at_status(self, task_id: TaskId) -> TaskStatus | None:
        """The stored status of a task. Blocking, and a hundredth of what reading the task costs,
        which a test that waits would do after each commit."""
        assert self._glances is not None
        row = self._glances.execute(self._glance, (task_id,)).fetchone()
        return None if row is None else TaskStatus(row[0])

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[Transaction, None]:
        async with super().write() as transaction:
            yield transaction
        self.commits.notify()


async def open_seeded_database(path: Path, stack: AsyncExitStack) -> WatchedDatabase:
    """The database at `path`, or for it on the server of the tests; a new one contains BOSS, MATE
    and CHATS."""
    if USES_POSTGRESQL:
        url = await asyncio.to_thread(_seeded_database, path.resolve())
        return await WatchedDatabase.open(url, stack)
    if not path.exists():
        path.write_bytes(await asyncio.to_thread(_seeded_file))
    return await WatchedDatabase.open(f"sqlite:///{path}", stack)


@cache
def _seeded_file() -> bytes:
    """Made once: a migration takes longer than most tests."""
    with tempfile.TemporaryDirectory() as folder:
        _seed(migrated_file(Path(folder)))
        return database_file(Path(folder)).read_bytes()


@cache
def _seeded_database(_path: Path) -> str:
    return create_database(template=_seeded_template())


@cache
def _seeded_template() -> str:
    url = create_database()
    _seed(url)
    return str(make_url(url).database)


def _seed(url: str) -> None:
    people = (BOSS, MATE)
    engine = migration_engine(url)
    with engine.begin() as connection:
        connection.execute(
            insert(schema.people),
            [{"id": p.id, "name": p.name, "role": p.role, "created_at": START} for p in people],
        )
        connection.execute(
            insert(schema.identities),
            [
                {"channel": Channel.TELEGRAM, "external_id": f"x-{p.id}", "person_id": p.id}
                for p in people
            ],
        )
        connection.execute(
            insert(schema.chats),
            [
                {
                    "id": chat.id,
                    "channel": chat.channel,
                    "external_id": chat.external_id,
                    "thread": chat.thread,
                    "kind": chat.kind,
                    "title": chat.title,
                    "settings": {},
                    "person_id": chat.person_id,
                    "created_at": START,
                }
                for chat in CHATS.values()
            ],
        )
    engine.dispose()


def make_span_recorder(db: Database, clock: ManualClock) -> SpanRecorder:
    return SpanRecorder(
        db=db,
        repo=SpanRepo(db),
        redact=lambda text: text.replace("hunter2", "••••"),
        new_id=lambda: secrets.token_hex(8),
        now=clock,
    )


def make_approval_requester(db: Database, clock: ManualClock) -> ToolAsker:
    return ToolAsker(
        calls=ToolCallRepo(db), lifetime=APPROVAL_LIFETIME, ids=IdGenerator(), now=clock
    )


def make_decision_recorder(db: Database, clock: ManualClock) -> DecisionRecorder:
    return DecisionRecorder(
        calls=ToolCallRepo(db),
        grants=PermissionGrantRepo(db),
        requester=make_approval_requester(db, clock),
        now=clock,
    )


def make_undoing(store: TaskStore, clock: ManualClock) -> TaskUndoing:
    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    return TaskUndoing(store=store, language_of=english, zone=ZoneInfo("UTC"), now=clock)


async def ignore_events(_task: Task, _events: Sequence[TaskEvent]) -> None:
    """For notifiers without approvals."""


async def no_account(_task: Task) -> str:
    return ""


async def no_sleep(_seconds: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def run_engine(
    home: Path,
    backend: FakeBackend | None = None,
    *,
    slots: int = 1,
    clock: ManualClock | None = None,
    start_dispatcher: bool = True,
    sleep: Callable[[float], Awaitable[None]] = no_sleep,
    context_builder: WorkerContextBuilder
    | Callable[[Database, ManualClock], WorkerContextBuilder]
    | None = None,
    servers: McpServerPool | None = None,
    show_pictures: AttachImages | None = None,
    traced: bool = False,
    backends: BackendSelector | None = None,
    limits: RunLimits | None = None,
    call_steps: Callable[[Database, ManualClock], CallSteps] | None = None,
    **timing: Any,
) -> AsyncGenerator[EngineHarness, None]:
    """`sleep` is how a step waits for its next try; `bench` may be made on the store; where it
    is `traced`, calls of models leave spans; `backends` choose who works, where it is not always
    `backend`; `timing` is the dispatcher's: patience, offer_after,
    grace."""
    worker = backend or FakeBackend()
    clock = clock or ManualClock()
    ids = count(int(clock.time.timestamp() * 1000))
    # Each life is another process.
    owner = secrets.token_hex(8)
    changed = asyncio.Event()
    async with AsyncExitStack() as stack:
        db = await open_seeded_database(home / "shiftboss.db", stack)
        store = TaskStore.from_database(db)
        usage = UsageRepo(db)

        async def english(_task: Task) -> Language:
            return Language.ENGLISH

        async def the_chat(chat: ChatId) -> Chat:
            return CHATS.get(chat, CHAT)

        def new_id() -> str:
            return f"{next(ids):x}"

        async def recall_nothing(_task: Task) -> tuple[str, ...]:
            return ()

        leaves = StepApprovalRequester(
            words=RISKY_WORDS, lifetime=APPROVAL_LIFETIME, ids=IdGenerator(), now=clock
        )
        options: dict[str, Any] = {"mcp_servers": servers} if servers else {}
        if traced:
            options["span_recorder"] = make_span_recorder(db, clock)
        desk = make_gateway(db, backends or OnlyBackend(worker), clock, new_id, **options)
        runner = TaskRunner(
            RunnerDeps(
                store=store,
                gateway=desk,
                artifacts=TaskArtifacts(home, always_adopted),
                worker_context=context_builder(db, clock)
                if callable(context_builder)
                else context_builder or make_context_builder(),
                language_of=english,
                chat_of=the_chat,
                step_approvals=leaves,
                request_cap_extension=CapExtensionRequester(
                    lifetime=APPROVAL_LIFETIME, ids=IdGenerator(), now=clock
                ),
                recall=recall_nothing,
                now=clock,
                sleep=sleep,
                on_change=changed.set,
                zone=ZoneInfo("UTC"),
                tool_approvals=make_approval_requester(db, clock),
                attach_images=show_pictures,
                call_steps=None if call_steps is None else call_steps(db, clock),
                progress=LiveProgress(),
                limits=limits or RunLimits(),
                jitter=lambda: 0.5,
            )
        )
        timer = DueTimer(clock)
        kind: Callable[..., LocalDispatcher] = LocalDispatcher
        if db.dialect != "sqlite":
            kind = await _shared_dispatcher(db, owner, slots if start_dispatcher else 0)
        dispatcher = kind(
            store=store,
            run=runner.run,
            language_of=english,
            slots=slots,
            owner=owner,
            now=clock,
            new_id=new_id,
            on_change=changed.set,
            notify_command=runner.wake,
            on_next_wake=lambda: timer.wake(LocalDispatcher.name),
            **{"patience": STARVATION_LIMIT, "offer_after": OFFER_AFTER, "grace": 10.0, **timing},
        )
        views = TaskViewLoader(store, usage)
        foreman = TaskService(
            store=store,
            dispatcher=dispatcher,
            views=views,
            access=TaskAccess(the_chat),
            reruns=TaskRerunner(store=store, zone=ZoneInfo("UTC"), now=clock),
            undoing=make_undoing(store, clock),
            now=clock,
            new_id=new_id,
        )
        if start_dispatcher:
            timer.add(dispatcher)
            await timer.start(stack)
            await dispatcher.start(stack)
            for service in (timer, dispatcher):
                stack.push_async_callback(_stop, asyncio.create_task(service.run()))
        yield EngineHarness(
            db=db,
            store=store,
            tasks=foreman,
            dispatcher=dispatcher,
            views=views,
            gateway=desk,
            backend=worker,
            clock=clock,
            changed=changed,
            runner=runner,
        )


async def _shared_dispatcher(
    db: WatchedDatabase, owner: str, slots: int
) -> Callable[..., LocalDispatcher]:
    """That of a process that has just found all others dead."""
    processes = WorkerProcessRepo(db)
    async with db.write() as tx:
        await processes.remove_all(tx)
        await processes.register(
            tx,
            WorkerProcess(
                id=owner,
                name=owner,
                host="test",
                pid=1,
                version="0",
                role=ProcessRole.RUN,
                slots=slots,
                started_at=START,
                seen_at=START,
            ),
        )
    shared: dict[str, Any] = {
        "processes": processes,
        "projects": frozenset(),
        "has_folder": lambda _folder: True,
    }
    if os.environ.get("SHIFTBOSS_TEST_DISPATCHER") != "procrastinate":
        return partial(SharedDispatcher, **shared)
    # Loaded only for the thorough run of the contracts on it.
    from bot.engine.tasks.procrastinate_dispatch import ProcrastinateDispatcher

    return partial(ProcrastinateDispatcher, url=db.url, **shared)


async def _stop(loop: asyncio.Task[None]) -> None:
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
