"""A project's own MCP servers, from its `.mcp.json`: they start only after an owner allowed them.

Whoever can change the project can write that file: the authors of a repository, and workers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from bot.engine.llm.backend import McpServer, RunNotice
from bot.engine.mcp.client.server_config import McpError, find_project, referenced_variables
from bot.engine.permissions.call_effects import hash_program_files
from bot.engine.permissions.requests import ApprovalRequester
from bot.engine.workers.mcp_config import InvalidMcpConfig, parse_mcp_config, read_mcp_file
from bot.engine.workers.spec import WorkerSpec
from storage.approvals import NewApproval, add_approval, newest_approval_of_subject
from storage.db import Database, Transaction
from storage.errors import NotFound
from storage.key_value import KeyValueStore
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import ChatId
from storage.records.workers import McpConsent

PROJECT_FILE = ".mcp.json"
_CONSENTS = "mcp.consents"
_MAX_CONSENTS = 200
"""Older ones are forgotten, so that they are asked for again."""
_MAX_NAMED_CHARS = 200


@dataclass(frozen=True, slots=True)
class McpConsents:
    """Decisions of owners about the servers of projects, by the hash of what they saw."""

    db: Database
    key_values: KeyValueStore

    async def apply_decision(self, tx: Transaction, approval: Approval) -> None:
        """Remember a yes or a no; what has expired is asked for again."""
        if approval.state is ApprovalState.EXPIRED:
            return
        consent = McpConsent(
            id=approval.id,
            project=str(approval.payload.get("project", "")),
            servers=tuple(approval.payload.get("servers", ())),
            is_allowed=approval.state is ApprovalState.APPROVED,
        )
        stored = dict(await self.key_values.read(tx, _CONSENTS) or {})
        stored.pop(approval.subject, None)
        stored[approval.subject] = asdict(consent)
        await self.key_values.write(tx, _CONSENTS, dict([*stored.items()][-_MAX_CONSENTS:]))

    async def get_all(self) -> Mapping[str, McpConsent]:
        """By hash, oldest first."""
        stored = await self.key_values.get(_CONSENTS) or {}
        return {digest: _consent(each) for digest, each in stored.items()}

    async def revoke(self, consent_id: str) -> McpConsent | None:
        """Forget the decision, so that it is asked for again; None if there is no such one."""
        async with self.db.write() as tx:
            stored = dict(await self.key_values.read(tx, _CONSENTS) or {})
            digest = next((key for key, each in stored.items() if each["id"] == consent_id), None)
            if digest is None:
                return None
            gone = _consent(stored.pop(digest))
            await self.key_values.write(tx, _CONSENTS, stored)
        return gone


def _consent(stored: Mapping[str, Any]) -> McpConsent:
    return McpConsent(**{**stored, "servers": tuple(stored["servers"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProjectFile:
    """A valid file with servers. `digest` covers the project, the file and the files that its
    commands name."""

    project: Path
    servers: tuple[McpServer, ...]
    digest: str

    @property
    def server_names(self) -> str:
        return ", ".join(each.name for each in self.servers)[:_MAX_NAMED_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectServers:
    """Finds the servers of the project that a task works in. `show_request` publishes the card of a
    new request; `mask` removes secrets from it."""

    consents: McpConsents
    requester: ApprovalRequester
    show_request: Callable[[Approval], Awaitable[None]]
    mask: Callable[[str], str]
    data_dir: Path

    async def list_servers(self, spec: WorkerSpec) -> Sequence[McpServer]:
        """Return the servers that were allowed as they are now. In place of others, which an owner
        is asked about once, one that is withheld."""
        if spec.is_chat:
            return ()
        try:
            found = await asyncio.to_thread(_read_project_file, spec.workspace, self.data_dir)
        except InvalidMcpConfig as error:
            return (_withheld("invalid", detail=str(error)),)
        if found is None:
            return ()
        consent = (await self.consents.get_all()).get(found.digest)
        if consent is not None and consent.is_allowed:
            return found.servers
        if consent is None and spec.account.chat is not None:
            await self._ask(found, spec.account.chat)
        state = "refused" if consent else "waiting"
        return (_withheld(state, servers=found.server_names),)

    async def _ask(self, found: _ProjectFile, chat: ChatId) -> None:
        now = self.requester.now()
        new = NewApproval(
            kind=ApprovalKind.MCP,
            chat_id=chat,
            title=f"{found.project.name}/{PROJECT_FILE}",
            detail=self.mask("\n\n".join(map(_describe_server, found.servers))),
            expires_at=now + self.requester.lifetime,
            subject=found.digest,
            command_hash=found.digest,
            payload={
                "project": str(found.project),
                "servers": [each.name for each in found.servers],
            },
        )
        async with self.consents.db.write() as tx:
            if await _is_waiting(tx, found.digest, now):
                return
            approval = await add_approval(tx, new, ids=self.requester.ids, now=now)
        await self.show_request(approval)


async def _is_waiting(tx: Transaction, digest: str, now: datetime) -> bool:
    try:
        newest = await newest_approval_of_subject(tx, ApprovalKind.MCP, digest, now=now)
    except NotFound:
        return False
    return newest.state is ApprovalState.WAITING


def check_files(server: McpServer, workspace: Path) -> None:
    """Blocking. Raises McpError if the files that an allowed server runs have changed since."""
    if server.files_hash and _hash_files(server, workspace) != server.files_hash:
        raise McpError("the files that it runs have changed since it was allowed")


def _read_project_file(workspace: Path, data_dir: Path) -> _ProjectFile | None:
    """Return None without a project, a file or servers in it. Raises InvalidMcpConfig."""
    project = find_project(workspace, data_dir)
    if project is None:
        return None
    text = read_mcp_file(workspace / PROJECT_FILE, follow_links=False)
    if text is None:
        return None
    servers = tuple(
        replace(each, files_hash=_hash_files(each, workspace) if each.command else "")
        for each in parse_mcp_config(text)
    )
    if not servers:
        return None
    exact = json.dumps([str(project), text, [each.files_hash for each in servers]])
    return _ProjectFile(
        project=project.parent if project.name == ".git" else project,
        servers=servers,
        digest=hashlib.sha256(exact.encode("utf-8", "surrogatepass")).hexdigest(),
    )


def _hash_files(server: McpServer, workspace: Path) -> str:
    return hash_program_files((*server.command, *server.env.values()), workspace)


def _withheld(state: str, **facts: str) -> McpServer:
    notice = RunNotice(key=f"mcp.project_{state}", facts=facts)
    return McpServer(name=PROJECT_FILE, withheld=notice)


def _describe_server(server: McpServer) -> str:
    """Its name, its whole command or URL, and the names of what it is given, without values."""
    given = {**server.env, **server.headers, **server.oauth}
    lines = [server.name, f"  {shlex.join(server.command) or server.url}"]
    for name, value in given.items():
        variables = "".join(f" ← ${{{each}}}" for each in referenced_variables(value))
        lines.append(f"  {name}{variables}")
    return "\n".join(lines)
