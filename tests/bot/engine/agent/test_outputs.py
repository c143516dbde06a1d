"""Whatever a tool says: no secret in it, and no more than a model can read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.engine.agent.account import Account
from bot.engine.agent.masking import MASK, Masking
from bot.engine.agent.outgoing.outputs import MOST, capped, guarded
from bot.engine.agent.workbench import Job, Workbench
from bot.engine.llm.base import Tool
from storage.records.people import Language
from storage.sessions import Session

SECRET = "hunter2-hunter2-hunter2"


def saying(text: str) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        return text

    async def detail(arguments: Mapping[str, Any]) -> str:
        return text

    return Tool(name="say", description="", schema={}, run=run, detail=detail)


async def test_every_tool_of_the_workbench_is_masked(tmp_path: Path) -> None:
    bench = Workbench(
        makers=(lambda _job, _persona: (saying(f"it is {SECRET}"),),), mask=Masking([SECRET]).mask
    )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    session = Session(
        id="s1",
        key="task:t1",
        backend="b",
        model="m",
        turns=0,
        tokens=0,
        started_at=now,
        last_used_at=now,
    )
    account = Account(person=None, chat=None)

    equipment = await bench.equip(
        Job(account=account, session=session, language=Language.ENGLISH, workspace=tmp_path)
    )

    (tool,) = equipment.tools
    told = await tool.run({})
    assert told.startswith(f"it is {MASK}\n")
    assert "do not write it back" in told
    assert tool.detail is not None
    assert await tool.detail({}) == f"it is {MASK}"


async def test_what_holds_no_secret_is_passed_on_as_it_is(tmp_path: Path) -> None:
    tool = guarded(saying("plain"), tmp_path, Masking([SECRET]).mask)

    assert await tool.run({}) == "plain"
    assert list(tmp_path.iterdir()) == []


async def test_what_is_too_long_is_kept_whole_without_secrets(tmp_path: Path) -> None:
    text = f"first {SECRET} " + "x" * MOST * 2 + f" {SECRET} last"
    tool = guarded(saying(text), tmp_path, Masking([SECRET]).mask)

    told = await tool.run({})

    assert len(told) < MOST + 1000
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

    told = capped("x" * MOST * 2, workspace, "say")

    assert "could not be kept" in told
    assert list(outside.iterdir()) == []
