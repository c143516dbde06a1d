"""A coding CLI does a task: its plan, its changes and its questions are on cards, over a death."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from tests.emulators.acp.cli import PROGRAM, result, wish
from tests.emulators.telegram.chats import Chat, Message
from tests.journeys.model_world import PATIENCE, World, label_with, told, world

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMAND = "npm publish"
PLAN = result({"plan": "Build and publish.", "steps": [{"title": "Build it"}]})
LIST = {
    "update": {
        "sessionUpdate": "plan",
        "entries": [
            {"content": "Look around", "status": "completed"},
            {"content": "Change the version", "status": "in_progress"},
        ],
    }
}
EDIT = {
    "update": {
        "sessionUpdate": "tool_call",
        "toolCallId": "edit-1",
        "title": "Edit package.json",
        "kind": "edit",
        "status": "completed",
        "content": [{"type": "diff", "path": "package.json", "oldText": "1.0", "newText": "1.1"}],
    }
}


def done(text: str) -> dict[str, Any]:
    return result({"status": "done", "summary": text})


def agent(*turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An entry of agents.yaml: all that it needs is put into its home, as it is held in there."""
    return {
        "command": [
            "/bin/sh",
            "-c",
            'exec python3 -S -E "$HOME/agent.py" "$HOME/scenario.json"',
        ],
        "modes": {"plan": "plan", "execute": "default", "review": "plan"},
        "files": {
            "agent.py": PROGRAM.read_text(),
            "scenario.json": json.dumps({"turns": [list(turn) for turn in turns]}),
        },
    }


def furnished(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    published = wish(COMMAND, "call-1", yes=[done("It is built.")])
    again = wish(COMMAND, "call-2", yes=[done("It is built after all.")])
    agents = {
        "builder": agent([PLAN], [LIST, EDIT, published]),
        "phoenix": agent([PLAN], [LIST, wish(COMMAND, "call-1")], [again]),
        "liar": agent([PLAN], [{"say": "All done, trust me."}]),
        "talker": agent([{"say": "Good to see you."}], [{"say": "Still here."}]),
        "gone": {"command": ["no-such-program"]},
    }
    (home / "agents.yaml").write_text(yaml.safe_dump({"agents": agents}))
    return home


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    home = furnished(tmp_path_factory.mktemp("home"))
    settings = {"SHIFTBOSS_LANGUAGE": "en", "SHIFTBOSS_FALLBACK": "offline"}
    async with world(home, "anthropic", **settings) as made:
        yield made


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
    home = place.shiftboss.home / "agents" / "phoenix"
    sent = next(home.glob("*/received.jsonl")).read_text()
    assert "session/resume" in sent


async def test_one_that_only_says_it_is_done_has_done_nothing(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "@liar /run build it")

    await told(chat, "handed in no result")


async def test_who_stands_in_is_on_the_card(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, '@gone /run wait 1 second and then write "x" to a.txt')

    await told(chat, "gone cannot work now, so offline does this")


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
