"""A coding CLI does a task: its plan, its changes and its questions are on cards, over a death."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.acp.cli import call_of, result, wish
from tests.emulators.models.script import Reply
from tests.emulators.telegram.chats import Chat, Message
from tests.emulators.telegram.people import User
from tests.journeys.coding import COMMAND, EDIT, LIST, PLAN, agent, done, furnished
from tests.journeys.model_world import PATIENCE, World, label_with, told, world

pytestmark = pytest.mark.asyncio(loop_scope="module")


def all_kinds(home: Path) -> Path:
    published = wish(COMMAND, "call-1", yes=[done("It is built.")])
    again = wish(COMMAND, "call-2", yes=[done("It is built after all.")])
    boast = result({"status": "done", "summary": "Look!", "files": ["ghost.txt"]})
    agents: dict[str, Any] = {
        "builder": agent([PLAN], [LIST, EDIT, published]),
        "phoenix": agent([PLAN], [LIST, wish(COMMAND, "call-1")], [again]),
        "liar": agent([PLAN], [{"say": "All done, trust me."}]),
        "flooder": agent([{"flood": {"count": 1_000_000, "size": 20_000}}]),
        "mortal": agent([PLAN], [{"say": "So far."}, {"die": 9}], [done("It lives.")]),
        "hanger": agent(
            [PLAN],
            [{"update": {"sessionUpdate": "tool_call", **call_of("sleep 1000")}}, {"deaf": True}],
        ),
        "boaster": agent([PLAN], [boast], [done("Now it is there.")]),
        "talker": agent([{"say": "Good to see you."}], [{"say": "Still here."}]),
        "locked": agent([], login=True),
        "gone": {"command": ["no-such-program"]},
    }
    return furnished(home, **agents)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    home = all_kinds(tmp_path_factory.mktemp("home"))
    settings = {"SHIFTBOSS_LANGUAGE": "en", "SHIFTBOSS_FALLBACK": "offline"}
    async with world(home, "anthropic", **settings) as made:
        yield made
        assert "Traceback" not in made.shiftboss.text


def sent_to(place: World, name: str) -> str:
    home = place.shiftboss.home / "agents" / name
    return next(home.glob("*/received.jsonl")).read_text()


async def none_left(place: World, name: str) -> None:
    """Until no process of this CLI is alive."""
    home = f"{place.shiftboss.home}/agents/{name}/"

    def alive() -> bool:
        return any(home in told for told in map(_command, Path("/proc").glob("[0-9]*/cmdline")))

    await place.until(lambda: not alive())


def _command(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


async def request_in(chat: Chat) -> Message:
    def is_it(message: Message) -> bool:
        shown = any("Once" in label for label in message.buttons)
        return message.from_bot and shown and COMMAND in message.text

    return await chat.wait_for(is_it, timeout=PATIENCE)


async def test_its_list_its_changes_and_its_question_are_on_cards(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "/backend builder")
    await told(chat, "builder")
    await boss.says(chat, "/run build it")

    asked = await request_in(chat)
    card = await told(chat, "Look around", "Change the version", "Edit package.json", "+1.1")
    await boss.presses(asked, label_with(asked.buttons, "Once"))

    await told(chat, "Task finished", "It is built.")
    await chat.wait_until(lambda: "Change the version" not in card.text, timeout=PATIENCE)


async def test_a_question_open_at_a_sudden_death_is_decided_by_its_old_button(
    place: World,
) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@phoenix /run build it")
    asked = await request_in(chat)
    once = str(asked.button(label_with(asked.buttons, "Once"))["callback_data"])

    await place.shiftboss.kill()
    press = boss.press(asked, "", once)
    await place.shiftboss.start()
    await press.answer(PATIENCE)

    await told(chat, "Task finished", "It is built after all.")
    assert "session/resume" in sent_to(place, "phoenix")


async def test_one_that_only_says_it_is_done_has_done_nothing(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@liar /run build it")

    await told(chat, "handed in no result")


async def test_one_that_says_it_has_made_what_is_not_there_is_not_believed(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@boaster /run build it")

    await told(chat, "Task finished", "Now it is there.")
    assert "ghost.txt" in sent_to(place, "boaster")


async def test_one_that_floods_is_ended_and_the_chat_is_told(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@flooder hello there")

    await told(chat, "wrote far more than it may")
    await none_left(place, "flooder")


async def test_one_that_dies_in_the_middle_is_started_again_and_goes_on(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@mortal /run build it")

    await told(chat, "Task finished", "It lives.")
    assert "session/resume" in sent_to(place, "mortal")


async def stopped(boss: User, chat: Chat, card: Message) -> None:
    """By its button, which asks once more."""
    await boss.presses(card, label_with(card.buttons, "Stop"))
    await chat.wait_until(lambda: any("Sure" in each for each in card.buttons), timeout=PATIENCE)
    await boss.presses(card, label_with(card.buttons, "Sure"))
    await told(chat, "Stopped")


async def test_one_that_hangs_and_hears_nothing_is_gone_when_its_task_is_stopped(
    place: World,
) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@hanger /run build it")
    await stopped(boss, chat, await told(chat, "sleep 1000"))
    await none_left(place, "hanger")


async def test_who_stands_in_is_on_the_card(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, '@gone /run wait 100 seconds and then write "x" to a.txt')

    card = await told(chat, "gone cannot work now, so offline does this")
    await stopped(boss, chat, card)


async def test_a_login_refused_only_as_its_session_opens_is_stood_in_for_alike(
    place: World,
) -> None:
    boss, chat = place.boss()
    await boss.says(chat, '@locked /run wait 100 seconds and then write "x" to b.txt')

    card = await told(chat, "locked cannot work now, so offline does this", "not logged in")
    await stopped(boss, chat, card)
    await boss.says(chat, '@locked /run write "x" to b.txt')
    await told(chat, "Task finished", "b.txt")


async def test_one_that_is_not_installed_is_refused_with_what_to_do_and_the_chat_keeps_its_own(
    place: World,
) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "/backend gone")
    await told(chat, "gone cannot work yet, so nothing was changed", "no-such-program")
    await boss.says(chat, "/backend nope")
    await told(chat, "No backend is called nope", "builder", "offline", "no-such-program")

    place.stage.on("who-is-it", "talk", Reply(text="Still the same as before."))
    await boss.says(chat, "who-is-it")
    await told(chat, "Still the same as before.")


async def test_the_shell_says_the_same_and_fails(place: World) -> None:
    for asked in (["backend", "check", "gone"], ["backend", "check", "nope"]):
        status, said = await place.shiftboss.run_to_end(*asked)
        assert status == 1
        assert "no-such-program" in said
    status, said = await place.shiftboss.run_to_end("backend", "list")
    assert status == 0
    assert all(name in said for name in ("builder", "gone", "codex", "offline"))


async def test_the_list_says_what_is_missing(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "/backend")

    await told(chat, "builder", "gone", "no-such-program")


async def test_talk_may_be_with_one(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@talker hello there")
    await told(chat, "Good to see you.")
    await boss.says(chat, "@talker and now?")

    await told(chat, "Still here.")
