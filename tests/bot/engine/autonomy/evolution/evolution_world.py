"""A real engine whose worker does well or badly as its prompt says, and evolution beside it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bot.engine.agent.background_calls import BackgroundModelCalls
from bot.engine.agent.prompt_versions import PromptVersions
from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.autonomy.evolution.proposal import ProposalWriter
from bot.engine.autonomy.evolution.retirement import PromptDecisions, VersionRetirer
from bot.engine.autonomy.evolution.service import EvolutionLimits, EvolutionService
from bot.engine.autonomy.evolution.sources import BuiltInTexts, PersonaTexts
from bot.engine.llm.backend import BackendDenied, RunPurpose, RunRequest, RunResult, TokenUsage
from bot.engine.workers.personas import BUILT_IN_PERSONAS, PRAGMATIST_PERSONA, Persona
from storage import autonomy_schema, schema
from storage.approvals import ApprovalRepo
from storage.db import Database
from storage.ids import IdGenerator
from storage.prompt_versions import EvolutionRepo, PromptVersionRepo
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import ChatId, Language
from storage.records.prompt_versions import (
    EvolutionMode,
    PromptKind,
    PromptRef,
    PromptVersion,
    VersionState,
)
from storage.records.system import ModelChoice
from storage.records.tasks import Task, TaskId, TaskStatus
from storage.tasks import TaskRepo
from tests.agent_builders import make_context_builder
from tests.engine_harness import (
    BOSS,
    CHAT,
    EngineHarness,
    FakeBackend,
    ManualClock,
    RecordingCourier,
    run_engine,
    run_result,
)

NAME = PRAGMATIST_PERSONA.name
REF = PromptRef(PromptKind.PERSONA, NAME)
WRITTEN = PRAGMATIST_PERSONA.prompt
BETTER = f"{WRITTEN}\nRead the whole task once more before you report."
PROPOSAL = {"reason": "Steps end too early.", "instructions": BETTER}
_ROWS_OF_TASKS = (
    (schema.tasks, "id"),
    (schema.task_graphs, "task_id"),
    (schema.node_attempts, "task_id"),
    (schema.usage, "task_id"),
    (autonomy_schema.attempt_versions, "task_id"),
)
"""What evolution reads of a task, each with the column of its id."""

APPROVAL = {"approved": True, "confidence": 0.9, "reason": "Small and clear."}


class EditedPersonas:
    """The built-in personas; `prompts` replace texts, as people do in files."""

    def __init__(self) -> None:
        self.prompts: dict[str, str] = {}

    async def get(self, name: str) -> Persona:
        return (await self.get_all()).get(name, await self._edited(PRAGMATIST_PERSONA))

    async def get_all(self) -> Mapping[str, Persona]:
        return {name: await self._edited(each) for name, each in BUILT_IN_PERSONAS.items()}

    async def _edited(self, persona: Persona) -> Persona:
        return replace(persona, prompt=self.prompts.get(persona.name, persona.prompt))


@dataclass
class EvolvingBackend(FakeBackend):
    """`fails` tells by the system prompt whether a step fails; `answers` are what the model says
    about prompts, in turn: values, exceptions, or raw text."""

    steps: tuple[str, ...] = ("one",)
    fails: Callable[[str], bool] = field(default=lambda _prompt: False)
    tokens: Callable[[str], int] = field(default=lambda _prompt: 10)
    answers: list[Any] = field(default_factory=list)

    @property
    def questions(self) -> Sequence[RunRequest]:
        return [each for each in self.requests if each.purpose is RunPurpose.EVOLVE]

    async def respond(self, request: RunRequest) -> RunResult:
        if request.purpose is RunPurpose.STEP and self.fails(request.system):
            raise BackendDenied("refused")
        if request.purpose is not RunPurpose.EVOLVE:
            return await super().respond(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, dict):
            assert request.result is not None
            answer = request.result.model_validate(answer)
        usage = TokenUsage(requests=1, input_tokens=100, output_tokens=50)
        return replace(run_result(answer, text="x"), usage=usage)


@dataclass(kw_only=True)
class EvolutionWorld:
    engine: EngineHarness
    backend: EvolvingBackend
    personas: EditedPersonas
    service: EvolutionService
    versions: PromptVersionRepo
    approvals: ApprovalRepo
    courier: RecordingCourier
    shown: list[Approval]
    _copies: Iterator[int] = field(default_factory=count)

    async def do_task(self, **changes: Any) -> Task:
        """Run one task to its end, and tell the evolution about it."""
        task = await self.engine.create_task(**changes)
        view = await self.engine.until(
            task, TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.BLOCKED
        )
        events = await self.engine.store.events.list_latest(task.id, 20)
        await self.service.handle_task_events(view.task, events)
        return view.task

    async def repeat(self, task: Task, times: int) -> None:
        """Store the task `times` times more, as if each had gone the same way."""
        async with self.engine.db.write() as tx:
            for _ in range(times):
                changed = {
                    "id": self.service.ids.short_id(),
                    "source": f"copy:{next(self._copies)}",
                }
                changed["task_id"] = changed["id"]
                for table, owner in _ROWS_OF_TASKS:
                    kept = [each for each in table.c if each is not table.autoincrement_column]
                    copy = sa.select(
                        *(sa.literal(changed[c.name]) if c.name in changed else c for c in kept)
                    )
                    await tx.execute(
                        sa.insert(table).from_select(kept, copy.where(table.c[owner] == task.id))
                    )

    async def fire_signal(self) -> None:
        """Three tasks out of ten whose step needs more than three retries."""
        await self.repeat(await self.do_task(), 9)
        for task in await self.service.repo.list_recent_tasks(3):
            await self.add_attempts(task.task_id, 4)

    async def do_tasks_with_each_prompt(self, times: int) -> None:
        """Tasks with the version on trial and tasks without it, `times` of each: what happens to
        the first of each happens to all."""
        first = dict[str, Task]()
        while len(first) < 2:
            task = await self.engine.create_task()
            view = await self.engine.until(task, TaskStatus.COMPLETED, TaskStatus.BLOCKED)
            first.setdefault(self.prompts_used()[-1], view.task)
        for task in first.values():
            await self.repeat(task, times - 1)

    async def add_attempts(self, task_id: TaskId, count: int) -> None:
        now = self.engine.clock()
        async with self.engine.db.write() as tx:
            for attempt in range(2, 2 + count):
                await tx.exec_driver_sql(
                    "INSERT INTO node_attempts (task_id, path, attempt, session_id, started_at,"
                    " ended_at, error) SELECT task_id, path, ?, '', ?, ?, 'It broke.'"
                    " FROM node_attempts WHERE task_id = ? AND path <> '' LIMIT 1",
                    (attempt, _micros(now), _micros(now), task_id),
                )

    async def decide(self, *, approve: bool) -> None:
        (approval,) = await self.waiting()
        await self.approvals.decide(approval, approve=approve, by=BOSS, source="press:1")

    async def waiting(self) -> Sequence[Approval]:
        return await self.approvals.list_waiting_of_kind(ApprovalKind.PROMPT)

    async def version(self, number: int = 1) -> PromptVersion:
        found = await self.versions.list_of(REF)
        return found[number - 1]

    async def states(self) -> list[VersionState]:
        found = await self.versions.list_of(REF)
        return [each.state for each in found]

    async def start_trial(self) -> PromptVersion:
        await self.fire_signal()
        self.backend.answers = [PROPOSAL, APPROVAL]
        await self.service.run_cycle(by=BOSS)
        await self.decide(approve=True)
        return await self.version()

    def prompts_used(self) -> list[str]:
        steps = [each for each in self.backend.requests if each.purpose is RunPurpose.STEP]
        return [BETTER if BETTER in each.system else WRITTEN for each in steps]

    def step_prompt(self) -> str:
        """The system prompt of the latest step."""
        steps = [each for each in self.backend.requests if each.purpose is RunPurpose.STEP]
        return steps[-1].system

    def told(self) -> list[str]:
        """Titles of the notices that owners have got."""
        return [card.title for key, card in self.courier.sent if key.startswith("prompt:")]


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


@asynccontextmanager
async def open_world(
    home: Path,
    *,
    backend: EvolvingBackend | None = None,
    mode: EvolutionMode = EvolutionMode.ASK,
    clock: ManualClock | None = None,
    personas: EditedPersonas | None = None,
    courier: RecordingCourier | None = None,
) -> AsyncGenerator[EvolutionWorld, None]:
    """Opening the same home again is a restart."""
    backend, people = backend or EvolvingBackend(), personas or EditedPersonas()
    sent, shown, made = courier or RecordingCourier(), list[Approval](), list[VersionRetirer]()

    def build(db: Database, at: ManualClock) -> WorkerContextBuilder:
        retirer = _make_retirer(db, at, sent, shown)
        made.append(retirer)

        async def created_at(task_id: TaskId) -> datetime:
            return (await TaskRepo(db).get(task_id)).created_at

        chosen = PromptVersions(
            repo=retirer.versions,
            created_at=created_at,
            retire=retirer.retire,
            roll=lambda: 0,
        )
        return make_context_builder(
            personas=people,
            choose_version=chosen.apply_to_persona,
            choose_built_in=chosen.get_built_in,
        )

    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(
            run_engine(home, backend, clock=clock, context_builder=build)
        )
        (retirer,) = made
        model = BackgroundModelCalls(
            engine.gateway,
            lambda: ModelChoice(backend="fake", model="fake-1"),
            purpose=RunPurpose.EVOLVE,
        )
        service = EvolutionService(
            db=engine.db,
            versions=retirer.versions,
            repo=EvolutionRepo(engine.db),
            approvals=retirer.approvals,
            sources={
                PromptKind.PERSONA: PersonaTexts(catalog=people),
                PromptKind.BUILT_IN: BuiltInTexts(),
            },
            writer=ProposalWriter(
                db=engine.db, model=model, mask=lambda text: text.replace("hunter2", "***")
            ),
            retirer=retirer,
            limits=EvolutionLimits(
                mode=mode,
                share=50,
                lifetime=timedelta(days=7),
            ),
            ids=IdGenerator(),
            now=engine.clock,
        )
        await service.start(stack)
        yield EvolutionWorld(
            engine=engine,
            backend=backend,
            personas=people,
            service=service,
            versions=retirer.versions,
            approvals=retirer.approvals,
            courier=sent,
            shown=shown,
        )


def _make_retirer(
    db: Database, clock: ManualClock, courier: RecordingCourier, shown: list[Approval]
) -> VersionRetirer:
    versions = PromptVersionRepo(db)
    decisions = PromptDecisions(versions=versions, now=clock)

    async def owner_chats() -> Sequence[tuple[ChatId, Language]]:
        return [(CHAT.id, Language.ENGLISH)]

    async def show(approval: Approval) -> None:
        shown.append(approval)

    async def update_cards(_settled: Sequence[Approval]) -> None:
        """Cards are drawn elsewhere."""

    return VersionRetirer(
        db=db,
        versions=versions,
        approvals=ApprovalRepo(
            db, now=clock, decision_handlers={ApprovalKind.PROMPT: decisions.apply}
        ),
        poster=courier,
        owner_chats=owner_chats,
        show_request=show,
        update_cards=update_cards,
        now=clock,
    )
