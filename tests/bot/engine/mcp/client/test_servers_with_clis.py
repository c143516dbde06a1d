"""Coding CLIs start a persona's servers by themselves: they get what the file names, and nobody
else is shown it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.backend import McpServer
from bot.engine.workers.personas import BUILT_IN_PERSONAS, Persona
from storage.records.tasks import TaskStatus
from tests.agent_builders import make_context_builder
from tests.bot.engine.mcp.client.test_servers_in_runs import servers
from tests.emulators.acp.fake_cli import FakeCli, result_reply, tool_call
from tests.engine_harness import EngineHarness, run_engine
from tests.fakes.backends import OnlyBackend

SECRET = "correct-horse-battery"
TRACKER = replace(
    BUILT_IN_PERSONAS["pragmatist"],
    servers=(
        McpServer(name="local", command=("tracker",), env={"KEY": "${TRACKER_KEY}", "A": "plain"}),
        McpServer(name="far", url="https://t.example", headers={"X": "Bearer ${TRACKER_KEY}"}),
        McpServer(name="unset", command=("tracker",), env={"KEY": "${NOBODY_SETS_THIS}"}),
    ),
)
PLAN = result_reply({"plan": "Ship it.", "steps": [{"title": "go live"}]})


class OnlyTracker:
    async def get(self, name: str) -> Persona:
        return TRACKER

    async def get_all(self) -> Mapping[str, Persona]:
        return {TRACKER.name: TRACKER}


@pytest.fixture
def cli(tmp_path: Path) -> FakeCli:
    return FakeCli(tmp_path)


async def worked(cli: FakeCli, world: EngineHarness) -> str:
    """All that is left of a task that was done, on disk and in the store."""
    view = await world.until(await world.create_task("Ship it"))
    assert view.task.status is TaskStatus.COMPLETED, view.task.status_reason
    log = cli.root / "agents" / "fake" / "pragmatist.log"
    stored = b"".join(path.read_bytes() for path in cli.root.glob("shiftboss.db*"))
    return f"{view}{log.read_text()}{stored.decode('utf-8', 'replace')}"


async def test_names_are_filled_by_the_same_rule_and_a_server_without_its_variable_is_left_out(
    cli: FakeCli, caplog: pytest.LogCaptureFixture
) -> None:
    leak = {"update": {"sessionUpdate": "tool_call", **tool_call(f"curl -H {SECRET}")}}
    done = result_reply({"status": "done", "summary": f"It is {SECRET}."})
    half = len(SECRET) // 2
    pieces = [{"say": SECRET[:half]}, {"say": SECRET[half:]}]
    cli.script([PLAN], [leak, *pieces, {"shout": SECRET}, done])
    bench = make_context_builder(personas=OnlyTracker())
    brought = servers(cli.root, TRACKER_KEY=SECRET)
    with caplog.at_level("DEBUG"):
        async with run_engine(
            cli.root, context_builder=bench, servers=brought, backends=OnlyBackend(cli.backend())
        ) as world:
            kept = await worked(cli, world)

    (step,) = cli.received("session/resume", "pragmatist")
    local, far = step["mcpServers"]
    assert {each["name"]: each["value"] for each in local["env"]} == {"KEY": SECRET, "A": "plain"}
    assert far["headers"] == [{"name": "X", "value": f"Bearer {SECRET}"}]
    assert "It is ••••." in kept
    assert SECRET not in kept
    assert SECRET not in caplog.text
