"""Other users of the machine read nothing in the data directory, whatever it was like before."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.data_directory import make_private
from tests.deep_folders import deep_path, nest_folders
from tests.journeys.platform_world import platform_world
from tests.journeys.program import running_program

__all__ = ["deep_path"]


def open_to_others(home: Path) -> dict[str, str]:
    return {
        str(path.relative_to(home)): oct(stat.S_IMODE(path.lstat().st_mode))
        for path in (home, *home.rglob("*"))
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    }


def widen(home: Path) -> None:
    for path in (home, *home.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    before = os.umask(0o000)
    yield
    os.umask(before)


async def test_nothing_in_a_home_is_open_to_others_while_the_program_runs_and_after(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with platform_world(home, SHIFTBOSS_LOG_LEVEL="DEBUG") as here:
        await here.ask('/run write "one" to notes.txt', expects="finished")
        await here.ask("remember that I like tea")
        while_running = open_to_others(home)
        assert {"shiftboss.db", "shiftboss.db-wal", "logs/shiftboss.log"} <= {
            str(path.relative_to(home)) for path in home.rglob("*")
        }
        await here.program.stop()

    # A task's own files have the modes of its tools, below folders that nobody else can enter.
    assert [name for name in while_running if not name.startswith(("work/", "homes/"))] == []
    assert [name for name in open_to_others(home) if not name.startswith(("work/", "homes/"))] == []


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_a_home_that_was_open_is_closed_at_the_next_start(tmp_path: Path, how: str) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    async with running_program(home) as shiftboss:
        await shiftboss.run_to_end("say", '/run write "one" to notes.txt')
        await (shiftboss.kill() if how == "killed" else shiftboss.stop())
        widen(home)

        await shiftboss.start()

        assert open_to_others(home) == {}


async def test_a_command_beside_closes_the_home_too(tmp_path: Path) -> None:
    async with running_program(tmp_path) as shiftboss:
        await shiftboss.stop()
        widen(tmp_path)

        status, _ = await shiftboss.run_to_end("task", "list")

    assert (status, open_to_others(tmp_path)) == (0, {})


def test_links_lead_nowhere_and_programs_stay_programs(tmp_path: Path) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    for folder in (home / "work" / "t", outside / "deep"):
        folder.mkdir(parents=True)
    for path in (outside / "deep" / "a", home / "work" / "t" / "run.sh", home / "plain"):
        path.write_text("x")
    (home / "work" / "t" / "run.sh").chmod(0o755)
    (home / "plain").chmod(0o644)
    (outside / "deep" / "a").chmod(0o644)
    (outside / "deep").chmod(0o755)
    (home / "folder").symlink_to(outside / "deep")
    (home / "file").symlink_to(outside / "deep" / "a")
    (home / "broken").symlink_to("nowhere")
    (home / "second-name").hardlink_to(outside / "deep" / "a")
    os.mkfifo(home / "pipe", 0o666)

    make_private(home)

    assert stat.S_IMODE((home / "work" / "t" / "run.sh").stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "plain").stat().st_mode) == 0o600
    assert stat.S_IMODE((outside / "deep").stat().st_mode) == 0o755
    assert stat.S_IMODE((outside / "deep" / "a").stat().st_mode) == 0o644
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize(("mode", "left"), [(0o644, 0o644), (0o755, 0o755), (0o600, 0o600)])
async def test_files_of_the_boss_keep_their_modes_where_tasks_write(
    tmp_path: Path, mode: int, left: int
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "there.txt").write_text("before")
    (folder / "there.txt").chmod(mode)
    async with platform_world(tmp_path / "home") as here:
        await here.ask(f'/run -d {folder} write "one" to there.txt', expects="finished")
        await here.ask(f'/run -d {folder} write "two" to sub/new.txt', expects="finished")

    assert stat.S_IMODE((folder / "there.txt").stat().st_mode) == left
    assert (folder / "there.txt").read_text().strip() == "one"
    # As the user's own umask says, with which the program began.
    assert (folder / "sub").stat().st_mode & 0o055 == 0o055
    assert (folder / "sub" / "new.txt").stat().st_mode & 0o044 == 0o044


@pytest.mark.parametrize(("levels", "name"), [(3_000, "d"), (300, "n" * 200)])
async def test_folders_nested_deeper_than_a_path_can_name_stop_nothing(
    deep_path: Path, levels: int, name: str
) -> None:
    home = deep_path / "home"
    async with platform_world(home) as here:
        shiftboss = here.program
        await here.ask('/run write "one" to notes.txt', expects="finished")
        (workspace,) = (home / "work").iterdir()
        nest_folders(workspace / "nested", levels, name=name)
        await shiftboss.kill()
        await shiftboss.start()
        await here.wait_until_connected()

        made = await shiftboss.run_to_end("backup", "--json")
        (archive,) = (home / "backups").iterdir()
        await here.ask("/status", expects="Disk")
        checked = [await shiftboss.run_to_end("check", *of) for of in ([], [str(archive)])]
        await here.ask('/run write "two" to more.txt', expects="finished")
        await shiftboss.stop()
        restored = await shiftboss.run_to_end("restore", str(archive), "--replace")

    ended = (made, *checked, restored)
    assert [said for status, said in ended if status] == []
    (skipped,) = json.loads(made[1])["skipped"]
    assert skipped.startswith(f"work/{workspace.name}/nested/{name}/")
    assert (home / "work" / workspace.name / "notes.txt").read_text().strip() == "one"
