"""A task with branches in a git project: both write in its one tree, and what they made comes in
once, when all of it is done."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.backend import RunPurpose, RunRequest, RunResult
from storage.records.tasks import EventKind, Task, TaskControl, TaskPriority, TaskStatus
from tests.bot.engine.crash import CrashAfterCommit
from tests.bot.engine.workflow.integration.workflow_world import (
    PacedBackend,
    WorkflowWorld,
    two_branches,
    workflow_world,
)
from tests.bot.engine.workspaces.git_project import GitProject
from tests.engine_harness import ManualClock
from tests.thoroughness import sampled
from tests.waiting import WAIT_SECONDS

MAX_COMMITS = 16
MADE = ["a1.txt", "a2.txt", "b1.txt", "b2.txt", "last.txt"]


class WritingBackend(PacedBackend):
    """Each step writes a file that is called as it is, before it ends."""

    async def respond(self, request: RunRequest) -> RunResult:
        if request.purpose is RunPurpose.STEP:
            title = request.facts["step"]["title"]
            assert request.workspace is not None
            (request.workspace / f"{title}.txt").write_text(f"{title} was here\n")
        return await super().respond(request)


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    return GitProject(tmp_path / "project")


def on(project: GitProject) -> dict[str, Any]:
    return {"project_dir": str(project.path), "in_git": True}


def files(project: GitProject, commit: str = "HEAD") -> list[str]:
    return sorted(set(project.git("ls-tree", "--name-only", commit).splitlines()) - {"readme.md"})


async def test_what_both_branches_made_comes_in_once_at_the_end(
    tmp_path: Path, project: GitProject
) -> None:
    backend = WritingBackend()
    backend.hold("a1", "b1", "last")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches(), **on(project))
        await backend.wait_until_started("a1", "b1")
        backend.release("a1", "b1")
        await backend.wait_until_started("last")
        assert project.worktree_count == 2
        assert files(project) == []
        assert not (project.path / "a1.txt").exists()
        backend.release("last")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert files(project) == MADE
    assert project.git("rev-list", "--count", "HEAD") == "2"
    assert (project.worktree_count, project.git("status", "--porcelain")) == (1, "")


async def test_where_it_cannot_come_in_all_of_it_stays_on_its_branch(
    tmp_path: Path, project: GitProject
) -> None:
    backend = WritingBackend()
    backend.hold("a1", "b1")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches(), **on(project))
        await backend.wait_until_started("a1", "b1")
        project.commit("b2.txt", "mine\n")
        backend.release("a1", "b1")
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert "b2.txt" in view.task.summary
    assert view.task.branch in view.task.summary
    assert (project.path / "b2.txt").read_text() == "mine\n"
    assert files(project) == ["b2.txt"]
    assert files(project, view.task.branch) == MADE
    assert project.git("status", "--porcelain") == ""


async def test_urgent_work_cuts_in_between_two_steps_and_finds_nothing_of_either(
    tmp_path: Path, project: GitProject
) -> None:
    backend = WritingBackend()
    backend.steps = ("now",)
    backend.hold("a1", "b1", "now")
    async with workflow_world(tmp_path, backend) as here:
        made = await here.engine.run_workflow(two_branches(), **on(project))
        await backend.wait_until_started("a1", "b1")
        urgent = await here.engine.create_task("Now", priority=TaskPriority.URGENT, **on(project))
        await wait_until_preempted(here, made)
        backend.release("a1")
        await here.wait_for_run(made, "a1", "done")
        assert "now" not in backend.started_steps
        backend.release("b1")
        await backend.wait_until_started("now")
        assert sorted(backend.started_steps) == ["a1", "b1", "now"]
        backend.release("now")
        await here.engine.until(urgent)
        assert files(project) == ["now.txt"]
        view = await here.engine.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert files(project) == sorted([*MADE, "now.txt"])
    assert sorted(backend.started_steps) == ["a1", "a2", "b1", "b2", "last", "now"]
    assert (project.worktree_count, project.git("status", "--porcelain")) == (1, "")


async def wait_until_preempted(here: WorkflowWorld, made: Task) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while (await here.reload(made)).control is not TaskControl.YIELD:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("nth", range(2, MAX_COMMITS + 1, sampled(1, 4)))
async def test_whenever_death_comes_all_of_it_comes_in_and_once(
    tmp_path: Path, project: GitProject, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    first, second, clock, death = (
        WritingBackend(),
        WritingBackend(),
        ManualClock(),
        CrashAfterCommit(nth),
    )

    async def live(here: WorkflowWorld) -> Any:
        made = await here.engine.run_workflow(two_branches(), source="test:once", **on(project))
        return await here.engine.until(made)

    async with workflow_world(tmp_path, first, clock=clock) as here:
        with monkeypatch.context() as patched:
            death.install(patched)
            await death.run_until_crash(live(here))
    async with workflow_world(tmp_path, second, clock=clock) as here:
        view = await live(here)
        ends = await here.event_texts(view.task, EventKind.COMPLETED)

    assert view.task.status is TaskStatus.COMPLETED
    assert len(ends) == 1
    assert files(project) == MADE
    assert project.git("rev-list", "--count", "HEAD") == "2"
    assert (project.worktree_count, project.git("status", "--porcelain")) == (1, "")
    again = Counter(first.started_steps) & Counter(second.started_steps)
    assert again.total() <= 2
