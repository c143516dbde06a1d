"""Machines without a common folder: files in both directions go through an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulators.s3 import S3Emulator
from tests.journeys.model_world import plan_reply, step_reply, wait_for_message, write_call
from tests.journeys.program import ShiftbossProcess
from tests.journeys.test_machines import cluster
from tests.postgresql_server import create_database

pytest.importorskip("boto3")

_TAKE_UP_SECONDS = 60.0


async def test_files_reach_a_worker_and_come_back(tmp_path: Path) -> None:
    url = create_database(migrated=False)
    async with S3Emulator() as s3, cluster(tmp_path / "front", url, **s3.settings) as (world, _):
        boss, chat = world.new_owner()
        worker = ShiftbossProcess(
            home=tmp_path / "worker",
            settings=world.program.settings,
            arguments=("worker", "--name", "w1"),
        )
        try:
            await worker.start()
            world.script.script("owl", "plan", plan_reply("read the list"))
            world.script.script(
                "owl",
                "step",
                write_call("answer.md", "The owl has read it."),
                step_reply("read it", "answer.md"),
            )
            await boss.sends_document(chat, "list.txt", b"buy bread", "/run the owl reads the list")
            await wait_for_message(chat, "Task finished", timeout=_TAKE_UP_SECONDS)

            (given,) = (worker.home / "work").glob("*/list.txt")
            assert given.read_text() == "buy bread"
            sent = await chat.wait_for(
                lambda m: m.from_bot and m.upload is not None, _TAKE_UP_SECONDS
            )
            assert sent.upload is not None
            assert sent.upload.content == b"The owl has read it."
            assert s3.secret not in worker.printed + world.program.printed
        finally:
            await worker.kill_if_running()

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
