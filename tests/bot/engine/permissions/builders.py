"""Workers with a risky tool, on an emulated model API and a real store, over several lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.llm.api.access import ApiProvider
from bot.engine.llm.backend import McpServer, WorkerMode
from bot.engine.llm.backend_registry import BackendSelector
from bot.engine.llm.tool_calls import AgentTool, CallKind, ToolCall
from bot.engine.permissions.policy import PolicyDecision, PolicyVerdict
from bot.engine.permissions.requests import DecisionRecorder, DecisionSignal
from bot.engine.permissions.service import PermissionService
from bot.engine.sandbox.backends import SupervisedSandbox
from bot.engine.sandbox.spec import FilesystemView, Sandbox, SandboxKind, default_limits
from bot.engine.tasks.approvals import TaskApprovalEffects
from bot.engine.tools.ask_user import ask_user_tool
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import WorkerSpec
from cards.permission_reasons import build_reason
from storage.approvals import ApprovalRepo
from storage.db import Database, Transaction
from storage.records.approvals import Approval, ApprovalState, StandingPermission, ToolCallRecord
from storage.records.people import Language, PersonId
from storage.records.tasks import Task
from storage.tasks import TaskRepo
from storage.tools import PermissionGrantRepo, ToolCallRepo
from tests.agent_builders import make_context_builder
from tests.bot.engine.llm.builders import build_backend
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedReply
from tests.engine_harness import (
    BOSS,
    EngineHarness,
    ManualClock,
    make_approval_requester,
    make_undoing,
    no_sleep,
    run_engine,
)
from tests.journeys.model_world import ScriptedModel

SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}
SECRET = "s3cret-of-the-house"


async def no_sandbox() -> Sandbox:
    view = FilesystemView(readable=(), hidden=())
    return SupervisedSandbox(kind=SandboxKind.NONE, view=view, limits=default_limits())


async def no_servers() -> Sequence[McpServer]:
    return ()


class AskAboutDeploys:
    """Looking and taking notes are free, deploying is asked about, wiping is denied."""

    def evaluate(
        self,
        call: ToolCall,
        *,
        workspace: Path,
        grants: Sequence[StandingPermission] = (),
        mode: WorkerMode = WorkerMode.EXECUTE,
        is_sandboxed: bool = False,
        is_trusted: bool = False,
        for_owner: bool = False,
        with_app_rights: bool = False,
        persona: Persona | None = None,
        files: str = "",
    ) -> PolicyDecision:
        command = str(call.arguments.get("command", ""))
        if call.name in {"look", "jot"}:
            return PolicyDecision(verdict=PolicyVerdict.ALLOW, reason=build_reason("only_looks"))
        if command.startswith("wipe"):
            return PolicyDecision(
                verdict=PolicyVerdict.DENY, reason=build_reason("destroys_outside")
            )
        if any((each.tool, each.pattern) == (call.name, command) for each in grants):
            return PolicyDecision(
                verdict=PolicyVerdict.ALLOW, reason=build_reason("person_allowed"), pattern=command
            )
        return PolicyDecision(
            verdict=PolicyVerdict.ASK, reason=build_reason("no_rule_for_it"), pattern=command
        )


@dataclass
class ScriptedWorker:
    """The real effects of the tools, in this life and earlier ones."""

    ran: list[str] = field(default_factory=list)
    hold: asyncio.Event | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tools(self) -> tuple[AgentTool, ...]:
        async def look(arguments: Mapping[str, Any]) -> str:
            self.ran.append(f"look {arguments['command']}")
            return "nothing special"

        async def jot(arguments: Mapping[str, Any]) -> str:
            self.ran.append(f"jot {arguments['command']}")
            return f"it is note {len(self.ran)}"

        async def deploy(arguments: Mapping[str, Any]) -> str:
            self.ran.append(str(arguments["command"]))
            self.begun.set()
            if self.hold is not None:
                await self.hold.wait()
            return f"did {arguments['command']} with {SECRET}"

        async def exactly(arguments: Mapping[str, Any]) -> str:
            return str(arguments["command"])

        return (
            AgentTool(
                name="look", description="Look.", schema=SCHEMA, run=look, kind=CallKind.READ
            ),
            AgentTool(name="jot", description="Note.", schema=SCHEMA, run=jot, kind=CallKind.EDIT),
            AgentTool(
                name="deploy",
                description="Run a command.",
                schema=SCHEMA,
                run=deploy,
                kind=CallKind.EXECUTE,
                detail=exactly,
                lock=self.lock,
            ),
            ask_user_tool(),
        )


@dataclass
class PermissionSetup:
    """One life. `stage` says what the model says."""

    world: EngineHarness
    approvals: ApprovalRepo
    calls: ToolCallRepo
    grants: PermissionGrantRepo
    leaves: PermissionService
    stage: ScriptedModel
    hands: ScriptedWorker
    shown: list[Approval]
    bench: WorkerContextBuilder
    _sources: Any = field(default_factory=count)

    async def request(self, task: Task) -> Approval:
        """The one request that waits for a decision about the task."""

        async def look() -> Approval | None:
            asked = await self.approvals.list_by_task(task.id)
            waiting = [each for each in asked if each.state is ApprovalState.WAITING]
            if not waiting:
                return None
            (only,) = waiting
            return only

        return await self.world.db.commits.until_found(look)

    async def decide(
        self, approval: Approval, *, approve: bool = True, reason: str = "", scope: str = ""
    ) -> Approval:
        decided = await self.approvals.decide(
            approval,
            approve=approve,
            by=BOSS,
            source=f"d:{approval.id}:{next(self._sources)}",
            reason=reason,
            scope=scope,
        )
        self.leaves.signal.notify()
        self.world.dispatcher.wake()
        return decided

    async def of_task(self, task: Task) -> Sequence[ToolCallRecord]:
        return await self.calls.list_by_task(task.id, 50)


def build_approvals(world: EngineHarness) -> ApprovalRepo:
    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    async def name_of(_person: PersonId) -> str:
        return "Boss"

    async def grant(_tx: Transaction, _approval: Approval) -> None:
        pass

    calls, clock = ToolCallRepo(world.db), world.clock
    decisions = TaskApprovalEffects(
        store=world.store,
        language_of=english,
        name_of=name_of,
        now=clock,
        undoing=make_undoing(world.store, clock),
        grant_budget=grant,
        tool_decisions=DecisionRecorder(
            calls=calls,
            grants=PermissionGrantRepo(world.db),
            requester=make_approval_requester(world.db, clock),
            now=clock,
        ),
    )
    return ApprovalRepo(world.db, now=clock, decision_handlers=decisions.consequences)


def build_permission_service(
    db: Database, clock: ManualClock, shown: list[Approval]
) -> PermissionService:
    async def show(approval: Approval) -> None:
        shown.append(approval)

    return PermissionService(
        db=db,
        calls=ToolCallRepo(db),
        grants=PermissionGrantRepo(db),
        tasks=TaskRepo(db),
        requester=make_approval_requester(db, clock),
        policy=AskAboutDeploys(),
        mask=lambda text: text.replace(SECRET, "••••"),
        sandbox=no_sandbox,
        servers=no_servers,
        trusts_sandbox=False,
        signal=DecisionSignal(),
        show_request=show,
        now=clock,
        sleep=no_sleep,
    )


@asynccontextmanager
async def permission_setup(
    home: Path,
    models: ModelEmulator,
    stage: ScriptedModel,
    hands: ScriptedWorker,
    *,
    api: ApiProvider = ApiProvider.ANTHROPIC,
    start_dispatcher: bool = True,
    clock: ManualClock | None = None,
    backends: BackendSelector | None = None,
) -> AsyncGenerator[PermissionSetup, None]:
    """`backends` choose who works, where it is not always `api`."""
    backend: Any = build_backend(models, api)
    models.replies(stage)
    shown: list[Approval] = []
    made: list[PermissionService] = []
    benches: list[WorkerContextBuilder] = []

    def bench(db: Database, clock: ManualClock) -> WorkerContextBuilder:
        made.append(build_permission_service(db, clock, shown))

        def tools(_job: WorkerSpec, _persona: Persona) -> Sequence[AgentTool]:
            return hands.tools()

        benches.append(make_context_builder(tool_factories=(tools,), authorizer_factory=made[0]))
        return benches[0]

    try:
        async with run_engine(
            home,
            backend,
            context_builder=bench,
            start_dispatcher=start_dispatcher,
            clock=clock,
            backends=backends,
        ) as world:
            yield PermissionSetup(
                world=world,
                approvals=build_approvals(world),
                calls=ToolCallRepo(world.db),
                grants=PermissionGrantRepo(world.db),
                leaves=made[0],
                stage=stage,
                hands=hands,
                shown=shown,
                bench=benches[0],
            )
    finally:
        await backend.aclose()


def reply_with_call(tool: str, command: str) -> ScriptedReply:
    return ScriptedReply(calls=[ScriptedCall(name=tool, arguments={"command": command})])


def reply_with_calls(*commands: str) -> ScriptedReply:
    calls = [ScriptedCall(name="deploy", arguments={"command": each}) for each in commands]
    return ScriptedReply(calls=[ScriptedCall(name="look", arguments={"command": "around"}), *calls])
