"""Work in folders of the Boss's, on the real program: git projects and plain ones."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bot.engine.workspaces.git_project import GitProject
from tests.emulators.telegram.chats import TelegramMessage
from tests.journeys.model_world import (
    ScriptedModel,
    held_reply,
    plan_reply,
    scripted_model,
    step_reply,
    write_call,
)
from tests.journeys.platform_world import PlatformWorld, label, labels, platform_world
from tests.thoroughness import sampled, thorough_only
from tests.waiting import wait_until


def script_slow_task(stage: ScriptedModel) -> tuple[asyncio.Event, asyncio.Event]:
    """`slow-cue` has three steps, of which two are under way until they are let go;
    `urgent-cue` has one."""
    go, end = asyncio.Event(), asyncio.Event()
    stage.script("slow-cue", "plan", plan_reply("write one", "hold on", "write two"))
    stage.script(
        "slow-cue",
        "step",
        write_call("one.txt", "one"),
        step_reply("One.", "one.txt"),
        held_reply(step_reply("Held."), go),
        write_call("two.txt", "two"),
        held_reply(step_reply("Two.", "two.txt"), end),
    )
    stage.script("urgent-cue", "plan", plan_reply("write it"))
    stage.script(
        "urgent-cue", "step", write_call("urgent.txt", "now"), step_reply("Now.", "urgent.txt")
    )
    return go, end


async def test_urgent_work_in_a_git_project_preempts_on_a_clean_tree_and_both_are_merged(
    tmp_path: Path,
) -> None:
    project = GitProject(tmp_path / "shop")
    async with (
        scripted_model() as (stage, access),
        platform_world(tmp_path / "home", SHIFTBOSS_SLOTS="2", **access) as here,
    ):
        go, end = script_slow_task(stage)
        await here.ask(f"/project {project.path}", expects="git project")
        slow = await here.start_task("/run -p normal slow-cue")
        await here.telegram_chat.wait_until(lambda: "1/3" in slow.text)
        assert "🌿" in slow.text
        await here.telegram_owner.says(here.telegram_chat, "/run -p urgent urgent-cue")
        await here.telegram_chat.wait_until(lambda: "can run, then resumes" in slow.text)
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
    assert project.worktree_count == 1
    (urgent,) = project.git("log", "--format=%H", "--", "urgent.txt").splitlines()
    assert project.git("show", "--format=", "--name-only", urgent) == "urgent.txt"


async def test_work_that_cannot_be_merged_says_where_it_is(tmp_path: Path) -> None:
    project = GitProject(tmp_path / "shop")
    project.write("notes.txt", "mine, unsaved")
    async with platform_world(tmp_path / "home") as here:
        text = f'/run -p urgent -d {project.path} write "theirs" to notes.txt'
        await here.telegram_owner.says(here.telegram_chat, text)
        ending = await _ended(here, "notes.txt")

    assert "git merge shiftboss/" in ending.text
    assert (project.path / "notes.txt").read_text() == "mine, unsaved"


async def test_a_plain_folder_stays_reserved_until_the_button_admits_urgent_work(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    async with (
        scripted_model() as (stage, access),
        platform_world(tmp_path / "home", SHIFTBOSS_SLOTS="2", **access) as here,
    ):
        go, end = script_slow_task(stage)
        await here.ask(f"/project {folder}", expects="keeps the folder")
        slow = await here.start_task("/run -p normal slow-cue")
        await here.telegram_chat.wait_until(lambda: "1/3" in slow.text)
        urgent = await here.queue_task("/run -p urgent urgent-cue")
        await here.telegram_chat.wait_until(lambda: bool(labels(urgent, "Start anyway")))
        assert "Waiting for" in urgent.text
        asked = await here.telegram_owner.presses(urgent, label(urgent, "Start anyway"))
        assert "confirm" in asked.text
        await here.telegram_chat.wait_until(lambda: bool(labels(urgent, "Sure?")))
        await here.telegram_owner.presses(urgent, label(urgent, "Sure?"))
        await here.telegram_chat.wait_until(lambda: "can run, then resumes" in slow.text)
        go.set()
        first = await _ended(here, "urgent-cue")
        end.set()
        second = await _ended(here, "slow-cue")

    assert first.id < second.id
    assert {each.name for each in folder.iterdir()} == {"one.txt", "two.txt", "urgent.txt"}


@thorough_only
async def test_a_worktree_is_reused_after_a_kill(tmp_path: Path) -> None:
    project = GitProject(tmp_path / "shop")
    async with (
        scripted_model() as (stage, access),
        platform_world(tmp_path / "home", **access) as here,
    ):
        stage.script("held-cue", "plan", plan_reply("write one", "hold on"))
        step = held_reply(step_reply("Held."), asyncio.Event())
        report = step_reply("One.", "one.txt")
        stage.script(
            "held-cue", "step", write_call("one.txt", "one"), report, step, step_reply("Held.")
        )
        slow = await here.start_task(f"/run -d {project.path} held-cue")
        await here.telegram_chat.wait_until(lambda: "1/2" in slow.text)
        await stage.wait_for_request("held-cue", count=3)
        await here.program.kill()
        project.commit("boss.txt", "meanwhile")
        await here.program.start()
        await _ended(here, "held-cue")

    assert (project.path / "one.txt").read_text().strip() == "one"
    assert project.git("log", "--format=%s", "--", "one.txt").count("\n") == 0
    assert project.worktree_count == 1


_KILLED_AT = [" merge ", " commit ", " worktree remove "]


@pytest.mark.parametrize("point", _KILLED_AT[: sampled(3, 1)], ids=str.strip)
async def test_a_merge_interrupted_by_a_kill_is_finished_after_the_restart(
    tmp_path: Path, point: str
) -> None:
    project = GitProject(tmp_path / "shop")
    git = SlowGit(tmp_path / "bin", point)
    async with platform_world(tmp_path / "home", PATH=git.path) as here:
        await here.telegram_owner.says(
            here.telegram_chat, f'/run -d {project.path} write "one" to one.txt'
        )
        await git.wait_until_reached()
        await here.program.kill()
        # The git that was left behind goes on only when the next Shiftboss waits for it.
        await here.program.start()
        git.release()
        await _ended(here, "one.txt")

    assert (project.path / "one.txt").read_text().strip() == "one"
    assert len(project.git("log", "--format=%H", "--", "one.txt").splitlines()) == 1
    assert project.git("status", "--porcelain") == ""
    assert project.worktree_count == 1


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

    async def wait_until_reached(self) -> None:
        await wait_until((self._folder / "reached").exists)

    def release(self) -> None:
        (self._folder / "go").touch()


async def _ended(here: PlatformWorld, name: str) -> TelegramMessage:
    return await here.telegram_chat.wait_for(_ending(name))


def _ending(name: str) -> Callable[[TelegramMessage], bool]:
    def holds(message: TelegramMessage) -> bool:
        return "Task finished" in message.text and name in message.text

    return holds
