"""The fake CLI as an agent of ours: what it is to do, where it lives, what it was sent."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.engine.llm.acp.agent_config import AcpAgentConfig
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.acp.process import CliLaunch
from bot.engine.llm.acp.runtime import AcpRuntime
from bot.engine.llm.backend import WorkerMode

AGENT_SCRIPT = Path(__file__).with_name("agent.py")
OPTIONS = (
    {"optionId": "yes-always", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes-once", "name": "Yes", "kind": "allow_once"},
    {"optionId": "yes-other", "name": "Yes, too", "kind": "allow_once"},
    {"optionId": "no-once", "name": "No", "kind": "reject_once"},
)
MODES = {WorkerMode.PLAN: "plan", WorkerMode.EXECUTE: "default", WorkerMode.REVIEW: "plan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsandboxedLaunch:
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path


async def launch_unsandboxed(
    argv: Sequence[str],
    *,
    workspace: Path,
    home: Path,
    env: Mapping[str, str],
    readable: Sequence[Path],
    writable: bool,
) -> CliLaunch:
    return UnsandboxedLaunch(argv=tuple(argv), env=env, cwd=workspace)


def tool_call(command: str, call_id: str = "call-1", **more: Any) -> dict[str, Any]:
    """A wish to run a command, as CLIs tell of it."""
    told = {"toolCallId": call_id, "kind": "execute", "rawInput": {"command": command}}
    return {**told, "title": f"Run {command}", "status": "pending", **more}


def permission_request(
    command: str,
    call_id: str = "call-1",
    *,
    yes: Sequence[Mapping[str, Any]] = (),
    no: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    asked = {"toolCall": tool_call(command, call_id, **more), "options": list(OPTIONS)}
    return {"ask": asked, "yes": list(yes), "no": list(no)}


def result_reply(value: Mapping[str, Any]) -> dict[str, Any]:
    """Words that end with a result in the asked form."""
    return {"say": f"All done.\n```json\n{json.dumps(value)}\n```"}


class FakeCli:
    """`slots`, `patience` and `idle` are the house's."""

    def __init__(self, folder: Path, *, name: str = "fake", **runtime_options: Any) -> None:
        self.root = folder
        self.name = name
        self._scenario = folder / f"{name}.json"
        self._runtime_options = runtime_options
        self.agent = AcpAgentConfig(
            name=name,
            command=(sys.executable, "-S", "-E", str(AGENT_SCRIPT), str(self._scenario)),
            install_hint="",
            modes=MODES,
        )
        self._runs = 0

    def script(self, *turns: Sequence[Mapping[str, Any]], **scenario: Any) -> None:
        """The behaviour of each turn of a session; the last one is repeated."""
        told = {"turns": [list(turn) for turn in turns] or [[]], **scenario}
        self._scenario.write_text(json.dumps(told))

    def runtime(self, **more: Any) -> AcpRuntime:
        given: dict[str, Any] = {
            "root": self.root,
            "environ": dict(os.environ),
            "slots": asyncio.Semaphore(2),
            "new_id": self._new_id,
            "approval_wait": 900.0,
            "max_run_seconds": 3600.0,
            "launch": launch_unsandboxed,
            "cancel_grace": 0.3,
            "idle": IdleProcess(0),
        }
        return AcpRuntime(**(given | self._runtime_options | more))

    def backend(self, **more: Any) -> AcpBackend:
        return AcpBackend(lambda: self.agent, self.runtime(**more))

    def home(self, persona: str = "default") -> Path:
        return self.root / "agents" / self.name / persona

    def received(self, method: str = "", persona: str = "default") -> list[dict[str, Any]]:
        """The params of what it was sent, in order."""
        path = self.home(persona) / "received.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        messages = [json.loads(line) for line in lines]
        return [each.get("params", {}) for each in messages if each.get("method") == method]

    def prompts(self, persona: str = "default") -> list[str]:
        sent = self.received("session/prompt", persona)
        return ["".join(block.get("text", "") for block in each["prompt"]) for each in sent]

    def _new_id(self) -> str:
        self._runs += 1
        return f"{os.getpid()}-{id(self)}-{self._runs}"


def is_alive(pid: int) -> bool:
    """Zombies that nobody has fetched are not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
