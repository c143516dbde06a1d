"""Whose MCP servers are started, and what a configured one needs: variables to fill in, secrets,
and what cannot be used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from bot.engine.llm.backend import McpServer, RunNotice, WorkerMode
from bot.engine.llm.tool_calls import AgentTool
from bot.engine.sandbox.spec import common_git_folder
from bot.engine.workers.spec import CostAccount
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId

CLIENT_NAME = "Shiftboss"
_MIN_SECRET_CHARS = 8
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class McpError(Exception):
    """The server failed or did not answer; the message is for people and the model.

    `ended` means that the connection is of no further use."""

    def __init__(self, text: str, *, ended: bool = False) -> None:
        self.ended = ended
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpScope:
    """Whose servers they are. What a server holds in memory never reaches another scope."""

    workspace: Path
    mode: WorkerMode = WorkerMode.EXECUTE
    persona: str = ""
    person: PersonId | None = None
    chat: ChatId | None = None
    task: TaskId | None = None

    @classmethod
    def of(cls, account: CostAccount, workspace: Path, mode: WorkerMode, persona: str) -> Self:
        return cls(
            workspace=workspace,
            mode=mode,
            persona=persona,
            person=account.person,
            chat=account.chat,
            task=account.task,
        )


def find_project(workspace: Path, data_dir: Path) -> Path | None:
    """Return what is the same in all workspaces of a project: the git folder of a worktree's
    repository, or the project's own folder. None for a task's own folder. Blocking."""
    project = common_git_folder(workspace)
    if project is None and not workspace.is_relative_to(data_dir):
        project = workspace
    return project


def fill_variables(server: McpServer, variables: Mapping[str, str]) -> McpServer:
    """Replace `${NAME}` in its values. Raises McpError if a variable is not set."""
    return replace(
        server,
        env={name: _substitute(data, variables) for name, data in server.env.items()},
        headers={name: _substitute(data, variables) for name, data in server.headers.items()},
        oauth={name: _substitute(data, variables) for name, data in server.oauth.items()},
        secrets=server_secrets(server, variables),
    )


def server_secrets(server: McpServer, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of referenced variables, longest first, for masking."""
    named = " ".join((*server.env.values(), *server.headers.values(), *server.oauth.values()))
    given = {variables.get(name, "") for name in _VARIABLE.findall(named)}
    secrets = (each for each in given if len(each) >= _MIN_SECRET_CHARS)
    return tuple(sorted(secrets, key=lambda each: (-len(each), each)))


def referenced_variables(text: str) -> tuple[str, ...]:
    """Return the names in `${NAME}`."""
    return tuple(dict.fromkeys(_VARIABLE.findall(text)))


def _substitute(data: str, variables: Mapping[str, str]) -> str:
    def known(found: re.Match[str]) -> str:
        if found[1] not in variables:
            raise McpError(f"the variable {found[1]} is not set")
        return variables[found[1]]

    return _VARIABLE.sub(known, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedServers:
    """The tools of connected servers and notices about failed ones.

    `servers` are those that a coding CLI starts itself."""

    tools: tuple[AgentTool, ...] = ()
    servers: tuple[McpServer, ...] = ()
    notes: tuple[RunNotice, ...] = ()
