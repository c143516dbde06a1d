"""/persona shows and chooses who works in a chat; /run names somebody for one task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.actions import PickPersona
from handlers.request import Reply
from storage.records.people import ChatId, Language
from storage.records.personas import Roster
from storage.records.tasks import NodeStatus, Step
from tests.handlers.desk import Desk, text_of
from tests.samples import a_roster

CHAT = ChatId("c1")


def chosen(desk: Desk) -> str:
    return desk.world.people.chats[CHAT].settings.persona


async def test_all_are_shown_with_the_one_of_this_chat_marked() -> None:
    reply = await Desk().say("/persona")

    shown = text_of(reply)
    assert "👉 Pragmatist pragmatist About pragmatist." in shown
    assert "👉 Reviewer" not in shown
    assert "poet.md" in shown
    assert "bad.md" in shown
    assert "line 3" in shown


async def test_they_are_shown_in_chinese_too() -> None:
    shown = text_of(await Desk(language=Language.CHINESE).say("/角色"))

    assert "由谁来做" in shown
    assert "关于0" in shown
    assert "未采用的文件" in shown


@pytest.mark.parametrize("name", ["reviewer", "REVIEWER", "角色1"])
async def test_one_is_chosen_for_the_chat_by_name_or_title(name: str) -> None:
    desk = Desk()

    reply = await desk.say(f"/persona {name}")

    assert chosen(desk) == "reviewer"
    assert "From now on here: Reviewer" in text_of(reply)


@pytest.mark.parametrize("word", ["show", "查看"])
async def test_to_show_nobody_says_how_to(word: str) -> None:
    told = text_of(await Desk().say(f"/persona {word}"))

    assert "/persona [name|show name|auto]" in told


@pytest.mark.parametrize("word", ["auto", "自动", "default"])
async def test_auto_leaves_it_to_the_program_again(word: str) -> None:
    desk = Desk()
    await desk.say("/persona poet")

    await desk.say(f"/persona {word}")

    assert chosen(desk) == ""


async def test_somebody_unknown_is_refused_with_the_names_there_are() -> None:
    desk = Desk()

    reply = await desk.say("/persona wizard of oz")

    assert chosen(desk) == ""
    assert "wizard of oz" in text_of(reply)
    assert "reviewer" in text_of(reply)


async def test_one_is_shown_in_full_and_chosen_by_button() -> None:
    desk = Desk()
    shown = text_of(await desk.say("/persona show reviewer"))
    assert "You work as a reviewer." in shown
    assert "look and judge, change nothing" in shown
    assert "short" in shown

    reply = await desk.press(desk.world.post.token("reply:1", PickPersona))

    assert chosen(desk) == "reviewer"
    assert reply.in_place


async def test_one_is_picked_from_the_list() -> None:
    desk = Desk()
    await desk.say("/persona")

    await desk.press(desk.world.post.token("reply:1", PickPersona), value="#2")

    assert chosen(desk) == "reviewer"


async def test_a_program_is_told_the_same_as_data() -> None:
    reply = await Desk().say("/persona")

    assert reply.data is not None
    assert reply.data["persona"] == "pragmatist"
    assert [each["name"] for each in reply.data["personas"]] == ["pragmatist", "reviewer", "poet"]
    assert reply.data["faults"] == [{"file": "bad.md", "why": "yaml", "detail": "line 3"}]


async def test_who_was_chosen_but_has_gone_gives_way_to_the_default() -> None:
    desk = Desk()
    await desk.say("/persona poet")
    roster = a_roster()
    desk.world.personas.everybody = Roster(personas=roster.personas[:2])

    reply = await desk.say("/persona")

    assert reply.data is not None
    assert reply.data["persona"] == "pragmatist"


async def run(desk: Desk, text: str) -> Reply:
    return await desk.say(f"/run {text}")


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("write", ""),
        ("--persona poet write", "poet"),
        ("--persona 角色1 write", "reviewer"),
        ("--persona auto write", "pragmatist"),
        ("—persona poet write", "poet"),
    ],
)
async def test_a_task_may_name_who_does_it(text: str, who: str) -> None:
    desk = Desk()

    await run(desk, text)

    assert [new.persona for new in desk.world.tasks.created] == [who]
    assert desk.world.tasks.created[0].instruction == "write"


async def test_a_task_that_names_nobody_has_its_chats_choice_at_that_time() -> None:
    desk = Desk()
    await desk.say("/persona reviewer")

    reply = await run(desk, "look at it")

    assert desk.world.tasks.created[0].persona == "reviewer"
    assert "🎭 Reviewer" in text_of(reply)


async def test_a_task_for_somebody_unknown_is_not_made() -> None:
    desk = Desk()

    reply = await run(desk, "--persona wizard do it")

    assert desk.world.tasks.created == []
    assert "wizard" in text_of(reply)


async def test_who_does_it_stands_on_the_card_only_where_it_is_not_the_usual_one() -> None:
    desk = Desk()
    assert "🎭" not in text_of(await run(desk, "--persona auto write"))
    task = next(iter(desk.world.tasks.tasks.values()))
    view = await desk.world.tasks.view(task.id)
    steps = tuple(
        Step(path=who, title=f"by {who}", status=NodeStatus.PENDING, persona=who)
        for who in ("", "tester", "poet")
    )
    desk.world.tasks.views[task.id] = replace(view, steps=steps)

    shown = text_of(await desk.say("/run --persona auto write", message_id="m1"))

    assert "🎭 Tester" in shown
    assert "🎭 poet" in shown
    assert shown.count("🎭") == 2


@pytest.mark.parametrize("typed", ["/run --persona poet", "/run --persona=poet "])
async def test_a_persona_without_work_is_asked_what_it_should_do(typed: str) -> None:
    desk = Desk()

    told = text_of(await desk.say(typed))

    assert "What should poet do?" in told
    assert "/run --persona poet write" in told
    assert desk.world.tasks.created == []


async def test_an_unknown_persona_without_work_is_said_to_be_unknown() -> None:
    assert "wizard" in text_of(await Desk().say("/run --persona wizard"))
