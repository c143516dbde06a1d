"""Killed anywhere between making a worktree and landing it: done again, it all comes out right."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.engine.sandbox import git_runner as git_module
from bot.engine.sandbox.git_runner import GitResult, GitRunner, exclusive_access
from bot.engine.workspaces import task_workspaces
from bot.engine.workspaces.task_workspaces import TaskArtifacts
from storage.records.tasks import Task
from tests.bot.engine.workspaces.git_project import GitProject, always_adopted
from tests.thoroughness import sampled

_MAX_POINTS = 60
_EVERY = sampled(1, 6)


class ProcessKilled(BaseException):
    """Nothing of ours runs after this."""


class GitCrash:
    """Comes before or after the n-th thing that changes the world: a git command, or something
    done to files in a thread. 0 is never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0
        self.late = False
        self.count = 0
        run, to_thread = GitRunner.run, asyncio.to_thread

        async def mortal_run(git: GitRunner, *args: str) -> GitResult:
            ran: GitResult = await self._around(lambda: run(git, *args))
            return ran

        async def mortal_thread(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
            return await self._around(lambda: to_thread(call, *args, **named))

        monkeypatch.setattr(git_module.GitRunner, "run", mortal_run)
        monkeypatch.setattr(asyncio, "to_thread", mortal_thread)

    def plan(self, at: int, *, late: bool) -> None:
        self.at, self.late, self.count = at, late, 0

    async def _around(self, act: Callable[[], Any]) -> Any:
        self.count += 1
        mine = self.count == self.at
        if mine and not self.late:
            raise ProcessKilled
        done = await act()
        if mine:
            raise ProcessKilled
        return done


@pytest.fixture
def git_crash(monkeypatch: pytest.MonkeyPatch) -> GitCrash:
    return GitCrash(monkeypatch)


def other_file(project: GitProject) -> None:
    project.commit("boss.txt", "mine")


def same_file(project: GitProject) -> None:
    project.commit("readme.md", "mine\n")


def no_change(project: GitProject) -> None:
    pass


MEANWHILE = (no_change, other_file, same_file)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda f: f.__name__)
async def test_a_death_at_any_point_of_landing_changes_nothing_of_the_outcome(
    tmp_path: Path, git_crash: GitCrash, meanwhile: Callable[[GitProject], None], late: bool
) -> None:
    outcomes = set()
    # Each case begins at another point.
    first = (1 + late + 2 * MEANWHILE.index(meanwhile)) if _EVERY > 1 else 1
    for point in range(first, _MAX_POINTS, _EVERY):
        here = tmp_path / f"{point}"
        project, artifacts = (
            GitProject(here / "project"),
            TaskArtifacts(here / "home", always_adopted),
        )
        task = project.task()
        workspace = await artifacts.workspace(task)
        (workspace / "readme.md").write_text("theirs\n")
        meanwhile(project)
        git_crash.plan(point, late=late)
        survived = await _survives(artifacts.merge(task))
        git_crash.plan(0, late=False)

        landed = await artifacts.merge(task)

        outcomes.add((landed.merged, landed.reason_key, *_history(project, task)))
        assert project.git("status", "--porcelain") == ""
        assert project.worktree_count == (1 if landed.merged else 2)
        assert workspace.exists() is not landed.merged
        if survived:
            break
        shutil.rmtree(here)
    else:
        pytest.fail("it never got to its end")

    assert point > 10
    assert len(outcomes) == 1


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_a_death_at_any_point_of_making_leaves_a_tree_that_can_be_opened(
    tmp_path: Path, git_crash: GitCrash, late: bool
) -> None:
    for point in range(1, _MAX_POINTS):
        here = tmp_path / f"{point}"
        project, artifacts = (
            GitProject(here / "project"),
            TaskArtifacts(here / "home", always_adopted),
        )
        task = project.task()
        git_crash.plan(point, late=late)
        survived = await _survives(artifacts.workspace(task))
        git_crash.plan(0, late=False)

        workspace = await artifacts.workspace(task)

        assert (workspace / "readme.md").read_text() == "hello\n"
        assert project.worktree_count == 2
        assert [*(here / "home" / "work").glob("*.kept-*")] == []
        if survived:
            break
    else:
        pytest.fail("it never got to its end")


async def test_what_was_begun_in_a_tree_is_there_when_it_is_opened_again(tmp_path: Path) -> None:
    project, artifacts = (
        GitProject(tmp_path / "project"),
        TaskArtifacts(tmp_path / "home", always_adopted),
    )
    task = project.task()
    (await artifacts.workspace(task) / "half.txt").write_text("half")

    again = await TaskArtifacts(tmp_path / "home", always_adopted).workspace(task)

    assert (again / "half.txt").read_text() == "half"


