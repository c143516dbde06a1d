"""The doctor on the real program: what is planted is found, what is safe is repaired, and a press
proves the buttons."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.emulators.models.script import ReceivedRequest, ScriptedFailure, ScriptedReply
from tests.journeys.model_world import model_world
from tests.journeys.platform_world import label, press_outcome
from tests.journeys.program import ShiftbossProcess
from tests.journeys.program_store import lay_out_program_store


async def test_faults_are_found_repaired_where_it_is_safe_and_buttons_proven(
    tmp_path: Path,
) -> None:
    async with model_world(tmp_path, "openai") as world:
        chat, boss = world.telegram_chat, world.telegram_owner

        fine = await world.ask("/doctor", expects="Doctor")
        assert re.search(r"local-model .*127\.0\.0\.1:\d+.* answers, in", fine)
        assert "@" in fine
        assert "The long connection is available" in fine
        assert "Buttons on cards have not been tested" in fine

        # The press on its own card is the proof.
        card = next(m for m in chat.from_bot if "Doctor" in m.text)
        press = boss.press(card, label(card, "Test the buttons"))
        assert "This press arrived" in await press_outcome(press, "This press arrived")

        world.telegram.world.updates.webhook = "https://elsewhere.example/hook"
        world.feishu.app.callbacks = []
        world.models.replies(_refuse_key)
        (world.program.home / "web-token").chmod(0o644)
        status, printed = await world.program.run_to_end("doctor", "--json")
        assert status == 1
        found = {
            each["kind"]: each["next"]
            for check in json.loads(printed)["checks"]
            for each in check["findings"]
        }
        planted = {"model_refuses_with", "telegram_webhook", "feishu_callback", "home_readable"}
        assert planted <= set(found)
        assert all(found[each] for each in planted)
        assert "buttons_proven" in found

        status, printed = await world.program.run_to_end("doctor", "--fix")
        assert "Removed the webhook" in printed
        assert "Made the data directory private" in printed
        assert not world.telegram.world.updates.webhook
        assert (world.program.home / "web-token").stat().st_mode & 0o077 == 0
        assert "rejected the key" in printed


@pytest.mark.parametrize("runs", [False, True])
async def test_commands_answer_in_the_language_of_the_terminal_until_the_person_has_one(
    tmp_path: Path, runs: bool
) -> None:
    """Nor do they show names of the program's own or of its libraries."""
    unreachable = {
        "TELEGRAM_BOT_TOKEN": "1001:emulated-token-not-a-secret",
        "TELEGRAM_BASE_URL": "http://127.0.0.1:9",
        "SHIFTBOSS_MODEL": "openai:auto",
        "OPENAI_API_KEY": "not-a-key",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "LANG": "zh_CN.UTF-8",
    }
    program = ShiftbossProcess(tmp_path / "home", unreachable)
    lay_out_program_store(program.home)
    if runs:
        await program.start()
    try:
        told = [(await program.run_to_end(each))[1] for each in ("status", "doctor")]
        named = re.findall(r"\w*(?:Error|Timeout|TimedOut)\b", "".join(told))
        # Whoever has written English has an English terminal everywhere.
        await program.run_to_end("task", "add", "please write a haiku about the sea")
        later = (await program.run_to_end("status"))[1]
    finally:
        await program.kill_if_running()

    assert "系统状态" in told[0]
    assert "体检" in told[1]
    assert named == []
    assert "在 Telegram 的聊天里" in told[1]
    assert "模型：127.0.0.1:9" in told[0].replace(": ", "：")
    assert "Shiftboss status" in later


def _refuse_key(_asked: ReceivedRequest) -> ScriptedReply:
    return ScriptedReply(failure=ScriptedFailure(status=401, message="bad key"))
