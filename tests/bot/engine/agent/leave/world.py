"""Workers with a risky tool, on an emulated model API and a real store, over several lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from bot.engine.agent.leave.bell import Bell
from bot.engine.agent.leave.decided import Decided
from bot.engine.agent.leave.permits import Leaves
from bot.engine.agent.personas.persona import Persona
from bot.engine.agent.policy.judge import Grant, Ruling, Verdict
from bot.engine.agent.tools.ask_user import ask_user
from bot.engine.agent.workbench import Job, Workbench
from bot.engine.dispatch.decisions import Decisions
from bot.engine.llm.access import Api
from bot.engine.llm.base import Mode, Tool
from bot.engine.llm.calls import CallKind, ToolCall
from cards.reasons import because
from storage.agents.calls import CallRepo
from storage.agents.grants import GrantRepo
from storage.approvals import Approvals
from storage.db import Database, Transaction
from storage.records.approvals import Approval, ApprovalState
from storage.records.people import Language, PersonId
from storage.records.tasks import Task
from storage.records.tools import CallRecord
from storage.work.tasks import TaskRepo
from tests.bot.engine.llm.world import backend_of
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Call, Reply
from tests.engine_world import BOSS, CHAT, Clock, Engine, engine, no_wait, tool_asker
from tests.journeys.model_world import Stage

SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}
SECRET = "s3cret-of-the-house"


async def no_sandbox() -> bool:
    return False


class AskAboutDeploys:
    """Looking and taking notes are free, deploying is asked about, wiping is denied."""

    def judge(
        self,
        call: ToolCall,
        *,
        workspace: Path,
        grants: Sequence[Grant] = (),
        mode: Mode = Mode.EXECUTE,
        sandboxed: bool = False,
        persona: Persona | None = None,
    ) -> Ruling:
        command = str(call.arguments.get("command", ""))
        if call.name in {"look", "jot"}:
            return Ruling(verdict=Verdict.ALLOW, why=because("only_looks"))
        if command.startswith("wipe"):
            return Ruling(verdict=Verdict.DENY, why=because("destroys_outside"))
        if any((each.tool, each.pattern) == (call.name, command) for each in grants):
            return Ruling(verdict=Verdict.ALLOW, why=because("person_allowed"), pattern=command)
        return Ruling(verdict=Verdict.ASK, why=because("no_rule_for_it"), pattern=command)


@dataclass
class Hands:
    """What the tools have really done, in this life and those before."""

    ran: list[str] = field(default_factory=list)
    hold: asyncio.Event | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    def tools(self) -> tuple[Tool, ...]:
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
            Tool(name="look", description="Look.", schema=SCHEMA, run=look, kind=CallKind.READ),
            Tool(name="jot", description="Note.", schema=SCHEMA, run=jot, kind=CallKind.EDIT),
            Tool(
                name="deploy",
                description="Run a command.",
                schema=SCHEMA,
                run=deploy,
                kind=CallKind.EXECUTE,
                detail=exactly,
            ),
            ask_user(),
        )


@dataclass
class Shop:
    """One life. `stage` says what the model says."""

    world: Engine
    approvals: Approvals
    calls: CallRepo
    grants: GrantRepo
    leaves: Leaves
    stage: Stage
    hands: Hands
    shown: list[Approval]
    bench: Workbench
    _sources: Any = field(default_factory=count)

    async def request(self, task: Task) -> Approval:
        """The one request that waits for a decision about the task."""
        async with asyncio.timeout(60):
            while True:
                waiting = [
                    each
                    for each in await self.approvals.of_task(task.id)
                    if each.state is ApprovalState.WAITING
                ]
                if waiting:
                    (only,) = waiting
                    return only
                await asyncio.sleep(0.005)

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
        self.leaves.bell.ring()
        self.world.dispatcher.wake()
        return decided

    async def of_task(self, task: Task) -> Sequence[CallRecord]:
        return await self.calls.of_task(task.id, 50)


def decisions_on(world: Engine) -> Approvals:
    async def english(_task: Task) -> Language:
        return Language.ENGLISH

    async def name_of(_person: PersonId) -> str:
        return "Boss"

    async def grant(_tx: Transaction, _approval: Approval) -> None:
        pass

    calls, clock = CallRepo(world.db), world.clock
    decisions = Decisions(
        store=world.store,
        language_of=english,
        name_of=name_of,
        now=clock,
        grant=grant,
        decided=Decided(
            calls=calls,
            grants=GrantRepo(world.db),
            asker=tool_asker(world.db, clock),
            now=clock,
        ),
    )
    return Approvals(world.db, now=clock, consequences=decisions.consequences)


def leaves_on(db: Database, clock: Clock, shown: list[Approval]) -> Leaves:
    async def show(approval: Approval) -> None:
        shown.append(approval)

    return Leaves(
        db=db,
        calls=CallRepo(db),
        grants=GrantRepo(db),
        tasks=TaskRepo(db),
        asker=tool_asker(db, clock),
        judge=AskAboutDeploys(),
        mask=lambda text: text.replace(SECRET, "••••"),
        sandboxed=no_sandbox,
        bell=Bell(),
        show=show,
        now=clock,
        sleep=no_wait,
    )


@asynccontextmanager
async def shop(
    home: Path,
    models: Models,
    stage: Stage,
    hands: Hands,
    *,
    api: Api = Api.ANTHROPIC,
    running: bool = True,
    clock: Clock | None = None,
) -> AsyncGenerator[Shop, None]:
    backend: Any = backend_of(models, api)
    models.replies(stage)
    shown: list[Approval] = []
    made: list[Leaves] = []
    benches: list[Workbench] = []

    def bench(db: Database, clock: Clock) -> Workbench:
        made.append(leaves_on(db, clock, shown))

        def tools(_job: Job, _persona: Persona) -> Sequence[Tool]:
            return hands.tools()

        benches.append(Workbench(makers=(tools,), permits=made[0]))
        return benches[0]

    try:
        async with engine(home, backend, bench=bench, running=running, clock=clock) as world:
            yield Shop(
                world=world,
                approvals=decisions_on(world),
                calls=CallRepo(world.db),
                grants=GrantRepo(world.db),
                leaves=made[0],
                stage=stage,
                hands=hands,
                shown=shown,
                bench=benches[0],
            )
    finally:
        await backend.aclose()


def does(tool: str, command: str) -> Reply:
    return Reply(calls=[Call(name=tool, arguments={"command": command})])


def does_both(*commands: str) -> Reply:
    calls = [Call(name="deploy", arguments={"command": each}) for each in commands]
    return Reply(calls=[Call(name="look", arguments={"command": "around"}), *calls])


__all__ = [
    "BOSS",
    "CHAT",
    "SECRET",
    "Hands",
    "Shop",
    "does",
    "does_both",
    "shop",
]
