"""Run a shell command in the workspace, held in by the sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from bot.engine.agent.sandbox.base import Launch, Sandbox
from bot.engine.agent.sandbox.homes import Homes
from bot.engine.agent.sandbox.processes import CannotRun, End, Ended, run
from bot.engine.llm.base import ERROR, Mode, Tool
from bot.engine.llm.calls import CallKind

NAME = "exec"
USUAL, MOST = 120, 600
"""Seconds that a command may take."""

_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "For the shell, in the workspace."},
        "seconds": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST,
            "description": f"How long it may take. Default {USUAL}.",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}
_WHY = {
    End.TIME: "stopped: it took longer than {seconds} s",
    End.PRINTED: "stopped: it printed too much",
    End.PROCESSES: "stopped: it started too many processes",
}
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]{0,8}[0-~])"
)
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Where commands run. `homes` lends a folder per workspace, which is HOME there; `env` makes
    their environment for a sandbox."""

    sandbox: Callable[[], Awaitable[Sandbox]]
    homes: Homes
    env: Callable[[Sandbox], Mapping[str, str]]
    network: bool = False
    # One at a time in a workspace: a command must not change what the next one is started on.
    turns: WeakValueDictionary[Path, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def turn(self, workspace: Path) -> asyncio.Lock:
        lock = self.turns.get(workspace)
        if lock is None:
            self.turns[workspace] = lock = asyncio.Lock()
        return lock


def exec_command(workspace: Path, shell: Shell, mode: Mode) -> Tool:
    async def call(arguments: Mapping[str, Any]) -> str:
        seconds = min(MOST, int(arguments.get("seconds") or USUAL))
        async with shell.turn(workspace):
            return await _ran(shell, workspace, str(arguments["command"]), seconds, mode)

    async def detail(arguments: Mapping[str, Any]) -> str:
        return str(arguments["command"])

    network = "There is a network." if shell.network else "There is no network."
    return Tool(
        name=NAME,
        description=(
            "Run a shell command in the workspace, without input, and read what it prints. Only"
            f" the workspace can be written. {network} Whatever it starts ends with it: nothing"
            " goes on in the background."
        ),
        schema=_SCHEMA,
        run=call,
        kind=CallKind.EXECUTE,
        detail=detail,
    )


async def _ran(shell: Shell, workspace: Path, command: str, seconds: int, mode: Mode) -> str:
    if "\0" in command:
        return f"{ERROR}a command cannot hold a NUL character"
    sandbox = await shell.sandbox()
    try:
        async with shell.homes.lent(_home_of(workspace)) as home:
            launch = await asyncio.to_thread(
                _launch,
                shell,
                sandbox,
                command,
                workspace=workspace,
                home=home,
                writable=mode is Mode.EXECUTE,
            )
            ended = await run(launch, seconds=seconds)
    except (CannotRun, OSError) as error:
        return f"{ERROR}the command could not be started: {error}"
    return await asyncio.to_thread(_report, ended, seconds)


def _launch(
    shell: Shell, sandbox: Sandbox, command: str, *, workspace: Path, home: Path, writable: bool
) -> Launch:
    program = shutil.which("bash") or "/bin/sh"
    return sandbox.wrap(
        (program, "-c", command),
        workspace=workspace,
        network=shell.network,
        env=shell.env(sandbox),
        home=home,
        writable=writable,
    )


def _home_of(workspace: Path) -> str:
    return hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]


def _report(ended: Ended, seconds: int) -> str:
    printed = _plain(ended.head)
    if ended.dropped:
        printed += f"\n[… {ended.dropped} bytes are lost here …]\n"
    printed += _plain(ended.tail)
    if ended.end is not End.EXITED:
        first = ERROR + _WHY[ended.end].format(seconds=seconds)
    elif ended.status:
        first = f"{ERROR}exit code {ended.status}"
    else:
        return printed or "[it printed nothing; exit code 0]"
    return f"{first}\n{printed}" if printed else first


def _plain(raw: bytes) -> str:
    """As a terminal would leave it in the end: no colours, no control characters, and of a line
    written over and over the last state."""
    text = _ESCAPES.sub("", raw.decode("utf-8", "replace"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _UNSEEN.sub("", "\n".join(lines))