def half_checked_out(project: GitProject, tree: Path, entry: Path) -> None:
    (entry / "shiftboss-ready").unlink()
    (entry / "locked").write_text("initializing")
    (tree / "readme.md").unlink()


def entry_hardly_begun(project: GitProject, tree: Path, entry: Path) -> None:
    for each in entry.iterdir():
        if each.name not in {"gitdir", "commondir"}:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    shutil.rmtree(tree)


def folder_deleted(project: GitProject, tree: Path, entry: Path) -> None:
    shutil.rmtree(tree)


def entry_deleted(project: GitProject, tree: Path, entry: Path) -> None:
    shutil.rmtree(entry)
    shutil.rmtree(tree)


def folder_and_branch_deleted(project: GitProject, tree: Path, entry: Path) -> None:
    shutil.rmtree(tree)
    project.git("worktree", "prune")
    project.git("branch", "-D", "shiftboss/k3m9qa")


def lock_left(project: GitProject, tree: Path, entry: Path) -> None:
    (entry / "index.lock").touch()
    (project.path / ".git/refs/heads/shiftboss/k3m9qa.lock").touch()


def pointer_deleted(project: GitProject, tree: Path, entry: Path) -> None:
    (tree / ".git").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        half_checked_out,
        entry_hardly_begun,
        folder_deleted,
        entry_deleted,
        folder_and_branch_deleted,
        lock_left,
        pointer_deleted,
    ],
    ids=lambda each: each.__name__,
)
async def test_a_damaged_tree_is_opened_all_the_same(
    tmp_path: Path, damage: Callable[[GitProject, Path, Path], None]
) -> None:
    project, artifacts = (
        GitProject(tmp_path / "project"),
        TaskArtifacts(tmp_path / "home", always_adopted),
    )
    task = project.task()
    tree = await artifacts.workspace(task)
    damage(project, tree, project.path / ".git" / "worktrees" / task.id)

    again = await artifacts.workspace(task)
    (again / "made.txt").write_text("made")
    landed = await artifacts.merge(task)

    assert (again, landed.merged) == (tree, True)
    assert (project.path / "readme.md").read_text() == "hello\n"
    assert (project.path / "made.txt").read_text() == "made"
    assert project.worktree_count == 1


async def test_a_folder_git_knows_nothing_of_is_kept_beside(tmp_path: Path) -> None:
    project, artifacts = (
        GitProject(tmp_path / "project"),
        TaskArtifacts(tmp_path / "home", always_adopted),
    )
    task = project.task()
    tree = await artifacts.workspace(task)
    (tree / "half.txt").write_text("half")
    shutil.rmtree(project.path / ".git" / "worktrees")

    again = await artifacts.workspace(task)

    assert not (again / "half.txt").exists()
    (kept,) = tree.parent.glob("k3m9qa.kept-*")
    assert (kept / "half.txt").read_text() == "half"


async def test_a_tree_whose_folder_half_went_is_not_taken_for_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the landed tree was being deleted, file by file."""

    def dies(folder: Path) -> None:
        (folder / "readme.md").unlink()
        raise ProcessKilled

    project, artifacts = (
        GitProject(tmp_path / "project"),
        TaskArtifacts(tmp_path / "home", always_adopted),
    )
    task = project.task()
    tree = await artifacts.workspace(task)
    (tree / "made.txt").write_text("made")
    with monkeypatch.context() as patch:
        patch.setattr(task_workspaces, "delete_tree", dies)
        assert not await _survives(artifacts.merge(task))
    assert (tree / "made.txt").exists()

    landed = await artifacts.merge(task)

    assert landed.merged
    assert (project.path / "readme.md").exists()
    assert project.git("status", "--porcelain") == ""


async def test_a_git_left_behind_is_waited_for(tmp_path: Path) -> None:
    locks, ended = tmp_path / "locks", tmp_path / "ended"
    async with exclusive_access(locks, tmp_path) as guard:
        orphan = await asyncio.create_subprocess_exec(
            *("sh", "-c", f"read line; echo x > {ended}"),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(guard,),
        )

    async def next_one() -> bool:
        async with exclusive_access(locks, tmp_path):
            return ended.exists()

    waiting = asyncio.create_task(next_one())
    await asyncio.sleep(0)
    assert orphan.stdin is not None
    orphan.stdin.write(b"go\n")

    assert await waiting
    await orphan.wait()


async def _survives(work: Any) -> bool:
    try:
        await work
    except ProcessKilled:
        return False
    return True


def _history(project: GitProject, task: Task) -> tuple[str, ...]:
    """The project's current contents and their authors."""
    told = project.git("log", "--format=%s", "--topo-order")
    on_branch = project.git("log", "-1", "--format=%s", task.branch)
    return (project.path / "readme.md").read_text(), told, on_branch
