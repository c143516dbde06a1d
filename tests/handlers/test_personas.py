"""/persona shows and chooses who works in a chat; /run names somebody for one task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.actions import ChoosePersona
from handlers.request import Reply
from storage.records.people import ChatId, Language
from storage.records.tasks import NodeStatus, TaskStep
from storage.records.workers import PersonaList
from tests.builders import make_roster
from tests.handlers.router_harness import RouterHarness, text_of

CHAT = ChatId("c1")


def chosen(desk: RouterHarness) -> str:
    return desk.world.people.chats[CHAT].settings.persona


async def test_all_are_shown_with_the_one_of_this_chat_marked() -> None:
    reply = await RouterHarness().send_message("/persona")

    shown = text_of(reply)
    assert "👉 Pragmatist pragmatist About pragmatist." in shown
    assert "👉 Reviewer" not in shown
    assert "poet.md" in shown
    assert "bad.md" in shown
    assert "line 3" in shown


async def test_they_are_shown_in_chinese_too() -> None:
    shown = text_of(await RouterHarness(language=Language.CHINESE).send_message("/角色"))

    assert "🎭 角色" in shown
    assert "关于0" in shown
    assert "未采用的文件" in shown


@pytest.mark.parametrize("name", ["reviewer", "REVIEWER", "角色1"])
async def test_one_is_chosen_for_the_chat_by_name_or_title(name: str) -> None:
    desk = RouterHarness()

    reply = await desk.send_message(f"/persona {name}")

    assert chosen(desk) == "reviewer"
    assert "This chat now uses Reviewer" in text_of(reply)


@pytest.mark.parametrize("word", ["show", "查看"])
async def test_to_show_nobody_says_how_to(word: str) -> None:
    told = text_of(await RouterHarness().send_message(f"/persona {word}"))

    assert "/persona [name|show name|auto]" in told


@pytest.mark.parametrize("word", ["auto", "自动", "default"])
async def test_auto_leaves_it_to_the_program_again(word: str) -> None:
    desk = RouterHarness()
    await desk.send_message("/persona poet")

    await desk.send_message(f"/persona {word}")

    assert chosen(desk) == ""


async def test_somebody_unknown_is_refused_with_the_names_there_are() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("/persona wizard of oz")

    assert chosen(desk) == ""
    assert "wizard of oz" in text_of(reply)
    assert "reviewer" in text_of(reply)


async def test_one_is_shown_in_full_and_chosen_by_button() -> None:
    desk = RouterHarness()
    shown = text_of(await desk.send_message("/persona show reviewer"))
    assert "You work as a reviewer." in shown
    assert "read and review; change nothing" in shown
    assert "short" in shown

    reply = await desk.press(desk.world.post.token("reply:1", ChoosePersona))

    assert chosen(desk) == "reviewer"
    assert reply.in_place


async def test_one_is_picked_from_the_list() -> None:
    desk = RouterHarness()
    await desk.send_message("/persona")

    await desk.press(desk.world.post.token("reply:1", ChoosePersona), value="#2")

    assert chosen(desk) == "reviewer"


async def test_a_program_is_told_the_same_as_data() -> None:
    reply = await RouterHarness().send_message("/persona")

    assert reply.data is not None
    assert reply.data["persona"] == "pragmatist"
    assert [each["name"] for each in reply.data["personas"]] == ["pragmatist", "reviewer", "poet"]
    assert reply.data["faults"] == [{"file": "bad.md", "why": "yaml", "detail": "line 3"}]


async def test_who_was_chosen_but_has_gone_gives_way_to_the_default() -> None:
    desk = RouterHarness()
    await desk.send_message("/persona poet")
    roster = make_roster()
    desk.world.personas.all_personas = PersonaList(personas=roster.personas[:2])

    reply = await desk.send_message("/persona")

    assert reply.data is not None
    assert reply.data["persona"] == "pragmatist"


async def run(desk: RouterHarness, text: str) -> Reply:
    return await desk.send_message(f"/run {text}")


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
    desk = RouterHarness()

    await run(desk, text)

    assert [new.persona for new in desk.world.tasks.created] == [who]
    assert desk.world.tasks.created[0].instruction == "write"


async def test_a_task_that_names_nobody_has_its_chats_choice_at_that_time() -> None:
    desk = RouterHarness()
    await desk.send_message("/persona reviewer")

    reply = await run(desk, "look at it")

    assert desk.world.tasks.created[0].persona == "reviewer"
    assert "🎭 Reviewer" in text_of(reply)


async def test_a_task_for_somebody_unknown_is_not_made() -> None:
    desk = RouterHarness()

    reply = await run(desk, "--persona wizard do it")

    assert desk.world.tasks.created == []
    assert "wizard" in text_of(reply)


async def test_who_does_it_stands_on_the_card_only_where_it_is_not_the_usual_one() -> None:
    desk = RouterHarness()
    assert "🎭" not in text_of(await run(desk, "--persona auto write"))
    task = next(iter(desk.world.tasks.tasks.values()))
    view = await desk.world.tasks.view(task.id)
    steps = tuple(
        TaskStep(path=who, title=f"by {who}", status=NodeStatus.PENDING, persona=who)
        for who in ("", "tester", "poet")
    )
    desk.world.tasks.views[task.id] = replace(view, steps=steps)

    shown = text_of(await desk.send_message("/run --persona auto write", message_id="m1"))

    assert "🎭 Tester" in shown
    assert "🎭 poet" in shown
    assert shown.count("🎭") == 2


@pytest.mark.parametrize("typed", ["/run --persona poet", "/run --persona=poet "])
async def test_a_persona_without_work_is_asked_what_it_should_do(typed: str) -> None:
    desk = RouterHarness()

    told = text_of(await desk.send_message(typed))

    assert "What should poet do?" in told
    assert "/run --persona poet write" in told
    assert desk.world.tasks.created == []


async def test_an_unknown_persona_without_work_is_said_to_be_unknown() -> None:
    assert "wizard" in text_of(await RouterHarness().send_message("/run --persona wizard"))
