"""A coding CLI does a task: its plan, its changes and its questions are on cards, over a death."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.acp.fake_cli import permission_request, result_reply, tool_call
from tests.emulators.models.script import ScriptedReply
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.emulators.telegram.users import TelegramUser
from tests.journeys.coding_cli_scenarios import (
    COMMAND,
    EDIT_UPDATE,
    PLAN,
    PLAN_UPDATE,
    agent_entry,
    step_done,
    write_agents_file,
)
from tests.journeys.model_world import ModelWorld, label_with, model_world, wait_for_message

pytestmark = pytest.mark.asyncio(loop_scope="module")


def all_kinds(home: Path) -> Path:
    published = permission_request(COMMAND, "call-1", yes=[step_done("It is built.")])
    again = permission_request(COMMAND, "call-2", yes=[step_done("It is built after all.")])
    boast = result_reply({"status": "done", "summary": "Look!", "files": ["ghost.txt"]})
    agents: dict[str, Any] = {
        "builder": agent_entry([PLAN], [PLAN_UPDATE, EDIT_UPDATE, published]),
        "phoenix": agent_entry(
            [PLAN], [PLAN_UPDATE, permission_request(COMMAND, "call-1")], [again]
        ),
        "liar": agent_entry([PLAN], [{"say": "All done, trust me."}]),
        "flooder": agent_entry([{"flood": {"count": 1_000_000, "size": 20_000}}]),
        "mortal": agent_entry([PLAN], [{"say": "So far."}, {"die": 9}], [step_done("It lives.")]),
        "hanger": agent_entry(
            [PLAN],
            [{"update": {"sessionUpdate": "tool_call", **tool_call("sleep 1000")}}, {"deaf": True}],
        ),
        "boaster": agent_entry([PLAN], [boast], [step_done("Now it is there.")]),
        "talker": agent_entry([{"say": "Good to see you."}], [{"say": "Still here."}]),
        "locked": agent_entry([], login=True),
        "gone": {"command": ["no-such-program"]},
    }
    return write_agents_file(home, **agents)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = all_kinds(tmp_path_factory.mktemp("home"))
    settings = {"SHIFTBOSS_LANGUAGE": "en", "SHIFTBOSS_FALLBACK": "offline"}
    async with model_world(home, "anthropic", **settings) as made:
        yield made
        assert "Traceback" not in made.program.printed


def sent_to(world: ModelWorld, name: str) -> str:
    home = world.program.home / "agents" / name
    return next(home.glob("*/received.jsonl")).read_text()


async def none_left(world: ModelWorld, name: str) -> None:
    """Until no process of this CLI is alive."""
    home = f"{world.program.home}/agents/{name}/"

    def alive() -> bool:
        return any(home in told for told in map(_command, Path("/proc").glob("[0-9]*/cmdline")))

    await world.wait_until(lambda: not alive())


def _command(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


async def request_in(chat: TelegramChat) -> TelegramMessage:
    def is_it(message: TelegramMessage) -> bool:
        shown = any("Once" in label for label in message.buttons)
        return message.from_bot and shown and COMMAND in message.text

    return await chat.wait_for(is_it)


async def test_a_clis_plan_changes_and_permission_request_are_shown_on_cards(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "/backend builder")
    await wait_for_message(chat, "builder")
    await boss.says(chat, "/run build it")

    asked = await request_in(chat)
    card = await wait_for_message(
        chat, "Look around", "Change the version", "Edit package.json", "+1.1"
    )
    await boss.presses(asked, label_with(asked.buttons, "Once"))

    await wait_for_message(chat, "Task finished", "It is built.")
    await chat.wait_until(lambda: "Change the version" not in card.text)


async def test_a_permission_request_open_at_a_crash_is_decided_by_its_old_button(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "@phoenix /run build it")
    asked = await request_in(chat)
    once = str(asked.button(label_with(asked.buttons, "Once"))["callback_data"])

    await world.program.kill()
    press = boss.press(asked, "", once)
    await world.program.start()
    await press.answer()

    await wait_for_message(chat, "Task finished", "It is built after all.")
    assert "session/resume" in sent_to(world, "phoenix")


async def test_a_cli_that_only_claims_to_be_done_has_not_succeeded(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "@liar /run build it")

    await wait_for_message(chat, "returned no result")


async def test_a_cli_that_reports_a_missing_file_has_not_succeeded(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "@boaster /run build it")

    await wait_for_message(chat, "Task finished", "Now it is there.")
    assert "ghost.txt" in sent_to(world, "boaster")


async def test_a_cli_that_floods_its_output_is_killed_and_the_chat_is_told(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "@flooder hello there")

    await wait_for_message(chat, "produced too much output")
    await none_left(world, "flooder")


async def test_a_cli_that_crashes_is_restarted_and_continues(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "@mortal /run build it")

    await wait_for_message(chat, "Task finished", "It lives.")
    assert "session/resume" in sent_to(world, "mortal")


async def stopped(boss: TelegramUser, chat: TelegramChat, card: TelegramMessage) -> None:
    """By its button, which asks once more."""
    await boss.presses(card, label_with(card.buttons, "Stop"))
    await chat.wait_until(lambda: any("Sure" in each for each in card.buttons))
    await boss.presses(card, label_with(card.buttons, "Sure"))
    await wait_for_message(chat, "Stopped")


async def test_a_hanging_cli_is_killed_when_its_task_is_stopped(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "@hanger /run build it")
    await stopped(boss, chat, await wait_for_message(chat, "sleep 1000"))
    await none_left(world, "hanger")


async def test_a_fallback_model_is_named_on_the_card(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, '@gone /run wait 100 seconds and then write "x" to a.txt')

    card = await wait_for_message(chat, "gone is unavailable, so offline is used instead")
    await stopped(boss, chat, card)


async def test_a_login_refused_when_the_session_opens_also_uses_the_fallback(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, '@locked /run wait 100 seconds and then write "x" to b.txt')

    card = await wait_for_message(
        chat, "locked is unavailable, so offline is used instead", "not logged in"
    )
    await stopped(boss, chat, card)
    await boss.says(chat, '@locked /run write "x" to b.txt')
    await wait_for_message(chat, "Task finished", "b.txt")


async def test_choosing_a_missing_cli_is_refused_with_advice_and_keeps_the_chats_backend(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "/backend gone")
    await wait_for_message(chat, "gone is unavailable, so nothing was changed", "no-such-program")
    await boss.says(chat, "/backend nope")
    await wait_for_message(chat, "No backend named nope", "builder", "offline", "no-such-program")

    world.script.script("who-is-it", "talk", ScriptedReply(text="Still the same as before."))
    await boss.says(chat, "who-is-it")
    await wait_for_message(chat, "Still the same as before.")


async def test_the_command_line_refuses_a_missing_cli_in_the_same_words(world: ModelWorld) -> None:
    for asked in (["backend", "check", "gone"], ["backend", "check", "nope"]):
        status, said = await world.program.run_to_end(*asked)
        assert status == 1
        assert "no-such-program" in said
    status, said = await world.program.run_to_end("backend", "list")
    assert status == 0
    assert all(name in said for name in ("builder", "gone", "codex", "offline"))


async def test_the_backend_list_says_what_is_missing(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "/backend")

    await wait_for_message(chat, "builder", "gone", "no-such-program")


async def test_a_chat_can_use_a_cli(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "@talker hello there")
    await wait_for_message(chat, "Good to see you.")
    await boss.says(chat, "@talker and now?")

    await wait_for_message(chat, "Still here.")
