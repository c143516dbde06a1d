"""Attachments are in the task's folder under their own names."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from bot.engine.workspaces.task_workspaces import (
    ProjectFolderUnusable,
    TaskArtifacts,
    workspace_names,
)
from storage.records.tasks import TaskId
from tests.bot.engine.workspaces.git_project import always_adopted
from tests.builders import make_task
from tests.engine_harness import run_engine

TASK = TaskId("t")


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        ((), ()),
        (("files/inbox/1/a.txt",), ("a.txt",)),
        (("i/1/a.txt", "i/1/2/a.txt", "i/2/a.txt"), ("a.txt", "a-2.txt", "a-3.txt")),
        (("i/1/a-2.txt", "i/2/a.txt", "i/3/a.txt"), ("a-2.txt", "a.txt", "a-3.txt")),
    ],
)
def test_two_files_of_one_name_are_told_apart(
    sent: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert workspace_names(sent) == names


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "loop", "out", "..", "", "~", "a.txt/b"])
async def test_whatever_a_worker_claims_to_have_made_is_there_or_missing(
    tmp_path: Path, name: str
) -> None:
    work = _work_folder(tmp_path)
    (work / "a.txt").write_text("a", encoding="utf-8")
    (work / "loop").symlink_to("loop")
    (work / "out").symlink_to("/etc/passwd")

    found = await TaskArtifacts(tmp_path, always_adopted).collect(TASK, work, (name, "a.txt"))

    assert found.missing == (name,)
    assert found.copies == ("files/tasks/t/a.txt",)


async def test_what_tools_keep_for_themselves_is_no_product(tmp_path: Path) -> None:
    work = _work_folder(tmp_path)
    (work / ".shiftboss").mkdir()
    (work / ".shiftboss" / "exec-1.txt").write_text("printed", encoding="utf-8")

    found = await TaskArtifacts(tmp_path, always_adopted).collect(
        TASK, work, (".shiftboss/exec-1.txt",)
    )

    assert (found.copies, found.missing, found.skipped) == ((), (), ())


async def test_what_was_sent_before_stays_where_a_folder_has_its_name_now(tmp_path: Path) -> None:
    work, places = _work_folder(tmp_path), TaskArtifacts(tmp_path, always_adopted)
    (work / "a").write_text("first", encoding="utf-8")
    await places.collect(TASK, work, ("a",))
    (work / "a").unlink()
    (work / "a").mkdir()
    (work / "a" / "b").write_text("second", encoding="utf-8")

    found = await places.collect(TASK, work, ("a/b",))

    assert (found.copies, found.skipped) == ((), ("a/b",))
    assert (tmp_path / "files/tasks/t/a").read_text(encoding="utf-8") == "first"


def _work_folder(home: Path) -> Path:
    work = home / "work" / TASK
    work.mkdir(parents=True)
    return work.resolve()


async def test_a_project_folder_that_went_away_is_missed_not_made_anew(tmp_path: Path) -> None:
    project = tmp_path / "project"
    task = replace(make_task(), project_dir=str(project), graph_version=1)

    with pytest.raises(ProjectFolderUnusable):
        await TaskArtifacts(tmp_path / "home", always_adopted).workspace(task)

    assert not project.exists()


async def test_a_file_sent_along_is_in_the_workspace_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tmp_path / "files" / "notes.txt"
    sent.parent.mkdir()
    sent.write_text("all of it")
    artifacts = TaskArtifacts(tmp_path, always_adopted)
    real = shutil.copyfileobj

    def half(source: BinaryIO, target: BinaryIO) -> None:
        target.write(source.read(3))
        raise OSError(28, "No space left on device")

    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task(files=("files/notes.txt",))
        monkeypatch.setattr(shutil, "copyfileobj", half)
        with pytest.raises(OSError, match="No space"):
            await artifacts.workspace(task)
        assert list((tmp_path / "work" / task.id).iterdir()) == []

        monkeypatch.setattr(shutil, "copyfileobj", real)
        workspace = await artifacts.workspace(task)

    assert (workspace / "notes.txt").read_text() == "all of it"


async def test_what_a_dead_process_left_half_written_is_swept_away(tmp_path: Path) -> None:
    artifacts = TaskArtifacts(tmp_path, always_adopted)
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        task = await world.create_task()
        deep = await artifacts.workspace(task) / "src" / "deep"
        deep.mkdir(parents=True)
        (deep / ".shiftboss-0123456789ab.part").write_text("hal")
        (deep / "whole.txt").write_text("whole")

        await artifacts.workspace(task)

    assert [each.name for each in deep.iterdir()] == ["whole.txt"]
