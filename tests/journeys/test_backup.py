"""Backing up, restoring and checking a data directory, from outside."""

from __future__ import annotations

import json
import time
from pathlib import Path

from storage.backup_archive import verify_backup
from storage.migrate import HEAD_REVISION
from tests.emulators.feishu.callbacks import button_action
from tests.journeys.platform_world import (
    feishu_press_outcome,
    label,
    labels,
    platform_world,
    press_outcome,
    token,
)
from tests.journeys.program import ShiftbossProcess, running_program
from tests.journeys.program_store import name_empty_store, open_store
from tests.migrated_database import older_database
from tests.postgresql_server import sqlite_only
from tests.waiting import wait_until


async def test_a_backup_is_made_beside_a_running_program_and_without_one(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".env").write_text("OPENAI_API_KEY=sk-not-a-real-key-000000\n")
    async with running_program(tmp_path / "home") as shiftboss:
        await shiftboss.run_to_end("say", "/memory add the deploy day is Friday")
        status, said = await shiftboss.run_to_end("backup", "--json")
        assert status == 0, said
        beside = json.loads(said)
        assert beside["files"] > 1
        assert Path(beside["file"]).parent == tmp_path / "home" / "backups"
        await shiftboss.stop()

        status, said = await shiftboss.run_to_end("backup", str(tmp_path / "to"))
        assert (status, "verified" in said) == (0, True)
        assert "Without secrets" in said
        assert len(list((tmp_path / "to").iterdir())) == 1

        (tmp_path / "file").write_text("")
        status, said = await shiftboss.run_to_end("backup", str(tmp_path / "file" / "to"))
        assert (status, len(said.splitlines())) == (2, 1)
        assert "no backup was made" in said


async def test_a_restored_home_sends_nothing_again_and_does_nothing_twice(tmp_path: Path) -> None:
    """In the middle of work: one task runs, one waits for its turn, one asks for approval."""
    home = tmp_path / "home"
    async with platform_world(home, SHIFTBOSS_SLOTS="1") as here:
        chat, owner = here.telegram_chat, here.telegram_owner
        await owner.says(chat, '/run write "shipped" to production.txt')
        asks = await chat.wait_for(
            lambda m: "production.txt" in m.text and "Approve" in str(m.buttons)
        )
        approve = token(asks, "Approve")
        running = await here.start_task("/run wait 10 minutes")
        queued = await here.queue_task("/run wait 1 second")
        pause = token(running, "Pause")
        status, said = await here.program.run_to_end("backup", str(tmp_path / "to"), "--json")
        assert status == 0, said
        archive = json.loads(said)["file"]

        # Then life goes on: a decision, a command, a button.
        await press_outcome(owner.press(asks, "", approve), "✅ Approved")
        answer = await here.ask("/status", expects="Shiftboss status")
        assert answer
        name_empty_store(home)
        status, said = await here.program.run_to_end("restore", archive, "--replace")
        assert (status, "stop it" in said) == (2, True), "not beside a running program"
        await here.program.kill()
        await _wait_for_the_next_second()
        status, said = await here.program.run_to_end("restore", archive, "--replace")
        assert (status, "old contents" in said) == (0, True), said
        assert "+00:00" not in said, "people read their own time"
        before = {m.id: m.text for m in chat.from_bot}

        await here.program.start()
        notice = await chat.wait_for_text("Restored from a backup")
        assert "Tasks not continued: 2" in notice.text
        assert "Expired approval requests: 1" in notice.text
        listed = await here.ask("/list", expects="wait 10 minutes")
        assert "⏸" in listed
        # The platform repeats everything that was ever sent.
        here.telegram.redeliver()
        again = [owner.press(asks, "", approve), owner.press(running, "", pause)]
        for press in again:
            await press.answer()
        offered = await chat.wait_for(lambda m: "/status" in m.text and m.id not in before)
        assert offered.buttons

        new = [m.text for m in chat.from_bot if m.id not in before]
        assert sum("Restored from a backup" in text for text in new) == 1
        assert not [text for text in new if "Shiftboss status" in text]
        assert not [text for text in new if text in before.values()]
        assert not _tasks(home, "status IN ('running', 'pending')")
        assert len(_tasks(home, "status = 'paused'")) == 3
        assert not [each for each in home.rglob("production.txt") if "replaced-" not in str(each)]

        # What was offered can be taken up.
        note = await chat.wait_for(lambda m: m.id == queued.id and "Resume" in str(m.buttons))
        await owner.press(note, label(note, "Resume")).answer()
        await chat.wait_for_text("Task finished")

        # It is said once, and a second restore is as clean as the first.
        await here.program.stop()
        await here.program.start()
        await here.ask("/list", expects="wait 10 minutes")
        assert sum("Restored from a backup" in m.text for m in chat.from_bot) == 1


