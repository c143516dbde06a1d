"""Prepares the sandboxed start of an MCP server."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from bot.engine.llm.backend import McpServer, WorkerMode
from bot.engine.mcp.client.server_config import McpError, McpScope
from bot.engine.sandbox.spec import SandboxedCommand, SandboxLaunch, common_git_folder
from bot.engine.tools.shell_exec import CommandShell

_DIGEST_CHARS = 16


def home_name(server: str, scope: McpScope, data_dir: Path) -> str:
    """Return the name of the server's home: one for each person, chat and project.

    Tasks without a project share the chat's. Blocking."""
    workspace = scope.workspace
    project = common_git_folder(workspace)
    if project is None and not workspace.is_relative_to(data_dir):
        project = workspace
    owner = "\0".join((str(scope.person), str(scope.chat), str(project or "")))
    return f"mcp-{server}-{hashlib.sha256(owner.encode()).hexdigest()[:_DIGEST_CHARS]}"


def identify_folder(workspace: Path) -> tuple[int, int]:
    """Create the workspace if needed, and return a value that distinguishes it from a later folder
    of that name.

    Blocking. Raises OSError."""
    workspace.mkdir(parents=True, exist_ok=True)
    seen = workspace.stat()
    return seen.st_dev, seen.st_ino


async def build_launch(
    shell: CommandShell, server: McpServer, scope: McpScope, home: Path
) -> SandboxLaunch:
    """Raises McpError."""
    sandbox = await shell.sandbox()

    def wrap() -> SandboxLaunch:
        env = {**shell.env(sandbox), **server.env}
        program = shutil.which(server.command[0], path=env.get("PATH"))
        if program is None:
            raise McpError(f"there is no program {server.command[0]!r}")
        command = SandboxedCommand(
            argv=(program, *server.command[1:]),
            workspace=scope.workspace,
            home=home,
            env=env,
            # Configuring a server implies network access; its calls are authorized one by one.
            network=True,
            readable=_readable_paths(program, server.command),
            writable=scope.mode is WorkerMode.EXECUTE,
        )
        return sandbox.wrap(command)

    try:
        return await asyncio.to_thread(wrap)
    except (OSError, ValueError) as error:
        raise McpError(f"it could not be started: {error}") from error


def _readable_paths(program: str, command: Sequence[str]) -> list[Path]:
    """Return the program's installation folders and the files named in the command."""
    needed: list[Path] = []
    for path in (Path(program), Path(program).resolve()):
        folder = path.parent.parent if path.parent.name == "bin" else path.parent
        if len(folder.parts) > 2 and folder != Path.home():  # noqa: PLR2004 - neither / nor /home
            needed.append(folder)
    named = [Path(each) for each in command[1:] if each.startswith("/")]
    return [*needed, *(each for each in named if each.is_file())]
