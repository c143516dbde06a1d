"""Files of Git LFS that the project has are there for its tasks, as far as that is safe."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.engine.workspaces.task_workspaces import TaskArtifacts
from tests.bot.engine.workspaces.git_project import GitProject, always_adopted

CONTENT = "a picture\n" * 300
FILTER = """#!/usr/bin/env python3
# What Git LFS does without a network.
import hashlib, os, subprocess, sys
data = sys.stdin.buffer.read()
if sys.argv[1] == "clean" and not data.startswith(b"version https://git-lfs"):
    oid = hashlib.sha256(data).hexdigest()
    told = subprocess.run(["git", "rev-parse", "--git-common-dir"], capture_output=True, text=True)
    place = os.path.join(told.stdout.strip(), "lfs", "objects", oid[:2], oid[2:4], oid)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if not os.path.exists(place):
        open(place, "wb").write(data)
    text = f"version https://git-lfs.github.com/spec/v1\\noid sha256:{oid}\\nsize {len(data)}\\n"
    data = text.encode()
sys.stdout.buffer.write(data)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitProject:
    program = tmp_path / "lfs"
    program.write_text(FILTER)
    program.chmod(0o755)
    (tmp_path / ".gitconfig").write_text(
        f'[filter "lfs"]\n\tclean = {program} clean\n\tsmudge = {program} smudge\n\trequired\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    made = GitProject(tmp_path / "project")
    # The Boss's own git is without that configuration in these tests.
    for kind in ("clean", "smudge"):
        made.git("config", f"filter.lfs.{kind}", f"{program} {kind}")
    made.commit(".gitattributes", "*.bin filter=lfs\n")
    made.commit("art/a b.bin", CONTENT)
    return made


def stored(project: GitProject, content: str = CONTENT) -> Path:
    oid = hashlib.sha256(content.encode()).hexdigest()
    return project.path / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid


async def test_a_task_has_the_files_that_the_project_has(
    tmp_path: Path, project: GitProject
) -> None:
    artifacts, task = TaskArtifacts(tmp_path / "home", always_adopted), project.task()

    work = await artifacts.workspace(task)
    read = (work / "art" / "a b.bin").read_text()
    (work / "notes.md").write_text("new\n")
    landed = await artifacts.merge(task)

    assert read == CONTENT
    assert landed is not None
    assert landed.merged
    assert project.git("show", "--name-only", "--format=").split() == ["notes.md"]
    assert (project.path / "art" / "a b.bin").read_text() == CONTENT


async def test_a_file_that_a_task_has_changed_arrives_whole(
    tmp_path: Path, project: GitProject
) -> None:
    artifacts, task = TaskArtifacts(tmp_path / "home", always_adopted), project.task()

    work = await artifacts.workspace(task)
    (work / "art" / "a b.bin").write_text("another\n")
    (work / "new.bin").write_text("a new one\n")
    landed = await artifacts.merge(task)

    assert landed is not None
    assert landed.merged
    assert (project.path / "art" / "a b.bin").read_text() == "another\n"
    assert (project.path / "new.bin").read_text() == "a new one\n"
    assert "git-lfs" in project.git("show", "HEAD:new.bin")
    assert project.git("status", "--porcelain") == ""


def lead_elsewhere(place: Path, secret: Path) -> None:
    place.unlink()
    place.symlink_to(secret)


def lead_from_above(place: Path, secret: Path) -> None:
    place.unlink()
    (secret.parent / place.name).write_text(CONTENT)
    place.parent.rmdir()
    place.parent.symlink_to(secret.parent)


def become_pipe(place: Path, _secret: Path) -> None:
    place.unlink()
    os.mkfifo(place)


ODD: dict[str, Callable[[Path, Path], object]] = {
    "gone": lambda place, _: place.unlink(),
    "a link": lead_elsewhere,
    "under a link": lead_from_above,
    "other words of that size": lambda place, _: place.write_text("x" * len(CONTENT)),
    "longer": lambda place, _: place.write_text(CONTENT + "x"),
    "shorter": lambda place, _: place.write_text(CONTENT[:-1]),
    "a pipe": become_pipe,
}


@pytest.mark.parametrize("odd", ODD)
async def test_what_is_not_the_file_that_the_pointer_names_is_not_brought(
    tmp_path: Path, project: GitProject, odd: str
) -> None:
    secret = tmp_path / "outside" / "secret"
    secret.parent.mkdir()
    secret.write_text(CONTENT)
    ODD[odd](stored(project), secret)

    work = await TaskArtifacts(tmp_path / "home", always_adopted).workspace(project.task())

    assert (work / "art" / "a b.bin").read_text().startswith("version https://git-lfs")
    assert not [each.name for each in (work / "art").iterdir() if each.name.endswith(".part")]


async def test_without_the_filter_of_the_user_pointers_stay(
    tmp_path: Path, project: GitProject
) -> None:
    """The whole file would be committed."""
    (tmp_path / ".gitconfig").write_text("")

    work = await TaskArtifacts(tmp_path / "home", always_adopted).workspace(project.task())

    assert (work / "art" / "a b.bin").read_text().startswith("version https://git-lfs")


async def test_files_that_the_filter_does_not_know_stay_pointers(
    tmp_path: Path, project: GitProject
) -> None:
    (tmp_path / ".gitconfig").write_text('[filter "lfs"]\n\tclean = cat\n\tsmudge = cat\n')
    artifacts, task = TaskArtifacts(tmp_path / "home", always_adopted), project.task()

    work = await artifacts.workspace(task)

    assert (work / "art" / "a b.bin").read_text().startswith("version https://git-lfs")
    assert project.git("status", "--porcelain", at=work) == ""
