"""A small engine for tests: a real store in a file, a backend that does as it is told."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import insert

from bot.engine.agent.desk import Backends, Desk
from bot.engine.agent.leave.asking import Asker as ToolAsker
from bot.engine.agent.leave.pending import Pending
from bot.engine.agent.mcp.servers import McpServers
from bot.engine.agent.workbench import Workbench
from bot.engine.dispatch.foreman import Foreman
from bot.engine.dispatch.local import LocalDispatcher
from bot.engine.llm.answers import PlanAnswer, PlanStep, StepAnswer
from bot.engine.llm.base import (
    BackendError,
    Caps,
    Chosen,
    Health,
    Purpose,
    RunRequest,
    RunResult,
    Usage,
)
from bot.engine.llm.events import AgentEvent, TextDelta
from bot.engine.observe.recorder import Recorder
from bot.engine.workflow.asking import Asker, MoneyAsker
from bot.engine.workflow.graph import Workflow, dump_workflow
from bot.engine.workflow.places.artifacts import Artifacts
from bot.engine.workflow.runner import TaskRunner
from bot.engine.workflow.running.kit import Kit, ShowPictures
from bot.engine.workflow.shown.view import TaskViews
from bot.engine.workflow.store import WorkStore
from cards.courier import CardRef
from cards.model import Card
from storage import schema
from storage.agents.calls import CallRepo
from storage.agents.spans import SpanRepo
from storage.db import Database
from storage.ids import Ids
from storage.migrate import migrate
from storage.records.messages import Urgency
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
from storage.records.tasks import NewTask, Priority, Task, TaskStatus, TaskView
from storage.sessions import SessionRepo
from storage.usage import UsageRepo

RISKY = ("deploy",)
LIFETIME = timedelta(days=7)
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)

BOSS = Person(
    id=PersonId("p1"), name="Boss", role=Role.OWNER, language=Language.ENGLISH, created_at=START
)
MATE = replace(BOSS, id=PersonId("p2"), name="Mate", role=Role.MEMBER)
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


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        self.time += timedelta(milliseconds=1)
        return self.time

    def pass_by(self, **span: float) -> None:
        self.time += timedelta(**span)

    def pass_until(self, time: datetime) -> None:
        self.time = max(self.time, time)


Script = Callable[[RunRequest], "RunResult | BackendError | asyncio.Event"]


def plan_of(*titles: str, repeatable: bool = True) -> PlanAnswer:
    steps = [PlanStep(title=title, repeatable=repeatable) for title in titles]
    return PlanAnswer(plan="As asked.", steps=steps)


def answered(value: Any = None, text: str = "") -> RunResult:
    return RunResult(
        text=text,
        value=value,
        model="fake-1",
        usage=Usage(requests=1, input_tokens=10, output_tokens=5),
        new_history=({"said": text or str(value)},),
    )


@dataclass
class FakeBackend:
    """Plans `steps`, does each at once, and remembers what it was asked. `on_step` may return
    another answer, raise, or return an event to wait for first. `context` is how long it says
    that its session has become."""

    steps: tuple[str, ...] = ("one", "two", "three")
    repeatable: bool = True
    on_step: Callable[[str], Any] = field(default=lambda _title: None)
    on_plan: Callable[[], Any] = field(default=lambda: None)
    asked: list[RunRequest] = field(default_factory=list)
    context: int = 0
    name: str = "fake"
    models: tuple[str, ...] = ("fake-1",)
    caps: Caps = field(default_factory=Caps)

    @property
    def done(self) -> list[str]:
        """Titles of the steps that were begun, in order."""
        return [r.facts["step"]["title"] for r in self.asked if r.purpose is Purpose.STEP]

    async def check(self) -> Health:
        return Health()

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncGenerator[_FakeRun, None]:
        self.asked.append(request)
        yield _FakeRun(self, request)

    async def settle(self, request: RunRequest) -> RunResult:
        if request.purpose is Purpose.PLAN:
            told = self.on_plan()
            value = told or plan_of(*self.steps, repeatable=self.repeatable)
        elif request.purpose is Purpose.STEP:
            title = request.facts["step"]["title"]
            told = self.on_step(title)
            if isinstance(told, asyncio.Event):
                await told.wait()
                told = None
            value = told or StepAnswer(status="done", summary=f"did {title}")
        else:
            return answered(text="hello there")
        if isinstance(value, BaseException):
            raise value
        return replace(answered(value), context=self.context)


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
    def spent(self) -> Usage:
        return Usage(requests=1, input_tokens=10)

    async def _events(self) -> AsyncIterator[AgentEvent]:
        self._result = await self._backend.settle(self._request)
        for word in self._result.text.split():
            yield TextDelta(text=word + " ")


class FakeCourier:
    """Keeps the newest card under each key, and every revision in order."""

    def __init__(self) -> None:
        self.cards: dict[str, Card] = {}
        self.sent: list[tuple[str, Card]] = []
        self.streamed: list[str] = []

    async def send(
        self, to: ChatId, card: Card, *, key: str, urgency: Urgency, reply_to: str = ""
    ) -> CardRef:
        if self.cards.get(key) != card:
            self.cards[key] = card
            self.sent.append((key, card))
        return CardRef(key=key, revision=sum(k == key for k, _ in self.sent))

    async def stream(self, ref: CardRef, markdown: str) -> None:
        self.streamed.append(markdown)


@dataclass
class Engine:
    """One life of the engine; `close` ends it the way kill -9 would, or politely. `changed` is
    set whenever there are events to tell."""

    db: Database
    store: WorkStore
    foreman: Foreman
    dispatcher: LocalDispatcher
    views: TaskViews
    desk: Desk
    backend: FakeBackend
    clock: Clock
    changed: asyncio.Event
    runner: TaskRunner
    _ids: Any = field(default_factory=count)

    async def add(self, text: str = "Do it", source: str = "", **changes: Any) -> Task:
        return await self.foreman.create(self._new(text, source, changes))

    async def run_workflow(
        self, workflow: Workflow, text: str = "Do it", source: str = "", **changes: Any
    ) -> Task:
        """The same with this plan: nobody plans it."""
        new = self._new(text, source, changes)
        return await self.foreman.run_workflow(new, dump_workflow(workflow))

    def _new(self, text: str, source: str, changes: dict[str, Any]) -> NewTask:
        return NewTask(
            title=text[:40],
            instruction=text,
            priority=changes.pop("priority", Priority.IMPORTANT),
            chat_id=changes.pop("chat_id", CHAT.id),
            created_by=BOSS.id,
            source=source or f"test:{next(self._ids)}",
            **changes,
        )

    async def until(self, task: Task, *statuses: TaskStatus) -> TaskView:
        """Wait until the task has one of these statuses; any final one by default."""
        wanted = statuses or tuple(status for status in TaskStatus if status.is_final)
        async with asyncio.timeout(60):
            while True:
                view = await self.views.view(task.id)
                if view.task.status in wanted:
                    return view
                await asyncio.sleep(0.005)


async def make_store(path: Path, stack: AsyncExitStack) -> Database:
    url = f"sqlite:///{path}"
    fresh = not path.exists()
    await asyncio.to_thread(migrate, url)
    db = await Database.open(url, stack)
    if fresh:
        async with db.write() as tx:
            await tx.execute(
                insert(schema.people),
                [
                    {"id": p.id, "name": p.name, "role": p.role, "created_at": START}
                    for p in (BOSS, MATE)
                ],
            )
            await tx.execute(
                insert(schema.identities),
                [
                    {"channel": Channel.TELEGRAM, "external_id": f"x-{p.id}", "person_id": p.id}
                    for p in (BOSS, MATE)
                ],
            )
            await tx.execute(
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
    return db


def recorder(db: Database, clock: Clock) -> Recorder:
    return Recorder(
        db=db,
        repo=SpanRepo(db),
        mask=lambda text: text.replace("hunter2", "••••"),
        new_id=lambda: secrets.token_hex(8),
        now=clock,
    )


def tool_asker(db: Database, clock: Clock) -> ToolAsker:
    return ToolAsker(calls=CallRepo(db), lifetime=LIFETIME, ids=Ids(), now=clock)


async def no_wait(_seconds: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def engine(
    home: Path,
    backend: FakeBackend | None = None,
    *,
    slots: int = 1,
    clock: Clock | None = None,
    running: bool = True,
    sleep: Callable[[float], Awaitable[None]] = no_wait,
    bench: Workbench | Callable[[Database, Clock], Workbench] | None = None,
    servers: McpServers | None = None,
    show_pictures: ShowPictures | None = None,
    traced: bool = False,
    backends: Backends | None = None,
    **timing: Any,
) -> AsyncGenerator[Engine, None]:
    """`sleep` is how a step waits for its next try; `bench` may be made on the store; where it
    is `traced`, calls of models leave spans; `backends` choose who works, where it is not always
    `backend`; `timing` is the dispatcher's: patience, offer_after,
    grace."""
    worker = backend or FakeBackend()
    clock = clock or Clock()
    ids = count(int(clock.time.timestamp() * 1000))
    changed = asyncio.Event()
    async with AsyncExitStack() as stack:
        db = await make_store(home / "shiftboss.db", stack)
        store = WorkStore.on(db)
        sessions, usage = SessionRepo(db), UsageRepo(db)

        class OneBackend:
            def choose(self, model: str, backend_name: str) -> Chosen:
                return Chosen(backend=worker, model=worker.models[0])

        async def english(_task: Task) -> Language:
            return Language.ENGLISH

        async def the_chat(chat: ChatId) -> Chat:
            return CHATS.get(chat, CHAT)

        def new_id() -> str:
            return f"{next(ids):x}"

        async def recall_nothing(_task: Task) -> tuple[str, ...]:
            return ()

        leaves = Asker(words=RISKY, lifetime=LIFETIME, ids=Ids(), now=clock)
        desk = Desk(
            db=db,
            sessions=sessions,
            usage=usage,
            backends=backends or OneBackend(),
            now=clock,
            new_id=new_id,
            pending=Pending(CallRepo(db), clock),
            servers=servers,
            spans=recorder(db, clock) if traced else None,
        )
        runner = TaskRunner(
            Kit(
                store=store,
                desk=desk,
                artifacts=Artifacts(home),
                bench=bench(db, clock) if callable(bench) else bench or Workbench(),
                language_of=english,
                chat_of=the_chat,
                leaves=leaves,
                ask_for_more=MoneyAsker(lifetime=LIFETIME, ids=Ids(), now=clock),
                recall=recall_nothing,
                now=clock,
                sleep=sleep,
                on_change=changed.set,
                zone=ZoneInfo("UTC"),
                asker=tool_asker(db, clock),
                show_pictures=show_pictures,
                chance=lambda: 0.5,
            )
        )
        dispatcher = LocalDispatcher(
            store=store,
            run=runner.run,
            language_of=english,
            slots=slots,
            owner="test",
            now=clock,
            new_id=new_id,
            on_change=changed.set,
            look_again=runner.look_again,
            **timing,
        )
        views = TaskViews(store, usage)
        foreman = Foreman(
            store=store,
            dispatcher=dispatcher,
            views=views,
            chat_of=the_chat,
            now=clock,
            new_id=new_id,
        )
        if running:
            await dispatcher.start(stack)
            loop = asyncio.create_task(dispatcher.run())
            stack.push_async_callback(_stop, loop)
        yield Engine(
            db=db,
            store=store,
            foreman=foreman,
            dispatcher=dispatcher,
            views=views,
            desk=desk,
            backend=worker,
            clock=clock,
            changed=changed,
            runner=runner,
        )


async def _stop(loop: asyncio.Task[None]) -> None:
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
