"""Work in folders of the Boss's, on the real program: git projects and plain ones."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bot.engine.workflow.places.git_world import Project
from tests.emulators.telegram.chats import Message
from tests.journeys.model_world import Stage, done, held, staged, steps, writes
from tests.journeys.town import PATIENCE, Town, label, labels, town
from tests.thorough import long, sampled


def slow_work(stage: Stage) -> tuple[asyncio.Event, asyncio.Event]:
    """`slow-cue` has three steps, of which two are under way until they are let go;
    `urgent-cue` has one."""
    go, end = asyncio.Event(), asyncio.Event()
    stage.on("slow-cue", "plan", steps("write one", "hold on", "write two"))
    stage.on(
        "slow-cue",
        "step",
        writes("one.txt", "one"),
        done("One.", "one.txt"),
        held(done("Held."), go),
        writes("two.txt", "two"),
        held(done("Two.", "two.txt"), end),
    )
    stage.on("urgent-cue", "plan", steps("write it"))
    stage.on("urgent-cue", "step", writes("urgent.txt", "now"), done("Now.", "urgent.txt"))
    return go, end


async def test_urgent_work_in_one_git_project_cuts_in_on_a_clean_tree_and_both_come_in(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path / "shop")
    async with (
        staged() as (stage, access),
        town(tmp_path / "home", SHIFTBOSS_SLOTS="2", **access) as here,
    ):
        go, end = slow_work(stage)
        await here.ask(f"/project {project.path}", expects="git project")
        slow = await here.live("/run -p normal slow-cue")
        await here.home.wait_until(lambda: "1/3" in slow.text, timeout=PATIENCE)
        assert "🌿" in slow.text
        await here.boss.says(here.home, "/run -p urgent urgent-cue")
        await here.home.wait_until(lambda: "Makes room" in slow.text, timeout=PATIENCE)
        go.set()
        first = await _ended(here, "urgent-cue")
        assert not (project.path / "one.txt").exists()
        assert (project.path / "urgent.txt").read_text().strip() == "now"
        end.set()
        second = await _ended(here, "slow-cue")

    assert first.id < second.id
    assert (project.path / "one.txt").read_text().strip() == "one"
    assert (project.path / "two.txt").read_text().strip() == "two"
    assert project.git("status", "--porcelain") == ""
    assert project.trees == 1
    (urgent,) = project.git("log", "--format=%H", "--", "urgent.txt").splitlines()
    assert project.git("show", "--format=", "--name-only", urgent) == "urgent.txt"


async def test_work_that_cannot_come_in_says_where_it_is(tmp_path: Path) -> None:
    project = Project(tmp_path / "shop")
    project.write("notes.txt", "mine, unsaved")
    async with town(tmp_path / "home") as here:
        text = f'/run -p urgent -d {project.path} write "theirs" to notes.txt'
        await here.boss.says(here.home, text)
        ending = await _ended(here, "notes.txt")

    assert "git merge shiftboss/" in ending.text
    assert (project.path / "notes.txt").read_text() == "mine, unsaved"


async def test_a_plain_folder_is_kept_until_the_button_lets_urgent_work_in(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    async with (
        staged() as (stage, access),
        town(tmp_path / "home", SHIFTBOSS_SLOTS="2", **access) as here,
    ):
        go, end = slow_work(stage)
        await here.ask(f"/project {folder}", expects="keeps the folder")
        slow = await here.live("/run -p normal slow-cue")
        await here.home.wait_until(lambda: "1/3" in slow.text, timeout=PATIENCE)
        urgent = await here.queued("/run -p urgent urgent-cue")
        await here.home.wait_until(lambda: bool(labels(urgent, "Let it in")), timeout=PATIENCE)
        assert "Waits for" in urgent.text
        asked = await here.boss.presses(urgent, label(urgent, "Let it in"))
        assert "sure" in asked.text
        await here.home.wait_until(lambda: bool(labels(urgent, "Sure?")), timeout=PATIENCE)
        await here.boss.presses(urgent, label(urgent, "Sure?"))
        await here.home.wait_until(lambda: "Makes room" in slow.text, timeout=PATIENCE)
        go.set()
        first = await _ended(here, "urgent-cue")
        end.set()
        second = await _ended(here, "slow-cue")

    assert first.id < second.id
    assert {each.name for each in folder.iterdir()} == {"one.txt", "two.txt", "urgent.txt"}


@long
async def test_a_tree_is_taken_up_again_after_a_kill(tmp_path: Path) -> None:
    project = Project(tmp_path / "shop")
    async with staged() as (stage, access), town(tmp_path / "home", **access) as here:
        stage.on("held-cue", "plan", steps("write one", "hold on"))
        step = held(done("Held."), asyncio.Event())
        report = done("One.", "one.txt")
        stage.on("held-cue", "step", writes("one.txt", "one"), report, step, done("Held."))
        slow = await here.live(f"/run -d {project.path} held-cue")
        await here.home.wait_until(lambda: "1/2" in slow.text, timeout=PATIENCE)
        await stage.under_way("held-cue", count=3)
        await here.shiftboss.kill()
        project.commit("boss.txt", "meanwhile")
        await here.shiftboss.start()
        await _ended(here, "held-cue")

    assert (project.path / "one.txt").read_text().strip() == "one"
    assert project.git("log", "--format=%s", "--", "one.txt").count("\n") == 0
    assert project.trees == 1


_KILLED_AT = [" merge ", " commit ", " worktree remove "]


@pytest.mark.parametrize("point", _KILLED_AT[: sampled(3, 1)], ids=str.strip)
async def test_landing_is_finished_after_a_kill_in_the_middle_of_it(
    tmp_path: Path, point: str
) -> None:
    project = Project(tmp_path / "shop")
    git = SlowGit(tmp_path / "bin", point)
    async with town(tmp_path / "home", PATH=git.path) as here:
        await here.boss.says(here.home, f'/run -d {project.path} write "one" to one.txt')
        await git.reached()
        await here.shiftboss.kill()
        # The git that was left behind goes on only when the next Shiftboss waits for it.
        await here.shiftboss.start()
        git.go_on()
        await _ended(here, "one.txt")

    assert (project.path / "one.txt").read_text().strip() == "one"
    assert len(project.git("log", "--format=%H", "--", "one.txt").splitlines()) == 1
    assert project.git("status", "--porcelain") == ""
    assert project.trees == 1


class SlowGit:
    """A `git` that stops once, before it does what `point` names."""

    def __init__(self, folder: Path, point: str) -> None:
        folder.mkdir()
        self._folder = folder
        self.path = f"{folder}:{os.environ['PATH']}"
        script = folder / "git"
        script.write_text(
            f"""#!/bin/sh
case " $* " in *"{point}"*)
  if mkdir {folder}/once 2>/dev/null; then
    touch {folder}/reached
    while [ ! -e {folder}/go ]; do sleep 0.05; done
  fi ;;
esac
exec {shutil.which("git")} "$@"
"""
        )
        script.chmod(0o755)

    async def reached(self) -> None:
        async with asyncio.timeout(2 * PATIENCE):
            while not (self._folder / "reached").exists():
                await asyncio.sleep(0.02)

    def go_on(self) -> None:
        (self._folder / "go").touch()


async def _ended(here: Town, name: str) -> Message:
    return await here.home.wait_for(_ending(name), timeout=2 * PATIENCE)


def _ending(name: str) -> Callable[[Message], bool]:
    def holds(message: Message) -> bool:
        return "Task finished" in message.text and name in message.text

    return holds
