"""A task's worktree holds what the project's submodules do, and nothing of it gets lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.workspaces.branch_merge import MergeOutcome
from bot.engine.workspaces.task_workspaces import TaskArtifacts
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.workspaces.git_project import GitProject, always_adopted

LOCAL = ("-c", "protocol.file.allow=always")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    """With a submodule whose origin is gone: there is nothing to fetch it from."""
    library = GitProject(tmp_path / "library")
    library.commit("src/lib.py", "VALUE = 1\n")
    made = GitProject(tmp_path / "project")
    made.git(*LOCAL, "submodule", "add", "-q", str(library.path), "deps/lib")
    made.git("commit", "-q", "-m", "take the library in")
    library.path.rename(tmp_path / "moved away")
    return made


@pytest.fixture
def artifacts(home: Path) -> TaskArtifacts:
    return TaskArtifacts(home, always_adopted)


def description(landed: MergeOutcome) -> str:
    assert landed.describe(catalog_for(Language.CHINESE)) or not landed.describe(
        catalog_for(Language.ENGLISH)
    )
    return landed.describe(catalog_for(Language.ENGLISH))


async def test_a_submodule_the_project_has_is_there_without_any_network(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    task = project.task()
    before = project.git("rev-parse", "HEAD:deps/lib")

    tree = await artifacts.workspace(task)

    assert (tree / "deps/lib/src/lib.py").read_text() == "VALUE = 1\n"
    assert not (tree / "deps/lib/.git").exists(), "no settings of git that a worker could change"
    (tree / "new.txt").write_text("made")
    landed = await artifacts.merge(task)
    assert (landed.merged, description(landed)) == (True, "")
    assert (project.path / "new.txt").read_text() == "made"
    assert project.git("rev-parse", "HEAD:deps/lib") == before
    assert project.git("status", "--porcelain") == ""
    assert project.worktree_count == 1


@pytest.mark.parametrize("change", ["written", "new", "removed"])
async def test_what_was_changed_inside_a_submodule_is_told_and_not_lost(
    project: GitProject, artifacts: TaskArtifacts, change: str
) -> None:
    task = project.task()
    tree = await artifacts.workspace(task)
    file = tree / "deps/lib/src" / ("other.py" if change == "new" else "lib.py")
    if change == "removed":
        file.unlink()
    else:
        file.write_text("VALUE = 2\n")

    landed = await artifacts.merge(task)

    assert not landed.merged
    assert f"deps/lib/src/{file.name}" in description(landed)
    assert tree.is_dir()
    assert file.exists() == (change != "removed")


async def test_a_submodule_the_project_does_not_have_is_said_to_be_empty(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    project.git("submodule", "deinit", "-q", "-f", "deps/lib")
    (project.path / ".git/modules").rename(project.path.parent / "modules")
    task = project.task()

    tree = await artifacts.workspace(task)
    assert [*(tree / "deps/lib").iterdir()] == []
    landed = await artifacts.merge(task)

    assert landed.merged
    assert "submodule was empty" in description(landed)
    assert "deps/lib" in description(landed)


async def test_what_gitignore_names_is_told_once_with_its_number(
    project: GitProject, artifacts: TaskArtifacts
) -> None:
    project.commit(".gitignore", "build/\n*.log\n__pycache__/\n")
    task = project.task()
    tree = await artifacts.workspace(task)
    for name in ("build/a.bin", "build/b.bin", "run.log", "__pycache__/x.pyc"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("made")

    landed = await artifacts.merge(task)

    assert landed.merged
    assert "build, run.log (2 in all)" in description(landed)
    assert "pycache" not in description(landed)
    assert description(await artifacts.merge(task)) == ""