async def test_a_restored_home_ignores_events_that_feishu_repeats(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with platform_world(home, SHIFTBOSS_SLOTS="1") as here:
        chat, owner, feishu = here.feishu_chat, here.feishu_owner, here.feishu
        await owner.says(chat, '/run write "shipped" to production.txt')
        asks = await chat.wait_for(
            lambda m: "production.txt" in m.text and "Approve" in str(m.buttons)
        )
        await owner.says(chat, "/run wait 10 minutes")
        # The other task's card shows 🔄, too, until it shows that it waits.
        running = await chat.wait_for(lambda m: "🔄 wait" in m.header and bool(labels(m, "Pause")))
        pause = button_action(running, label(running, "Pause"), {})["value"]
        status, said = await here.program.run_to_end("backup", str(tmp_path / "to"), "--json")
        assert status == 0, said

        await here.ask_on_feishu("/status", expects="Shiftboss status")
        pressed = owner.presses(asks, label(asks, "Approve"))
        await feishu_press_outcome(asks, pressed, "✅ Approved")
        await here.program.kill()
        archive = json.loads(said)["file"]
        name_empty_store(home)
        await _wait_for_the_next_second()
        status, said = await here.program.run_to_end("restore", archive, "--replace")
        assert status == 0, said
        before = {m.message_id for m in chat.from_bot}
        await here.program.start()
        await feishu.wait_for_connections()
        # Owners on each channel are told, and the platform repeats everything that was ever sent.
        notice = await chat.wait_for(lambda m: "Restored from a backup" in f"{m.header} {m.text}")
        assert "Tasks not continued" in notice.text
        again = [feishu.long.redeliver(push) for push in [*feishu.pushes]]
        for push in again:
            await push.acked
        await owner.forges(running, pause)
        offered = await chat.wait_for(
            lambda m: "/status" in m.text and m.message_id not in before and bool(m.buttons)
        )
        assert labels(offered, "Handle")

        new = [f"{m.header} {m.text}" for m in chat.from_bot if m.message_id not in before]
        assert sum("Restored from a backup" in text for text in new) == 1
        assert not [text for text in new if "Shiftboss status" in text]
        assert not _tasks(home, "status IN ('running', 'pending')")
        assert len(_tasks(home, "1 = 1")) == 2, "no task was created again"
        assert not [each for each in home.rglob("production.txt") if "replaced-" not in str(each)]


async def _wait_for_the_next_second() -> None:
    """What was said in the second of a restore counts as said after it."""
    said = int(time.time())
    await wait_until(lambda: int(time.time()) > said)


def _tasks(home: Path, where: str) -> list[str]:
    with open_store(home) as db:
        return [row[0] for row in db.execute(f"SELECT id FROM tasks WHERE {where}")]


@sqlite_only("the older store is a file")
async def test_a_store_is_backed_up_before_it_is_migrated(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shiftboss = ShiftbossProcess(home=home, settings={})
    home.mkdir()
    older = older_database(home / "shiftboss.db")
    (home / "backups").write_text("in the way")

    status, said = await shiftboss.run_to_end("task", "ls")
    assert (status, "no backup was made" in said) == (2, True), said
    (home / "backups").unlink()
    status, said = await shiftboss.run_to_end("task", "ls")

    assert status == 0, said
    (made,) = (home / "backups").iterdir()
    assert f"-before-{HEAD_REVISION}" in made.name
    assert verify_backup(made).schema == older
    assert (await shiftboss.run_to_end("check"))[0] == 0
    status, said = await shiftboss.run_to_end("check", str(made))
    assert (status, "older" in said) == (0, True)


async def test_status_tells_owners_of_backups_and_of_the_disk(tmp_path: Path) -> None:
    async with running_program(tmp_path) as shiftboss:
        status, said = await shiftboss.run_to_end("status")
        assert (status, "Last backup: none yet" in said) == (0, True), said
        await shiftboss.run_to_end("backup")
        _, said = await shiftboss.run_to_end("status")
        assert "Last backup: 20" in said
        assert "database" in said
        _, said = await shiftboss.run_to_end("status", "--json")
        assert json.loads(said)["disk"]["backups"] > 0
