"""Whatever a tool says: no secret in it, and no more than a model can read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.engine.llm.tool_calls import AgentTool
from bot.engine.redaction import MASK, MAX_OUTPUT_CHARS, SecretMasker, redact_tool, truncate_output
from bot.engine.workers.spec import CostAccount, WorkerSpec
from storage.records.people import Language
from storage.records.workers import ModelSession
from tests.agent_builders import make_context_builder

SECRET = "hunter2-hunter2-hunter2"


def saying(text: str) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        return text

    async def detail(arguments: Mapping[str, Any]) -> str:
        return text

    return AgentTool(name="say", description="", schema={}, run=run, detail=detail)


async def test_every_tool_of_the_workbench_is_masked(tmp_path: Path) -> None:
    bench = make_context_builder(
        tool_factories=(lambda _job, _persona: (saying(f"it is {SECRET}"),),),
        mask=SecretMasker([SECRET]).mask,
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    session = ModelSession(
        id="s1",
        key="task:t1",
        backend="b",
        model="m",
        turns=0,
        tokens=0,
        started_at=now,
        last_used_at=now,
    )
    account = CostAccount(person=None, chat=None)

    equipment = await bench.build(
        WorkerSpec(account=account, session=session, language=Language.ENGLISH, workspace=tmp_path)
    )

    (tool,) = equipment.tools
    told = await tool.run({})
    assert told.startswith(f"it is {MASK}\n")
    assert "do not write it back" in told
    assert tool.detail is not None
    assert await tool.detail({}) == f"it is {MASK}"


async def test_what_holds_no_secret_is_passed_on_as_it_is(tmp_path: Path) -> None:
    tool = redact_tool(saying("plain"), tmp_path, SecretMasker([SECRET]).mask)

    assert await tool.run({}) == "plain"
    assert list(tmp_path.iterdir()) == []


async def test_what_is_too_long_is_kept_whole_without_secrets(tmp_path: Path) -> None:
    text = f"first {SECRET} " + "x" * MAX_OUTPUT_CHARS * 2 + f" {SECRET} last"
    tool = redact_tool(saying(text), tmp_path, SecretMasker([SECRET]).mask)

    told = await tool.run({})

    assert len(told) < MAX_OUTPUT_CHARS + 1000
    assert told.startswith(f"first {MASK} x")
    assert f"x {MASK} last" in told
    (kept,) = (tmp_path / ".shiftboss").glob("say-*.txt")
    assert f".shiftboss/{kept.name}" in told
    assert kept.read_text() == text.replace(SECRET, MASK)
    assert (tmp_path / ".shiftboss" / ".gitignore").read_text() == "*\n"


def test_a_link_planted_there_leads_nowhere(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "work", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (workspace / ".shiftboss").symlink_to(outside)

    told = truncate_output("x" * MAX_OUTPUT_CHARS * 2, workspace, "say")

    assert "could not be saved" in told
    assert list(outside.iterdir()) == []
