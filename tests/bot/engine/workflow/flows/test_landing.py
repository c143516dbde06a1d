"""A task with branches in a git project: both write in its one tree, and what they made comes in
once, when all of it is done."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bot.engine.llm.base import Purpose, RunRequest, RunResult
from storage.records.tasks import Control, EventKind, Priority, Task, TaskStatus
from tests.bot.engine.death import Death
from tests.bot.engine.workflow.flows.world import Flows, Paced, flows, two_branches
from tests.bot.engine.workflow.places.git_world import Project
from tests.engine_world import Clock
from tests.thorough import sampled

MOST_COMMITS = 16
MADE = ["a1.txt", "a2.txt", "b1.txt", "b2.txt", "last.txt"]


class Writers(Paced):
    """Each step writes a file that is called as it is, before it ends."""

    async def settle(self, request: RunRequest) -> RunResult:
        if request.purpose is Purpose.STEP:
            title = request.facts["step"]["title"]
            assert request.workspace is not None
            (request.workspace / f"{title}.txt").write_text(f"{title} was here\n")
        return await super().settle(request)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def on(project: Project) -> dict[str, Any]:
    return {"project_dir": str(project.path), "in_git": True}


def files(project: Project, commit: str = "HEAD") -> list[str]:
    return sorted(set(project.git("ls-tree", "--name-only", commit).splitlines()) - {"readme.md"})


async def test_what_both_branches_made_comes_in_once_at_the_end(
    tmp_path: Path, project: Project
) -> None:
    backend = Writers()
    backend.hold("a1", "b1", "last")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches(), **on(project))
        await backend.begun("a1", "b1")
        backend.let_go("a1", "b1")
        await backend.begun("last")
        assert project.trees == 2
        assert files(project) == []
        assert not (project.path / "a1.txt").exists()
        backend.let_go("last")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert files(project) == MADE
    assert project.git("rev-list", "--count", "HEAD") == "2"
    assert (project.trees, project.git("status", "--porcelain")) == (1, "")


async def test_where_it_cannot_come_in_all_of_it_stays_on_its_branch(
    tmp_path: Path, project: Project
) -> None:
    backend = Writers()
    backend.hold("a1", "b1")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches(), **on(project))
        await backend.begun("a1", "b1")
        project.commit("b2.txt", "mine\n")
        backend.let_go("a1", "b1")
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert "b2.txt" in view.task.summary
    assert view.task.branch in view.task.summary
    assert (project.path / "b2.txt").read_text() == "mine\n"
    assert files(project) == ["b2.txt"]
    assert files(project, view.task.branch) == MADE
    assert project.git("status", "--porcelain") == ""


async def test_urgent_work_cuts_in_between_two_steps_and_finds_nothing_of_either(
    tmp_path: Path, project: Project
) -> None:
    backend = Writers()
    backend.steps = ("now",)
    backend.hold("a1", "b1", "now")
    async with flows(tmp_path, backend) as here:
        made = await here.world.run_workflow(two_branches(), **on(project))
        await backend.begun("a1", "b1")
        urgent = await here.world.add("Now", priority=Priority.URGENT, **on(project))
        await until_yields(here, made)
        backend.let_go("a1")
        await here.until_run(made, "a1", "done")
        assert "now" not in backend.done
        backend.let_go("b1")
        await backend.begun("now")
        assert sorted(backend.done) == ["a1", "b1", "now"]
        backend.let_go("now")
        await here.world.until(urgent)
        assert files(project) == ["now.txt"]
        view = await here.world.until(made)

    assert view.task.status is TaskStatus.COMPLETED
    assert files(project) == sorted([*MADE, "now.txt"])
    assert sorted(backend.done) == ["a1", "a2", "b1", "b2", "last", "now"]
    assert (project.trees, project.git("status", "--porcelain")) == (1, "")


async def until_yields(here: Flows, made: Task) -> None:
    async with asyncio.timeout(60):
        while (await here.again(made)).control is not Control.YIELD:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("nth", range(2, MOST_COMMITS + 1, sampled(1, 4)))
async def test_whenever_death_comes_all_of_it_comes_in_and_once(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    first, second, clock, death = Writers(), Writers(), Clock(), Death(nth)

    async def live(here: Flows) -> Any:
        made = await here.world.run_workflow(two_branches(), source="test:once", **on(project))
        return await here.world.until(made)

    async with flows(tmp_path, first, clock=clock) as here:
        with monkeypatch.context() as patched:
            death.on(patched)
            await death.or_end_of(live(here))
    async with flows(tmp_path, second, clock=clock) as here:
        view = await live(here)
        ends = await here.told(view.task, EventKind.COMPLETED)

    assert view.task.status is TaskStatus.COMPLETED
    assert len(ends) == 1
    assert files(project) == MADE
    assert project.git("rev-list", "--count", "HEAD") == "2"
    assert (project.trees, project.git("status", "--porcelain")) == (1, "")
    again = Counter(first.done) & Counter(second.done)
    assert again.total() <= 2
