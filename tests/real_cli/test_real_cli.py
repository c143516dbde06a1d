"""Opt-in: real coding CLIs from npm, driven as the program drives them. See docs/agents.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.answer_schemas import PlanAnswer, StepAnswer
from bot.engine.llm.backend import (
    AgentEvent,
    RunNotice,
    RunPurpose,
    RunRequest,
    RunResult,
    TextDelta,
    ToolStarted,
    WorkerMode,
)
from bot.engine.sandbox.backends import SandboxDetector, sandboxed_launcher
from tests.bot.engine.llm.acp.builders import ALLOW, DENY, PENDING, FakeCallAuthorizer, collect_run
from tests.emulators.models.emulator import ModelEmulator
from tests.real_cli.builders import (
    FOLDER,
    MADE_FILE,
    NAMES,
    NO_VERSION,
    InstalledCli,
    install_cli,
    is_installed,
    make_file_reply,
    reply_with,
)
from tests.waiting import WAIT_SECONDS

pytestmark = pytest.mark.skipif(not FOLDER, reason="SHIFTBOSS_REAL_CLI names no folder")
COMMAND = f"touch {MADE_FILE}"


@pytest.fixture(params=NAMES)
async def cli(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[InstalledCli]:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed there")
    async with ModelEmulator() as models:
        models.replies(make_file_reply)
        yield install_cli(request.param, models, tmp_path)


class SessionIdRecorder:
    """Keeps what the CLI calls its session."""

    def __init__(self) -> None:
        self.id = ""

    async def __call__(self, id: str) -> None:
        self.id = id


async def run(cli: InstalledCli, request: RunRequest) -> tuple[list[AgentEvent], RunResult]:
    async with asyncio.timeout(150):
        return await collect_run(cli.backend(), request)


async def test_readiness_is_detected(cli: InstalledCli) -> None:
    health = await cli.backend().probe()

    assert health.problem == ""
    assert bool(health.version) is (cli.agent.name not in NO_VERSION)


async def test_an_approved_command_runs_and_the_result_is_reported(cli: InstalledCli) -> None:
    permit = FakeCallAuthorizer({COMMAND: ALLOW})

    events, ended = await run(cli, cli.step("Make the file.", permit=permit))

    assert (cli.workspace / MADE_FILE).exists()
    assert [call.detail for call in permit.calls] == [COMMAND]
    assert [good for _, good, _ in permit.outcomes] == [True]
    assert isinstance(ended.value, StepAnswer)
    assert any(isinstance(event, ToolStarted) for event in events)


async def test_a_rejected_command_is_not_run(cli: InstalledCli) -> None:
    permit = FakeCallAuthorizer({COMMAND: DENY})

    _, ended = await run(cli, cli.step("Make the file.", permit=permit))

    assert not (cli.workspace / MADE_FILE).exists()
    assert ended.value is not None


async def test_a_command_approved_after_the_process_ended_is_run_by_the_next(
    cli: InstalledCli,
) -> None:
    named = SessionIdRecorder()
    permit = FakeCallAuthorizer({COMMAND: PENDING})
    request = cli.step("Make the file.", permit=permit, on_external=named)
    _, first = await run(cli, request)
    assert [call.detail for call in first.suspended] == [COMMAND]
    assert not (cli.workspace / MADE_FILE).exists()

    allowed = {first.suspended[0].call_id: ALLOW}
    nobody = FakeCallAuthorizer(earlier=allowed)
    resumed = replace(
        request,
        prompt="",
        permit=nobody,
        external_id=named.id,
        history=first.new_history,
        answers=allowed,
    )
    _, ended = await run(cli, resumed)

    assert (cli.workspace / MADE_FILE).exists()
    assert (nobody.calls, nobody.reused) == ([], list(allowed))
    assert ended.value is not None


async def test_another_process_resumes_the_session(cli: InstalledCli) -> None:
    cli.models.replies(reply_with("Understood."))
    named = SessionIdRecorder()
    first = cli.step("The word is rhubarb.", result=None, on_external=named)
    _, ended = await run(cli, first)
    before = len(cli.models.requests)

    told = ended.new_history
    second = replace(first, prompt="Which word?", external_id=named.id, history=told)
    events, _ = await run(cli, second)

    asked = cli.models.requests[before:]
    assert any("rhubarb" in str(each.body) for each in asked)
    assert "rhubarb" not in "".join(e.text for e in events if isinstance(e, TextDelta))
    assert [e.key for e in events if isinstance(e, RunNotice)] == []


async def test_the_next_step_goes_on_in_the_process_that_was_kept(cli: InstalledCli) -> None:
    backend = cli.backend(idle=IdleProcess(600))
    named, permit = SessionIdRecorder(), FakeCallAuthorizer({COMMAND: ALLOW})
    first = cli.step("The word is rhubarb.", permit=permit, on_external=named, kept_for="task")
    async with asyncio.timeout(300):
        _, ended = await collect_run(backend, first)
        there, before = _running_ids(cli.root), len(cli.models.requests)
        (cli.workspace / MADE_FILE).unlink()

        second = replace(
            first, prompt="Which word?", external_id=named.id, history=ended.new_history
        )
        events, again = await collect_run(backend, second)

        assert there
        assert there <= _running_ids(cli.root)
        assert any("rhubarb" in str(each.body) for each in cli.models.requests[before:])
        assert (cli.workspace / MADE_FILE).exists()
        assert [call.detail for call in permit.calls] == [COMMAND] * 2
        assert again.value is not None
        assert [e.key for e in events if isinstance(e, RunNotice)] == []
        await backend.end_idle("task")
        while _running_ids(cli.root):  # killed, and about to be gone
            await asyncio.sleep(0.05)


async def test_a_cancelled_run_leaves_no_process(cli: InstalledCli) -> None:
    hold = asyncio.Event()
    cli.models.replies(reply_with("Let me think about it.", hold=hold, hold_after=1))
    running = asyncio.create_task(run(cli, cli.step("Think long.", result=None)))
    async with asyncio.timeout(WAIT_SECONDS):
        while not any(each.tools for each in cli.models.requests):
            await asyncio.sleep(0.05)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    hold.set()
    async with asyncio.timeout(WAIT_SECONDS):
        while _running_ids(cli.root):  # killed, and about to be gone
            await asyncio.sleep(0.05)


async def test_planning_uses_the_plan_mode(cli: InstalledCli) -> None:
    cli.models.replies(reply_with('```json\n{"plan": "", "steps": [], "answer": "42"}\n```'))

    _, ended = await run(cli, cli.step("Plan.", purpose=RunPurpose.PLAN, result=PlanAnswer))

    assert isinstance(ended.value, PlanAnswer)


async def test_in_the_sandbox_it_works_and_a_planner_changes_nothing(
    cli: InstalledCli,
) -> None:
    here = SandboxDetector()
    if not (await here()).kind.confines or Path(FOLDER).resolve().is_relative_to("/tmp"):
        pytest.skip("no sandbox here, or the CLIs are below /tmp, where it does not look")
    backend = cli.backend(launch=sandboxed_launcher(here))
    permit = FakeCallAuthorizer({COMMAND: ALLOW})

    async with asyncio.timeout(150):
        await collect_run(
            backend, cli.step("Make the file.", permit=permit, mode=WorkerMode.REVIEW)
        )
        assert not (cli.workspace / MADE_FILE).exists()
        _, ended = await collect_run(backend, cli.step("Make the file.", permit=permit))

    assert (cli.workspace / MADE_FILE).exists()
    assert ended.value is not None


def _running_ids(root: Path) -> set[int]:
    """Processes that live in that home."""
    home = f"HOME={root}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and home in (folder / "environ").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found
