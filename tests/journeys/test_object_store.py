"""Machines without a common folder: files in both directions go through an object store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.emulators.s3 import S3Emulator
from tests.emulators.telegram.chats import TelegramChat
from tests.journeys.model_world import (
    ModelWorld,
    ask,
    plan_reply,
    shows,
    step_reply,
    wait_for_message,
    write_call,
)
from tests.journeys.program import ShiftbossProcess
from tests.journeys.test_machines import cluster
from tests.journeys.test_memory_consent import files_with
from tests.postgresql_server import create_database, execute
from tests.waiting import wait_until

pytest.importorskip("boto3")


@asynccontextmanager
async def two_machines(
    tmp_path: Path, **settings: str
) -> AsyncGenerator[tuple[ModelWorld, ShiftbossProcess, S3Emulator], None]:
    """A front and a worker that have nothing in common but the store and the object store."""
    url = create_database(migrated=False)
    async with (
        S3Emulator() as s3,
        cluster(tmp_path / "front", url, **s3.settings, **settings) as (world, _),
    ):
        worker = ShiftbossProcess(
            home=tmp_path / "worker",
            settings=world.program.settings,
            arguments=("worker", "--name", "w1"),
        )
        try:
            await worker.start()
            yield world, worker, s3
        finally:
            await worker.kill_if_running()


async def test_files_reach_a_worker_and_come_back(tmp_path: Path) -> None:
    async with two_machines(tmp_path) as (world, worker, s3):
        boss, chat = world.new_owner()
        world.script.script("owl", "plan", plan_reply("read the list"))
        world.script.script(
            "owl",
            "step",
            write_call("answer.md", "The owl has read it."),
            step_reply("read it", "answer.md"),
        )
        await boss.sends_document(chat, "list.txt", b"buy bread", "/run the owl reads the list")
        await wait_for_message(chat, "Task finished")

        (given,) = (worker.home / "work").glob("*/list.txt")
        assert given.read_text() == "buy bread"
        assert (await upload_in(chat)) == b"The owl has read it."
        assert s3.secret not in worker.printed + world.program.printed

        # What only the settings can mend is told at the start, once and without the secret.
        for wrong, said in (
            ({"SHIFTBOSS_S3_SECRET": "wrong-secret"}, "refuses the keys (403): correct SHIFTBOSS"),
            ({"SHIFTBOSS_S3_KEY": "", "SHIFTBOSS_LANGUAGE": "zh"}, "请设置 SHIFTBOSS_S3_KEY 和"),
            ({"SHIFTBOSS_S3_URL": s3.url.replace("team", "tem")}, "correct SHIFTBOSS_S3_URL"),
        ):
            refused = ShiftbossProcess(
                home=tmp_path / "worker", settings={**world.program.settings, **wrong}
            )
            code, printed = await refused.run_to_end("worker", "--name", "w2")
            assert code != 0
            assert said in printed
            assert "wrong-secret" not in printed


async def test_a_result_that_cannot_be_shared_at_once_is_told_and_follows(tmp_path: Path) -> None:
    async with two_machines(tmp_path, SHIFTBOSS_RESULTS="file") as (world, worker, s3):
        boss, chat = world.new_owner()
        long = " ".join(f"Line {number} of a long result." for number in range(300))
        world.script.script("owl", "plan", plan_reply("write it"))
        world.script.script(
            "owl",
            "step",
            write_call("answer.md", "The owl's answer."),
            step_reply(long, "answer.md"),
        )
        s3.closed_to = frozenset({"PUT"})
        await boss.says(chat, "/run the owl writes")
        told = await wait_for_message(chat, "Task finished")
        assert shows(told, "Not here yet", "answer.md")
        report = await chat.wait_for(lambda m: m.upload is not None)
        assert report.upload is not None
        assert b"Line 299" in report.upload.content, "the front has it, and need not wait"
        known = {message.id for message in chat.from_bot}

        # The machine that has the file may start anew meanwhile.
        await worker.kill()
        s3.closed_to = frozenset()
        await worker.start()
        follows = await chat.wait_for(lambda m: m.id not in known and m.upload is not None)
        assert follows.upload is not None
        assert follows.upload.content == b"The owl's answer."
        await wait_until(
            lambda: not execute(world.program.settings["DATABASE_URL"], "SELECT 1 FROM late_files")
        )
        assert len([each for each in s3.objects if "/files/tasks/" in each]) == 2


async def test_what_must_be_forgotten_is_nowhere_on_any_machine(tmp_path: Path) -> None:
    async with two_machines(tmp_path) as (world, worker, s3):
        boss, chat = world.new_owner()
        world.script.script("owl", "plan", plan_reply("read the list"))
        world.script.script(
            "owl",
            "step",
            write_call("answer.md", "It says egret5512."),
            step_reply("read it", "answer.md"),
        )
        said = "/run Don't remember this: the owl reads the list"
        await boss.sends_document(chat, "list.txt", b"egret5512", said)
        await wait_for_message(chat, "Task finished")
        await upload_in(chat)
        homes = [world.program.home, worker.home]
        assert [bool(files_with(each, "egret5512")) for each in homes] == [True, True]
        assert len(s3.objects) == 2

        # The worker is away while it is ordered, and nothing can be deleted in the object store.
        await worker.kill()
        s3.closed_to = frozenset({"DELETE"})
        await ask(boss, chat, "/new", "No conversation yet")
        url = world.program.settings["DATABASE_URL"]
        await wait_until(
            lambda: bool(execute(url, "SELECT 1 FROM file_erasures WHERE home = '' AND tries > 0")),
        )
        assert files_with(worker.home, "egret5512") != []
        s3.closed_to = frozenset()
        await worker.start()
        await wait_until(lambda: not execute(url, "SELECT 1 FROM file_erasures"))

        assert s3.objects == {}
        assert [files_with(each, "egret5512") for each in homes] == [[], []]


async def upload_in(chat: TelegramChat) -> bytes:
    sent = await chat.wait_for(lambda m: m.from_bot and m.upload is not None)
    assert sent.upload is not None
    return sent.upload.content
