"""What the tests of coding CLIs share: a request, somebody who decides, and a run to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bot.engine.llm.answers import StepAnswer
from bot.engine.llm.base import Backend, Purpose, RunRequest, RunResult
from bot.engine.llm.calls import Leave, Permission, ToolCall
from bot.engine.llm.events import AgentEvent
from tests.emulators.acp.cli import FakeCli

DONE = {"status": "done", "summary": "It is done."}
ALLOW = Permission(leave=Leave.ALLOW)
DENY = Permission(leave=Leave.DENY, text="Not on a Friday.")
LATER = Permission(leave=Leave.LATER)


class FakePermit:
    """Decides by command; `asked` is set with the first question, and one without a decision
    waits for ever. `earlier` are decisions of another life, by number: each is given once, and
    `begun` are the calls that were made by them."""

    def __init__(
        self,
        decisions: Mapping[str, Permission] | None = None,
        earlier: Mapping[str, Permission] | None = None,
    ) -> None:
        self._decisions = decisions or {}
        self._earlier = dict(earlier or {})
        self.begun: list[str] = []
        self.calls: list[ToolCall] = []
        self.patience: list[float] = []
        self.outcomes: list[tuple[str, bool, str]] = []
        self.asked = asyncio.Event()

    async def __call__(self, call: ToolCall, *, patience: float = 0.0) -> Permission:
        if (known := self._earlier.pop(call.call_id, None)) is not None:
            self.begun.append(call.call_id)
            return known
        self.calls.append(call)
        self.patience.append(patience)
        self.asked.set()
        said = self._decisions.get(str(call.arguments.get("command", call.name)))
        if said is None:
            await asyncio.Event().wait()
        assert said is not None
        return said

    async def ended(self, call_id: str, *, good: bool, outcome: str, size: int = 0) -> None:
        self.outcomes.append((call_id, good, outcome))


def step(cli: FakeCli, prompt: str = "Do it.", **more: Any) -> RunRequest:
    """A step of a task, in a workspace of its own."""
    workspace = cli.root / "workspace"
    workspace.mkdir(exist_ok=True)
    asked: dict[str, Any] = {
        "purpose": Purpose.STEP,
        "prompt": prompt,
        "system": "You are a test.",
        "model": "",
        "language": "en",
        "workspace": workspace,
        "result": StepAnswer,
    }
    return RunRequest(**(asked | more))


def talk(cli: FakeCli, prompt: str = "Hello.", **more: Any) -> RunRequest:
    return step(cli, prompt, purpose=Purpose.CHAT, workspace=None, result=None, **more)


async def run_to_end(backend: Backend, request: RunRequest) -> tuple[list[AgentEvent], RunResult]:
    async with backend.run(request) as run:
        events = [event async for event in run.events]
        return events, run.result


def pid_in(path: Path) -> int:
    return int(path.read_text())
