"""Opt-in: real coding CLIs from npm, driven as the program drives them. See docs/agents.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.app.models import held_in
from bot.engine.agent.sandbox.probe import Machine, SandboxHere
from bot.engine.llm.answers import PlanAnswer, StepAnswer
from bot.engine.llm.base import Mode, Purpose, RunRequest, RunResult
from bot.engine.llm.events import AgentEvent, Noted, TextDelta, ToolStarted
from tests.bot.engine.llm.acp.world import ALLOW, DENY, LATER, FakePermit, run_to_end
from tests.emulators.models.emulator import Models
from tests.real_cli.world import (
    FOLDER,
    MADE,
    NAMES,
    NO_VERSION,
    Real,
    is_here,
    makes_a_file,
    real,
    says,
)

pytestmark = pytest.mark.skipif(not FOLDER, reason="SHIFTBOSS_REAL_CLI names no folder")
COMMAND = f"touch {MADE}"


@pytest.fixture(params=NAMES)
async def cli(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Real]:
    if not is_here(request.param):
        pytest.skip(f"{request.param} is not installed there")
    async with Models() as models:
        models.replies(makes_a_file)
        yield real(request.param, models, tmp_path)


class Named:
    """Keeps what the CLI calls its session."""

    def __init__(self) -> None:
        self.id = ""

    async def __call__(self, id: str) -> None:
        self.id = id


async def run(cli: Real, request: RunRequest) -> tuple[list[AgentEvent], RunResult]:
    async with asyncio.timeout(150):
        return await run_to_end(cli.backend(), request)


async def test_it_is_seen_to_be_ready(cli: Real) -> None:
    health = await cli.backend().try_out()

    assert health.problem == ""
    assert bool(health.version) is (cli.agent.name not in NO_VERSION)


async def test_an_allowed_command_is_run_and_the_result_handed_in(cli: Real) -> None:
    permit = FakePermit({COMMAND: ALLOW})

    events, ended = await run(cli, cli.step("Make the file.", permit=permit))

    assert (cli.workspace / MADE).exists()
    assert [call.detail for call in permit.calls] == [COMMAND]
    assert [good for _, good, _ in permit.outcomes] == [True]
    assert isinstance(ended.value, StepAnswer)
    assert any(isinstance(event, ToolStarted) for event in events)


async def test_a_refused_command_is_not_run(cli: Real) -> None:
    permit = FakePermit({COMMAND: DENY})

    _, ended = await run(cli, cli.step("Make the file.", permit=permit))

    assert not (cli.workspace / MADE).exists()
    assert ended.value is not None


async def test_what_is_approved_after_the_process_is_gone_is_run_by_the_next(
    cli: Real,
) -> None:
    named = Named()
    permit = FakePermit({COMMAND: LATER})
    request = cli.step("Make the file.", permit=permit, on_external=named)
    _, first = await run(cli, request)
    assert [call.detail for call in first.suspended] == [COMMAND]
    assert not (cli.workspace / MADE).exists()

    allowed = {first.suspended[0].call_id: ALLOW}
    nobody = FakePermit(earlier=allowed)
    resumed = replace(
        request,
        prompt="",
        permit=nobody,
        external_id=named.id,
        history=first.new_history,
        answers=allowed,
    )
    _, ended = await run(cli, resumed)

    assert (cli.workspace / MADE).exists()
    assert (nobody.calls, nobody.begun) == ([], list(allowed))
    assert ended.value is not None


async def test_another_process_remembers_the_session(cli: Real) -> None:
    cli.models.replies(says("Understood."))
    named = Named()
    first = cli.step("The word is rhubarb.", result=None, on_external=named)
    _, ended = await run(cli, first)
    before = len(cli.models.requests)

    told = ended.new_history
    second = replace(first, prompt="Which word?", external_id=named.id, history=told)
    events, _ = await run(cli, second)

    asked = cli.models.requests[before:]
    assert any("rhubarb" in str(each.body) for each in asked)
    assert "rhubarb" not in "".join(e.text for e in events if isinstance(e, TextDelta))
    assert [e.key for e in events if isinstance(e, Noted)] == []


async def test_a_cancelled_run_leaves_the_service_and_no_process(cli: Real) -> None:
    hold = asyncio.Event()
    cli.models.replies(says("Let me think about it.", hold=hold, hold_after=1))
    running = asyncio.create_task(run(cli, cli.step("Think long.", result=None)))
    async with asyncio.timeout(60):
        while not any(each.tools for each in cli.models.requests):
            await asyncio.sleep(0.05)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    hold.set()
    async with asyncio.timeout(20):
        while _alive(cli.root):  # killed, and about to be gone
            await asyncio.sleep(0.05)


async def test_a_plan_is_made_in_the_mode_for_it(cli: Real) -> None:
    cli.models.replies(says('```json\n{"plan": "", "steps": [], "answer": "42"}\n```'))

    _, ended = await run(cli, cli.step("Plan.", purpose=Purpose.PLAN, result=PlanAnswer))

    assert isinstance(ended.value, PlanAnswer)


async def test_held_in_by_the_sandbox_it_works_and_a_planner_changes_nothing(cli: Real) -> None:
    here = SandboxHere(Machine())
    if not (await here()).kind.confines or Path(FOLDER).resolve().is_relative_to("/tmp"):
        pytest.skip("no sandbox here, or the CLIs are below /tmp, where it does not look")
    backend = cli.backend(launch=held_in(here))
    permit = FakePermit({COMMAND: ALLOW})

    async with asyncio.timeout(150):
        await run_to_end(backend, cli.step("Make the file.", permit=permit, mode=Mode.REVIEW))
        assert not (cli.workspace / MADE).exists()
        _, ended = await run_to_end(backend, cli.step("Make the file.", permit=permit))

    assert (cli.workspace / MADE).exists()
    assert ended.value is not None


def _alive(root: Path) -> list[str]:
    """Processes that live in that home."""
    home = f"HOME={root}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and home in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found
