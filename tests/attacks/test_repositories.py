"""A folder that a worker has written to brings a git configuration: Shiftboss's own git runs no
program that it names, in any of its commands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from bot.engine.llm.backend import BackendDenied
from bot.engine.sandbox.git_runner import GitFailed
from bot.engine.workspaces.artifacts import TaskArtifacts
from bot.engine.workspaces.worktrees import TaskWorktrees
from storage.records.tasks import Task
from tests.bot.engine.workspaces.git_project import GitProject
from tests.journeys.platform_world import platform_world

Attack = Callable[[GitProject, str], None]


def configure(*names: str, attributes: str = "") -> Attack:
    """Name the program in the repository's configuration, and give each file these attributes."""

    def prepare(project: GitProject, program: str) -> None:
        if attributes:
            project.commit(".gitattributes", f"* {attributes}\n")
        for name in names:
            project.git("config", name, "true" if name.endswith("required") else program)

    return prepare


def include(project: GitProject, program: str) -> None:
    project.commit(".gitattributes", "* filter=x\n")
    (project.path / ".git" / "more").write_text(f'[filter "x"]\n\tsmudge = {program}\n')
    project.git("config", "include.path", "more")


def configure_worktrees(project: GitProject, program: str) -> None:
    project.commit(".gitattributes", "* filter=x\n")
    project.git("config", "extensions.worktreeConfig", "true")
    project.git("config", "--worktree", "filter.x.clean", program)


def attribute_by_repository(project: GitProject, program: str) -> None:
    (project.path / ".git" / "info" / "attributes").write_text("* filter=x\n")
    project.git("config", "filter.x.process", program)


def odd_name(project: GitProject, program: str) -> None:
    """A name with the characters that separate names and values elsewhere."""
    project.commit(".gitattributes", "* filter=a=b.c\n")
    project.git("config", "filter.a=b.c.smudge", program)


def hook(project: GitProject, program: str) -> None:
    for name in ("post-checkout", "pre-commit", "post-merge", "reference-transaction"):
        file = project.path / ".git" / "hooks" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{program}\n")
        file.chmod(0o755)


ATTACKS: dict[str, Attack] = {
    "smudge": configure("filter.x.smudge", attributes="filter=x"),
    "clean": configure("filter.x.clean", attributes="filter=x"),
    "process": configure("filter.x.process", attributes="filter=x"),
    "a required filter": configure(
        "filter.x.smudge", "filter.x.clean", "filter.x.required", attributes="filter=x"
    ),
    "in another case": configure("FILTER.x.SmudGe", attributes="filter=x"),
    "included": include,
    "of worktrees": configure_worktrees,
    "attributes in .git": attribute_by_repository,
    "an odd name": odd_name,
    "hooks": hook,
    "another folder of hooks": configure("core.hooksPath"),
    "a file monitor": configure("core.fsmonitor"),
    "an external diff": configure("diff.external"),
    "a diff of its own": configure("diff.x.command", "diff.x.textconv", attributes="diff=x"),
    "a merge driver": configure("merge.x.driver", attributes="merge=x"),
    "an editor": configure("core.editor", "sequence.editor", "core.pager", "pager.diff"),
    "a signing program": configure("gpg.program", "gpg.ssh.program"),
    "credentials": configure("credential.helper", "core.askPass", "core.sshCommand"),
}


async def open_worktree(artifacts: TaskArtifacts, project: GitProject, task: Task) -> None:
    """What our git does before a worker begins, and what the worker then does."""
    await TaskWorktrees(project.path.parent).is_repository(project.path)
    work = await artifacts.workspace(task)
    (work / "readme.md").write_text("theirs\n")
    (work / "new.txt").write_text("new\n")
    await artifacts.find_unchanged(task, work, ("readme.md",))


async def land(artifacts: TaskArtifacts, task: Task) -> None:
    """Commit, merge with a change of the Boss's, check out, and remove."""
    await artifacts.merge(task)
    await artifacts.remove_worktree(task)


@pytest.mark.parametrize("name", ATTACKS)
async def test_no_program_of_a_repository_runs(tmp_path: Path, name: str) -> None:
    project = GitProject(tmp_path / "project")
    witness, program = tmp_path / "witness", tmp_path / "program.sh"
    program.write_text(f"#!/bin/sh\ntouch {witness}\ncat\n")
    program.chmod(0o755)
    ATTACKS[name](project, str(program))
    witness.unlink(missing_ok=True)  # the preparation may have run it
    artifacts, task = TaskArtifacts(tmp_path / "home"), project.task()

    with suppress(GitFailed, BackendDenied):  # refusing is as good
        await open_worktree(artifacts, project, task)
    ran_at_first = witness.exists()
    project.commit("readme.md", "by the Boss\n")
    witness.unlink(missing_ok=True)  # as before
    with suppress(GitFailed, BackendDenied):
        await land(artifacts, task)

    assert not ran_at_first
    assert not witness.exists()


async def test_a_filter_of_the_user_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as Git LFS, which its installation names in the user's configuration."""
    (tmp_path / ".gitconfig").write_text('[filter "x"]\n\tsmudge = tr a-z A-Z\n')
    monkeypatch.setenv("HOME", str(tmp_path))
    project = GitProject(tmp_path / "project")
    project.commit(".gitattributes", "*.md filter=x\n")
    project.git("config", "filter.x.smudge", "touch never")

    work = await TaskArtifacts(tmp_path / "home").workspace(project.task())

    assert (work / "readme.md").read_text() == "HELLO\n"


async def test_a_repository_made_by_a_worker_runs_nothing_in_the_next_task(tmp_path: Path) -> None:
    folder, witness = tmp_path / "shop", tmp_path / "witness"
    project = GitProject(folder)
    project.commit(".gitattributes", "* filter=x\n")
    for kind in ("smudge", "clean", "process"):
        project.git("config", f"filter.x.{kind}", f"touch {witness}; cat")
    async with platform_world(tmp_path / "home") as here:
        told = await here.ask(f'/run -d {folder} write "theirs" to notes.txt', expects="finished")

    assert "notes.txt" in told
    assert not witness.exists()
