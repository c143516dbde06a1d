"""Tool that runs shell commands in the sandbox."""

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

from bot.engine.llm.backend import WorkerMode
from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, int_field, object_schema
from bot.engine.permissions.call_checks import is_read_only_command
from bot.engine.sandbox.process_runner import (
    CommandHomes,
    ExitCause,
    ProcessResult,
    ProcessStartError,
    run_process,
)
from bot.engine.sandbox.spec import LimitEnforcement, Sandbox, SandboxedCommand

EXEC_TOOL = "exec"
DEFAULT_SECONDS, MAX_SECONDS = 120, 600
"""Time limit of a command."""

_SCHEMA = object_schema(
    "command",
    command="",
    seconds=int_field(
        f"How long it may take. Default {DEFAULT_SECONDS}.", minimum=1, maximum=MAX_SECONDS
    ),
)
STOP_REASONS = {
    ExitCause.TIMEOUT: "stopped: it took longer than {seconds} s",
    ExitCause.OUTPUT_LIMIT: "stopped: it printed too much",
    ExitCause.PROCESS_LIMIT: "stopped: it started too many processes",
}
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]{0,8}[0-~])"
)
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandShell:
    """The environment of commands.

    `homes` provides HOME per workspace; `env` builds the environment variables for a sandbox. With
    `refuses_unlimited` nothing runs where the kernel does not limit a command's processes."""

    sandbox: Callable[[], Awaitable[Sandbox]]
    homes: CommandHomes
    env: Callable[[Sandbox], Mapping[str, str]]
    network: bool = False
    refuses_unlimited: bool = False
    # One command or change at a time per workspace: they don't change each other's files, and no
    # script changes while it runs.
    locks: WeakValueDictionary[Path, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def lock_for(self, workspace: Path) -> asyncio.Lock:
        lock = self.locks.get(workspace)
        if lock is None:
            self.locks[workspace] = lock = asyncio.Lock()
        return lock


def exec_tool(workspace: Path, shell: CommandShell, mode: WorkerMode) -> AgentTool:
    async def call(arguments: Mapping[str, Any]) -> str:
        seconds = min(MAX_SECONDS, int(arguments.get("seconds") or DEFAULT_SECONDS))
        return await _run_command(shell, workspace, str(arguments["command"]), seconds, mode)

    async def detail(arguments: Mapping[str, Any]) -> str:
        return str(arguments["command"])

    network = "There is a network." if shell.network else "There is no network."
    return AgentTool(
        name=EXEC_TOOL,
        description=(
            "Run a shell command in the workspace, without input, and read what it prints. Only"
            f" the workspace can be written. {network} Processes that it starts end with it:"
            " nothing continues in the background."
        ),
        schema=_SCHEMA,
        run=call,
        kind=CallKind.EXECUTE,
        detail=detail,
        lock=shell.lock_for(workspace),
    )


_UNLIMITED = (
    "commands are off here: Shiftboss runs as root, commands in this folder cannot run as another"
    " user, and nothing limits their processes. An owner can run Shiftboss as another user, give it"
    " a control group (Delegate=yes under systemd), or set SHIFTBOSS_TOOLS_AS_ROOT=true"
)


class ShellRefused(Exception):
    """The command was not run; the message says why, for the model."""


async def run_in_shell(
    shell: CommandShell,
    workspace: Path,
    command: str,
    *,
    seconds: int,
    mode: WorkerMode,
    splits_errors: bool = False,
) -> ProcessResult:
    """Run a command that was allowed, in the sandbox. Raises ShellRefused."""
    if "\0" in command:
        raise ShellRefused("a command cannot hold a NUL character")
    sandbox = await shell.sandbox()
    # What runs unasked because it only reads changes nothing, even if that is an error.
    only_reads = is_read_only_command(command, workspace)
    home_name = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
    try:
        async with shell.homes.acquire(home_name) as home:
            limits = await asyncio.to_thread(sandbox.limits_for, workspace, home)
            if shell.refuses_unlimited and limits.enforcement is LimitEnforcement.NONE:
                raise ShellRefused(_UNLIMITED)
            sandboxed = SandboxedCommand(
                argv=(shutil.which("bash") or "/bin/sh", "-c", command),
                workspace=workspace,
                home=home,
                env=shell.env(sandbox),
                network=shell.network and not only_reads,
                writable=mode is WorkerMode.EXECUTE and not only_reads,
            )
            launch = await asyncio.to_thread(sandbox.wrap, sandboxed)
            return await run_process(launch, seconds=seconds, splits_errors=splits_errors)
    except (ProcessStartError, OSError) as error:
        raise ShellRefused(f"the command could not be started: {error}") from error


async def _run_command(
    shell: CommandShell, workspace: Path, command: str, seconds: int, mode: WorkerMode
) -> str:
    try:
        ended = await run_in_shell(shell, workspace, command, seconds=seconds, mode=mode)
    except ShellRefused as error:
        return f"{ERROR_PREFIX}{error}"
    return await asyncio.to_thread(_report, ended, seconds)


def _report(ended: ProcessResult, seconds: int) -> str:
    printed = terminal_text(ended.head)
    if ended.dropped:
        printed += f"\n[… {ended.dropped} bytes are lost here …]\n"
    printed += terminal_text(ended.tail)
    if ended.cause is not ExitCause.EXITED:
        first = ERROR_PREFIX + STOP_REASONS[ended.cause].format(seconds=seconds)
    elif ended.status:
        first = f"{ERROR_PREFIX}exit code {ended.status}"
    else:
        return printed or "[it printed nothing; exit code 0]"
    return f"{first}\n{printed}" if printed else first


def terminal_text(raw: bytes) -> str:
    """Remove escape sequences and control characters, and keep the last state of overwritten
    lines."""
    text = _ESCAPES.sub("", raw.decode("utf-8", "replace"))
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROL_CHARACTERS.sub("", "\n".join(lines))
