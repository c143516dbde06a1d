"""What steps without a model use: real permissions, commands and requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bot.engine.permissions.policy import PolicyLevels, RulePolicy
from bot.engine.permissions.requests import DecisionSignal
from bot.engine.permissions.rules import PermissionRule, PermissionRules, ReadProtectedFiles
from bot.engine.permissions.service import PermissionService
from bot.engine.sandbox.backends import SupervisedSandbox
from bot.engine.sandbox.process_runner import CommandHomes
from bot.engine.sandbox.spec import (
    Sandbox,
    SandboxKind,
    build_view,
    command_environment,
    default_limits,
)
from bot.engine.tools.shell_exec import CommandShell
from bot.engine.web import WebFetcher, parse_private_hosts
from bot.engine.workflow.call_steps import CallSteps
from storage.db import Database
from storage.records.approvals import Approval
from storage.tasks import TaskRepo
from storage.tools import PermissionGrantRepo, ToolCallRepo
from tests.agent_builders import DefaultPersona
from tests.bot.engine.permissions.builders import no_servers
from tests.engine_harness import ManualClock, make_approval_requester, no_sleep

RULES = PermissionRules(
    allow=(
        PermissionRule(tool="web_fetch", pattern="127.0.0.1"),
        PermissionRule(tool="web_fetch", pattern="169.254.169.254"),
    ),
    deny=(
        PermissionRule(tool="web_fetch", pattern="evil.example"),
        PermissionRule(tool="read", pattern="secret.txt"),
    ),
)
SECRET = "hunter2"


def call_steps_in(
    folder: Path, *, private: tuple[str, ...] = ("127.0.0.1",), rules: PermissionRules = RULES
) -> Callable[[Database, ManualClock], CallSteps]:
    """Commands run without a sandbox, so each is asked about."""
    sandbox = SupervisedSandbox(kind=SandboxKind.NONE, view=build_view(), limits=default_limits())

    async def find_sandbox() -> Sandbox:
        return sandbox

    async def show(_approval: Approval) -> None:
        pass

    def mask(text: str) -> str:
        return text.replace(SECRET, "••••")

    def make(db: Database, clock: ManualClock) -> CallSteps:
        permissions = PermissionService(
            db=db,
            calls=ToolCallRepo(db),
            grants=PermissionGrantRepo(db),
            tasks=TaskRepo(db),
            requester=make_approval_requester(db, clock),
            policy=RulePolicy(rules=rules, levels=PolicyLevels()),
            mask=mask,
            sandbox=find_sandbox,
            servers=no_servers,
            trusts_sandbox=False,
            signal=DecisionSignal(),
            show_request=show,
            now=clock,
            sleep=no_sleep,
        )
        return CallSteps(
            personas=DefaultPersona(),
            authorizers=permissions,
            shell=CommandShell(
                sandbox=find_sandbox,
                homes=CommandHomes(folder / "homes"),
                env=lambda _: command_environment({"PATH": os.defpath}),
            ),
            fetcher=WebFetcher(private_hosts=parse_private_hosts(private)),
            protected=ReadProtectedFiles(patterns=("secret.txt",)),
            calls=ToolCallRepo(db),
            mask=mask,
        )

    return make


@dataclass
class RecordingSite:
    """Answers each request with JSON that says what came."""

    url: str = ""
    requests: list[str] = field(default_factory=list)


@asynccontextmanager
async def recording_site() -> AsyncGenerator[RecordingSite, None]:
    site = RecordingSite()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(
            (int(x.split(":")[1]) for x in head.splitlines() if x.lower().startswith("content-l")),
            0,
        )
        body = (await reader.readexactly(size)).decode()
        line = head.splitlines()[0].removesuffix(" HTTP/1.1")
        site.requests.append(f"{line} {body}".strip())
        status = "404 Not Found" if "missing" in line else "200 OK"
        reply = b'{"rate": 7, "key": "hunter2"}'
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nETag: e1\r\n"
            f"Set-Cookie: a=b\r\nContent-Length: {len(reply)}\r\nConnection: close\r\n\r\n".encode()
            + reply
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    site.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield site
