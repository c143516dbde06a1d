"""A task in a git project works apart, and what it made comes in without touching the Boss's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from bot.engine.llm.backend import BackendDenied
from bot.engine.sandbox import git_runner as git_module
from bot.engine.workspaces.branch_merge import MergeOutcome
from bot.engine.workspaces.task_workspaces import (
    _READY_MARKER,
    ProjectFolderUnusable,
    TaskArtifacts,
    TaskWorktrees,
)
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.workspaces.git_project import GitProject, always_adopted


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    return GitProject(tmp_path / "project")


@pytest.fixture
def artifacts(home: Path) -> TaskArtifacts:
    return TaskArtifacts(home, always_adopted)


def description(landed: MergeOutcome) -> str:
    """The text that the Boss reads; it must exist in both languages."""
    assert catalog_for(Language.CHINESE)(landed.reason_key, **landed.facts)
    return catalog_for(Language.ENGLISH)(landed.reason_key, **landed.facts)


async def test_a_folder_is_a_repository_if_it_is_part_of_a_commit(
    tmp_path: Path, home: Path, project: GitProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.commit("part/a.txt", "a")
    (project.path / "new").mkdir()
    (tmp_path / "plain").mkdir()
    (tmp_path / "empty").mkdir()
    project.git("init", "-q", at=tmp_path / "empty")
    trees = TaskWorktrees(home, always_adopted)

    assert await trees.find_repository(project.path)
    assert await trees.find_repository(project.path / "part")
    for other in ("plain", "empty", "project/new", "project/.git", "nowhere"):
        assert not await trees.find_repository(tmp_path / other), other
    monkeypatch.setenv("PATH", str(tmp_path / "plain"))
    assert not await trees.find_repository(project.path)


async def test_work_is_done_apart_and_comes_in_when_it_lands(
    home: Path, project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()

    workspace = await artifacts.workspace(task)
    (workspace / "made.txt").write_text("made")
    assert workspace == home.resolve() / "work" / task.id
    assert (workspace / "readme.md").read_text() == "hello\n"
    assert not (project.path / "made.txt").exists()
    landed = await artifacts.merge(task)

    assert landed == MergeOutcome(commit=project.git("rev-parse", "HEAD"))
    assert (project.path / "made.txt").read_text() == "made"
    assert project.git("log", "-1", "--format=%an %s") == "Boss Water the plants"
    assert project.git("status", "--porcelain") == ""
    assert not workspace.exists()
    assert project.worktree_count == 1


async def test_landing_twice_changes_nothing(project: GitProject, artifacts: TaskArtifacts) -> None:
    task = project.task()
    (await artifacts.workspace(task) / "made.txt").write_text("made")

    first = await artifacts.merge(task)
    state = project.checkout_state
    project_later = await artifacts.merge(task)

    assert project_later == first
    assert project.checkout_state == state
    assert project.worktree_count == 1


async def test_a_task_that_made_nothing_lands_without_a_commit(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    before = project.git("rev-parse", "HEAD")
    await artifacts.workspace(task)

    landed = await artifacts.merge(task)

    assert landed == MergeOutcome(commit=before)
    assert project.git("rev-parse", "HEAD") == before


async def test_without_a_name_of_the_boss_shiftboss_signs(
    tmp_path: Path, artifacts: TaskArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    project = GitProject(tmp_path / "nameless", name="")
    task = project.task()
    (await artifacts.workspace(task) / "made.txt").write_text("made")

    await artifacts.merge(task)

    assert project.git("log", "-1", "--format=%an <%ae>") == "Shiftboss <shiftboss@localhost>"


async def test_a_workspace_is_the_same_folder_within_the_tree(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    project.commit("part/a.txt", "a")
    task = project.task(folder="part")

    workspace = await artifacts.workspace(task)
    (workspace / "b.txt").write_text("b")
    landed = await artifacts.merge(task)

    assert (workspace.name, landed.merged) == ("part", True)
    assert (project.path / "part" / "b.txt").read_text() == "b"


async def test_what_the_boss_sent_along_is_not_committed_unless_it_was_there(
    home: Path, project: GitProject, artifacts: TaskArtifacts
) -> None:
    project.commit("part/known.txt", "old")
    for name in ("new.txt", "known.txt"):
        (home / name).write_text("sent")
    task = project.task(folder="part", files=("new.txt", "known.txt"))

    workspace = await artifacts.workspace(task)
    assert (workspace / "new.txt").read_text() == "sent"
    (workspace / "known.txt").write_text("changed")
    landed = await artifacts.merge(task)

    assert landed.merged
    assert not (project.path / "part" / "new.txt").exists()
    assert (project.path / "part" / "known.txt").read_text() == "changed"
    assert project.worktree_count == 1


async def test_what_both_did_is_put_together(project: GitProject, artifacts: TaskArtifacts) -> None:
    task = project.task()
    (await artifacts.workspace(task) / "made.txt").write_text("made")
    project.commit("boss.txt", "mine")
    project.write("readme.md", "not committed yet\n")

    landed = await artifacts.merge(task)

    assert landed.merged
    assert (project.path / "made.txt").exists()
    assert (project.path / "boss.txt").exists()
    assert (project.path / "readme.md").read_text() == "not committed yet\n"


async def test_staged_changes_of_the_boss_stay_staged(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    (await artifacts.workspace(task) / "made.txt").write_text("made")
    project.commit("boss.txt", "mine")
    project.write("staged.txt", "soon")
    project.git("add", "staged.txt")

    landed = await artifacts.merge(task)

    assert landed.merged
    assert project.git("status", "--porcelain") == "A  staged.txt"


async def test_a_conflict_leaves_everything_as_it_was_and_the_work_on_its_branch(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    workspace = await artifacts.workspace(task)
    (workspace / "readme.md").write_text("theirs\n")
    project.commit("readme.md", "mine\n")
    before = project.checkout_state

    landed = await artifacts.merge(task)

    assert not landed.merged
    assert "readme.md" in description(landed)
    assert project.checkout_state[0] == before[0]
    assert (project.path / "readme.md").read_text() == "mine\n"
    assert project.git("show", f"{task.branch}:readme.md") == "theirs"
    assert (workspace / "readme.md").read_text() == "theirs\n"
    assert await artifacts.merge(task) == landed


@pytest.mark.parametrize("name", ["readme.md", "made.txt"])
async def test_what_the_boss_has_not_committed_is_never_overwritten(
    project: GitProject, artifacts: TaskArtifacts, name: str
) -> None:
    task = project.task()
    (await artifacts.workspace(task) / name).write_text("theirs\n")
    project.write(name, "mine, unsaved\n")

    landed = await artifacts.merge(task)

    assert not landed.merged
    assert name in description(landed)
    assert (project.path / name).read_text() == "mine, unsaved\n"
    project.git("stash", "-q", "-u")
    assert (await artifacts.merge(task)).merged
    assert (project.path / name).read_text() == "theirs\n"


async def test_a_file_that_the_boss_has_git_ignore_is_not_overwritten_either(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    (await artifacts.workspace(task) / "secret.txt").write_text("theirs\n")
    (project.path / ".git" / "info" / "exclude").write_text("")
    project.write("secret.txt", "mine\n")
    await _commit_by_hand(project, artifacts, "secret.txt")
    (project.path / ".git" / "info" / "exclude").write_text("secret.txt\n")

    landed = await artifacts.merge(task)

    assert not landed.merged
    assert (project.path / "secret.txt").read_text() == "mine\n"


async def _commit_by_hand(project: GitProject, artifacts: TaskArtifacts, name: str) -> None:
    """As a worker that knows git would."""
    workspace = await artifacts.workspace(project.task())
    project.git("add", name, at=workspace)
    project.git("commit", "-q", "-m", "by the worker", at=workspace)


async def test_no_branch_checked_out_means_the_work_stays_on_its_own(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    (await artifacts.workspace(task) / "made.txt").write_text("made")
    project.git("checkout", "-q", "--detach")

    landed = await artifacts.merge(task)

    assert not landed.merged
    assert task.branch in description(landed)
    project.git("checkout", "-q", "main")
    assert (await artifacts.merge(task)).merged


async def test_a_repository_made_inside_keeps_the_tree(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    workspace = await artifacts.workspace(task)
    (workspace / "made.txt").write_text("made")
    GitProject(workspace / "inner")

    landed = await artifacts.merge(task)

    assert not landed.merged
    assert "inner" in description(landed)
    assert (workspace / "inner" / "readme.md").exists()


async def test_a_tree_that_was_moved_to_another_branch_is_left_alone(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    workspace = await artifacts.workspace(task)
    project.git("checkout", "-q", "-b", "elsewhere", at=workspace)

    landed = await artifacts.merge(task)

    assert not landed.merged
    assert str(workspace) in description(landed)


async def test_hooks_do_not_run_not_even_those_a_worker_wrote(
    tmp_path: Path, project: GitProject, artifacts: TaskArtifacts
) -> None:
    project.git("config", "core.hooksPath", "hooks")
    task = project.task()
    workspace = await artifacts.workspace(task)
    for name in ("pre-commit", "commit-msg", "post-merge", "post-checkout"):
        hook = workspace / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\nexit 1\n")
        hook.chmod(0o755)

    landed = await artifacts.merge(task)

    assert landed.merged
    assert not [*tmp_path.glob("ran-*")]


async def test_a_worker_cannot_make_git_read_its_own_settings(
    tmp_path: Path, project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    workspace = await artifacts.workspace(task)
    fake = workspace / "fake"
    project.git("init", "-q", str(fake))
    project.git("config", "core.fsmonitor", f"touch {tmp_path}/ran", at=fake)
    (workspace / ".git").write_text(f"gitdir: {fake}/.git\n")

    landed = await artifacts.merge(task)

    assert not (tmp_path / "ran").exists()
    assert not landed.merged
    assert "fake" in description(landed)


async def test_two_tasks_of_one_project_land_one_after_the_other(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    tasks = [project.task(f"task{n}") for n in range(3)]
    for task in tasks:
        (await artifacts.workspace(task) / f"{task.id}.txt").write_text("made")

    landed = await asyncio.gather(*map(artifacts.merge, tasks))

    assert all(each.merged for each in landed)
    assert all((project.path / f"{task.id}.txt").exists() for task in tasks)


async def test_a_project_that_is_gone_blocks_the_task_and_says_so(
    tmp_path: Path, project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    project.path.rename(tmp_path / "elsewhere")

    with pytest.raises(BackendDenied) as denied:
        await artifacts.workspace(task)
    landed = await artifacts.merge(task)

    assert catalog_for(Language.ENGLISH).has(denied.value.hint)
    assert not landed.merged
    assert description(landed)


async def test_a_deleted_task_leaves_no_tree_but_its_work_on_the_branch(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    idle, busy = project.task("idle"), project.task("busy")
    await artifacts.workspace(idle)
    (await artifacts.workspace(busy) / "made.txt").write_text("made")

    await artifacts.remove_worktree(idle)
    await artifacts.remove_worktree(busy)
    await artifacts.remove_worktree(busy)

    assert project.worktree_count == 1
    assert project.git("branch", "--list", "shiftboss/*").split() == ["shiftboss/busy"]
    assert project.git("show", "shiftboss/busy:made.txt") == "made"


async def test_a_lock_of_the_bosss_own_git_is_respected(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    (await artifacts.workspace(task) / "made.txt").write_text("made")
    lock = project.path / ".git" / "index.lock"
    lock.touch()

    landed = await artifacts.merge(task)

    assert not landed.merged
    assert "index.lock" in description(landed)
    assert lock.exists()
    lock.unlink()
    assert (await artifacts.merge(task)).merged


async def test_steps_that_come_after_landing_go_on_from_there(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    (await artifacts.workspace(task) / "one.txt").write_text("one")
    await artifacts.merge(task)

    again = await artifacts.workspace(task)
    assert (again / "one.txt").exists()
    (again / "two.txt").write_text("two")

    assert (await artifacts.merge(task)).merged
    assert (project.path / "two.txt").read_text() == "two"


async def test_a_git_that_does_not_end_is_ended(
    tmp_path: Path, project: GitProject, artifacts: TaskArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec tail -f /dev/null\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")

    monkeypatch.setattr(git_module, "COMMAND_TIMEOUT", 0.5)
    landed = await artifacts.merge(project.task())
    if not (tmp_path / "pid").exists():  # a busy machine has not even begun it by then
        monkeypatch.setattr(git_module, "COMMAND_TIMEOUT", 30.0)
        landed = await artifacts.merge(project.task())

    assert "longer than" in description(landed)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_files_as_they_were_checked_out_are_known_from_those_that_were_written(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    project.commit("a.txt", "a\n")
    task = project.task()
    work = await artifacts.workspace(task)
    (marker,) = (project.path / ".git" / "worktrees").glob(f"*/{_READY_MARKER}")
    made = marker.stat().st_mtime
    os.utime(marker, (made + 60, made + 60))  # as if the checkout had taken a while
    os.utime(work / "a.txt", (made + 120, made + 120))
    names = ("readme.md", "a.txt", "none.txt", "../out.txt", "x\0y")

    assert await artifacts.find_unchanged(task, work, names) == ("readme.md",)


async def test_a_repository_that_nobody_has_adopted_is_not_used(
    home: Path, project: GitProject
) -> None:
    async def never(_folder: Path, _repository: Sequence[Path]) -> bool:
        return False

    with pytest.raises(ProjectFolderUnusable):
        await TaskArtifacts(home, never).workspace(project.task())

    assert project.worktree_count == 1


@pytest.mark.parametrize("place", ["data", ".git.d", "sub/.git"])
async def test_a_repository_among_the_projects_own_files_is_none(
    home: Path, project: GitProject, place: str
) -> None:
    """A command could change it, so it must not be used, whether a file or a link leads to it."""
    trees = TaskWorktrees(home, always_adopted)
    git, elsewhere = project.path / ".git", project.path / place
    elsewhere.parent.mkdir(exist_ok=True)
    git.rename(elsewhere)

    git.write_text(f"gitdir: {place}\n")
    by_file = await trees.find_repository(project.path)
    git.unlink()
    git.symlink_to(elsewhere)
    by_link = await trees.find_repository(project.path)

    assert (by_file, by_link) == ((), ())
