"""What was sent along lies in the task's folder under its own name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.workflow.places.artifacts import Artifacts, FolderTrouble, names_in_workspace
from storage.records.tasks import TaskId
from tests.samples import a_task

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
    assert names_in_workspace(sent) == names


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "loop", "out", "..", "", "~", "a.txt/b"])
async def test_whatever_a_worker_claims_to_have_made_is_there_or_missing(
    tmp_path: Path, name: str
) -> None:
    work = _work(tmp_path)
    (work / "a.txt").write_text("a", encoding="utf-8")
    (work / "loop").symlink_to("loop")
    (work / "out").symlink_to("/etc/passwd")

    found = await Artifacts(tmp_path).collect(TASK, work, (name, "a.txt"))

    assert found.missing == (name,)
    assert found.copies == ("files/tasks/t/a.txt",)


async def test_what_tools_keep_for_themselves_is_no_product(tmp_path: Path) -> None:
    work = _work(tmp_path)
    (work / ".shiftboss").mkdir()
    (work / ".shiftboss" / "exec-1.txt").write_text("printed", encoding="utf-8")

    found = await Artifacts(tmp_path).collect(TASK, work, (".shiftboss/exec-1.txt",))

    assert (found.copies, found.missing, found.left_out) == ((), (), ())


async def test_what_was_sent_before_stays_where_a_folder_has_its_name_now(tmp_path: Path) -> None:
    work, places = _work(tmp_path), Artifacts(tmp_path)
    (work / "a").write_text("first", encoding="utf-8")
    await places.collect(TASK, work, ("a",))
    (work / "a").unlink()
    (work / "a").mkdir()
    (work / "a" / "b").write_text("second", encoding="utf-8")

    found = await places.collect(TASK, work, ("a/b",))

    assert (found.copies, found.left_out) == ((), ("a/b",))
    assert (tmp_path / "files/tasks/t/a").read_text(encoding="utf-8") == "first"


def _work(home: Path) -> Path:
    work = home / "work" / TASK
    work.mkdir(parents=True)
    return work.resolve()


async def test_a_project_folder_that_went_away_is_missed_not_made_anew(tmp_path: Path) -> None:
    project = tmp_path / "project"
    task = replace(a_task(), project_dir=str(project), graph_version=1)

    with pytest.raises(FolderTrouble):
        await Artifacts(tmp_path / "home").workspace(task)

    assert not project.exists()
