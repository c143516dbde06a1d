"""Servers that are given the rights of Shiftboss's app."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.llm.backend import McpServer
from tests.bot.engine.permissions.builders import ScriptedWorker, permission_setup
from tests.bot.engine.permissions.live_permits import live_permit
from tests.bot.engine.permissions.policy_cases import build_policy, tool_call
from tests.emulators.models.emulator import ModelEmulator
from tests.engine_harness import BOSS, MATE
from tests.journeys.model_world import ScriptedModel


@pytest.mark.parametrize(
    ("server", "member"),
    [
        (
            McpServer(name="docs", command=("npx", "-y", "@larksuiteoapi/lark-mcp", "mcp")),
            "later",
        ),
        (McpServer(name="docs", command=("x",), env={"APP": "${FEISHU_APP_SECRET}"}), "later"),
        (McpServer(name="docs", url="https://x", headers={"K": "${FEISHU_APP_SECRET}"}), "later"),
        (McpServer(name="docs", command=("npx", "@acme/notes"), env={"KEY": "${NOTES}"}), "allow"),
    ],
)
async def test_a_rule_for_a_server_with_the_rights_of_the_app_holds_for_owners(
    tmp_path: Path, server: McpServer, member: str
) -> None:
    async def servers() -> list[McpServer]:
        return [server]

    async with (
        ModelEmulator() as models,
        permission_setup(
            tmp_path, models, ScriptedModel(), ScriptedWorker(), start_dispatcher=False
        ) as here,
    ):
        here.leaves.policy = build_policy(allow="mcp__docs__*")
        here.leaves.servers = servers
        read = tool_call("mcp__docs__docx_read", document="doxcn1")
        said = {
            person.name: (await (await live_permit(here, person))(read)).verdict
            for person in (BOSS, MATE)
        }

    assert said == {BOSS.name: "allow", MATE.name: member}
