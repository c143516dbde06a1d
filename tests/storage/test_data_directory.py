from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.data_directory import (
    DataDirectoryLock,
    ExportFile,
    identify_home,
    remove_unfinished_exports,
)
from storage.errors import DataDirectoryInUse, DataDirectoryUnusable

_HOLDER = """
import sys, pathlib
from storage.data_directory import DataDirectoryLock
home = DataDirectoryLock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_missing_directory_is_made_for_the_user_alone(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path / "a" / "b") as home:
        assert stat.S_IMODE(home.path.stat().st_mode) == 0o700


def test_two_holders_in_one_program_exclude_each_other(tmp_path: Path) -> None:
    with DataDirectoryLock(tmp_path), pytest.raises(DataDirectoryInUse) as busy:
        DataDirectoryLock(tmp_path)

    assert busy.value.pid == str(os.getpid())


@pytest.mark.parametrize("briefly", [True, False])
def test_others_hear_whether_it_is_worth_while_to_wait(tmp_path: Path, briefly: bool) -> None:
    with (
        DataDirectoryLock(tmp_path, is_temporary=briefly),
        pytest.raises(DataDirectoryInUse) as busy,
    ):
        DataDirectoryLock(tmp_path)

    assert (busy.value.pid, busy.value.is_temporary) == (str(os.getpid()), briefly)


def test_a_closed_home_may_be_held_again(tmp_path: Path) -> None:
    DataDirectoryLock(tmp_path).close()

    with DataDirectoryLock(tmp_path) as again:
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
        again.close()  # closing twice is harmless


def test_another_program_is_named_and_its_death_by_kill_leaves_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        with pytest.raises(DataDirectoryInUse) as busy:
            DataDirectoryLock(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()

    assert busy.value.pid == str(holder.pid)
    DataDirectoryLock(tmp_path).close()


def test_a_file_in_the_way_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")

    with pytest.raises(
        DataDirectoryUnusable, match="home cannot be used as data directory: File exists"
    ):
        DataDirectoryLock(tmp_path / "home")


def test_a_parent_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DataDirectoryUnusable, match="Not a directory"):
        DataDirectoryLock(tmp_path / "file" / "home")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory_is_one_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(DataDirectoryUnusable, match="Permission denied"):
        DataDirectoryLock(tmp_path)


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("storage.data_directory.os.pwrite", full)
    with pytest.raises(DataDirectoryUnusable, match="No space left on device"):
        DataDirectoryLock(tmp_path)
    monkeypatch.undo()

    DataDirectoryLock(tmp_path).close()


def test_what_a_dead_process_left_of_an_export_is_removed_but_not_what_is_written(
    tmp_path: Path,
) -> None:
    left = tmp_path / "exports" / "memory.0a1b.part"
    left.parent.mkdir()
    left.write_text("forgotten since")
    written = ExportFile(tmp_path, "other.jsonl")
    written.append_lines(["kept"])

    remove_unfinished_exports(tmp_path)

    assert not left.exists()
    assert written.commit() == 5
    assert [each.name for each in left.parent.iterdir()] == ["other.jsonl"]
    remove_unfinished_exports(tmp_path / "nowhere")


def test_a_directory_keeps_its_id_and_all_processes_get_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        first = {*pool.map(identify_home, [tmp_path / "new" / "home"] * 8)}

    assert len(first) == 1
    assert {identify_home(tmp_path / "new" / "home")} == first
    assert identify_home(tmp_path / "other") not in first
    assert [each.name for each in (tmp_path / "new" / "home").iterdir()] == ["home.id"]
