"""Shared by the tests of coding CLIs: a request, a person who decides, and a run to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.engine.agent.worker_context import WorkerContextBuilder
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import AgentEvent, Backend, RunPurpose, RunRequest, RunResult
from bot.engine.llm.tool_calls import CallDecision, CallVerdict, ToolCall
from storage.approvals import ApprovalRepo
from storage.db import Database
from storage.records.approvals import Approval, ApprovalState
from storage.records.tasks import Task, TaskStatus
from tests.agent_builders import make_context_builder
from tests.bot.engine.permissions.builders import build_approvals, build_permission_service
from tests.emulators.acp.fake_cli import FakeCli, result_reply
from tests.engine_harness import BOSS, EngineHarness, ManualClock, run_engine

DONE_ANSWER = {"status": "done", "summary": "It is done."}
ALLOW = CallDecision(verdict=CallVerdict.ALLOW)
DENY = CallDecision(verdict=CallVerdict.DENY, text="Not on a Friday.")
PENDING = CallDecision(verdict=CallVerdict.PENDING)


class FakeCallAuthorizer:
    """Decides by command; `asked` is set with the first question, and one without a decision
    waits for ever. `earlier` are decisions of another life, by number: each is given once, and
    `begun` are the calls that were made by them."""

    def __init__(
        self,
        decisions: Mapping[str, CallDecision] | None = None,
        earlier: Mapping[str, CallDecision] | None = None,
    ) -> None:
        self._decisions = decisions or {}
        self._earlier = dict(earlier or {})
        self.reused: list[str] = []
        self.calls: list[ToolCall] = []
        self.wait_seconds: list[float] = []
        self.outcomes: list[tuple[str, bool, str]] = []
        self.was_asked = asyncio.Event()

    async def __call__(self, call: ToolCall, *, wait_seconds: float = 0.0) -> CallDecision:
        if (known := self._earlier.pop(call.call_id, None)) is not None:
            self.reused.append(call.call_id)
            return known
        self.calls.append(call)
        self.wait_seconds.append(wait_seconds)
        self.was_asked.set()
        said = self._decisions.get(str(call.arguments.get("command", call.name)))
        if said is None:
            await asyncio.Event().wait()
        assert said is not None
        return said

    def restart(self) -> FakeCallAuthorizer:
        return self

    async def record_outcome(
        self, call_id: str, *, succeeded: bool, outcome: str, size: int = 0
    ) -> None:
        self.outcomes.append((call_id, succeeded, outcome))


def step_request(cli: FakeCli, prompt: str = "Do it.", **more: Any) -> RunRequest:
    """A step of a task, in a workspace of its own."""
    workspace = cli.root / "workspace"
    workspace.mkdir(exist_ok=True)
    asked: dict[str, Any] = {
        "purpose": RunPurpose.STEP,
        "prompt": prompt,
        "system": "You are a test.",
        "model": "",
        "language": "en",
        "workspace": workspace,
        "result": StepAnswer,
    }
    return RunRequest(**(asked | more))


def chat_request(cli: FakeCli, prompt: str = "Hello.", **more: Any) -> RunRequest:
    return step_request(cli, prompt, purpose=RunPurpose.CHAT, workspace=None, result=None, **more)


async def collect_run(backend: Backend, request: RunRequest) -> tuple[list[AgentEvent], RunResult]:
    async with backend.run(request) as run:
        events = [event async for event in run.events]
        return events, run.result


def read_pid(path: Path) -> int:
    return int(path.read_text())


PLAN_REPLY = result_reply({"plan": "Ship it.", "steps": [{"title": "go live"}]})


class CliBackend(AcpBackend):
    models = ("",)


@dataclass
class CliTask:
    """`made` is a file with a line for each time that the call was really made."""

    world: EngineHarness
    approvals: ApprovalRepo
    log_file: Path

    @property
    def call_count(self) -> int:
        return len(self.log_file.read_text().splitlines()) if self.log_file.exists() else 0

    async def pending_approval(self, task: Task) -> Approval:
        await self.world.until(task, TaskStatus.WAITING)
        (open_,) = [
            each
            for each in await self.approvals.list_by_task(task.id)
            if each.state is ApprovalState.WAITING
        ]
        return open_

    async def run_to_end(self, task: Task) -> TaskStatus:
        """Somebody decides whatever is asked, and allows only what was not made already."""

        async def look() -> TaskStatus | None:
            for each in await self.approvals.list_by_task(task.id):
                if each.state is ApprovalState.WAITING:
                    await self.decide(each, approve=not self.call_count)
            status = (await self.world.store.tasks.get(task.id)).status
            return status if status.is_final else None

        return await self.world.db.commits.until_found(look)

    async def decide(self, approval: Approval, *, approve: bool) -> None:
        source = f"d:{approval.id}"
        await self.approvals.decide(approval, approve=approve, by=BOSS, source=source)
        self.world.dispatcher.wake()


@asynccontextmanager
async def run_cli_task(
    cli: FakeCli, clock: ManualClock, **runtime_options: Any
) -> AsyncGenerator[CliTask, None]:
    def bench(db: Database, clock: ManualClock) -> WorkerContextBuilder:
        return make_context_builder(authorizer_factory=build_permission_service(db, clock, []))

    backend: Any = CliBackend(lambda: cli.agent, cli.runtime(approval_wait=0, **runtime_options))
    async with run_engine(cli.root, backend, context_builder=bench, clock=clock) as world:
        yield CliTask(world=world, approvals=build_approvals(world), log_file=cli.root / "made.txt")
