"""The first journey with a model behind it, on both kinds of model API and all three channels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.feishu.world import Message as FeishuMessage
from tests.emulators.models.script import Asked, Failure, Reply
from tests.emulators.telegram.people import PIXEL
from tests.journeys.model_world import (
    PATIENCE,
    World,
    label_with,
    told,
    web_page,
    world,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = " ".join(f"word{number}" for number in range(60))
claude = pytest.mark.parametrize("place", ["anthropic"], indirect=True)
"""For what does not depend on which API it is."""

TASK = "write {0}1.md and then write {0}2.md"


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["anthropic", "openai"])
async def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[World, None]:
    async with world(tmp_path_factory.mktemp("home"), request.param) as made:
        yield made


def held(text: str = LONG) -> tuple[Reply, asyncio.Event]:
    """An answer that stops in its middle until it is let go."""
    go = asyncio.Event()
    return Reply(text=text, hold=go, hold_after=30), go


def is_closed(card: FeishuMessage) -> bool:
    return card.entity is None or not card.entity.streaming


def pictures(asked: Asked) -> list[Any]:
    return [
        block
        for message in asked.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] in {"image", "image_url"}
    ]


async def test_a_task_on_telegram_is_planned_and_done_in_one_session_and_its_cost_is_told(
    place: World,
) -> None:
    boss, chat = place.boss()
    await boss.says(chat, f"/run {TASK.format('tele')}")
    ending = await told(chat, "Task finished", "2/2")
    file = await chat.wait_for(lambda m: m.upload is not None, timeout=PATIENCE)
    card = await chat.wait_for(lambda m: "tele" in m.text and "💰" in m.text, timeout=PATIENCE)
    await boss.says(chat, "/cost")
    costs = await told(chat, "Calls")

    assert file.upload is not None
    assert file.upload.name in {"tele1.md", "tele2.md"}
    assert "tele" in ending.text
    assert "💰" in card.text
    asked = place.stage.heard("tele1.md")
    sizes = [len(one.body["messages"]) for one in asked]
    assert len(asked) == 5, "one plan, and for each of two steps a file and a report"
    assert sizes == sorted(sizes), "each call sees all that went before"
    assert sizes[-1] > sizes[0]
    if place.api == "anthropic":
        assert "$0.0" in card.text
        assert "$0.0" in costs.text
        assert all("cache_control" in str(one.body) for one in asked)


@claude
async def test_a_task_on_feishu_brings_its_file(place: World) -> None:
    chat = place.feishu_chat
    await place.feishu_boss.says(chat, f"/run {TASK.format('lark')}")
    await chat.wait_for(lambda m: "Task finished" in m.header, timeout=PATIENCE)
    file = await chat.wait_for(lambda m: m.msg_type == "file", timeout=PATIENCE)

    sent = place.feishu.world.files[json.loads(file.content)["file_key"]]
    assert sent.name in {"lark1.md", "lark2.md"}


@claude
async def test_a_task_in_the_web_chat_shows_its_file_on_the_card(place: World) -> None:
    async with web_page(place.shiftboss) as page:
        await page.says(f"/run {TASK.format('webby')}")
        ending = await page.frame("item", "Task finished")

    assert "webby" in ending["html"]


@claude
async def test_an_answer_to_say_is_the_models_own(place: World) -> None:
    place.stage.on("say-cue", "talk", Reply(text="The model says **hello**."))
    status, said = await place.shiftboss.run_to_end("say", "hello say-cue")

    assert status == 0
    assert "The model says" in said


async def test_in_a_private_telegram_chat_drafts_are_followed_by_one_message(place: World) -> None:
    boss, chat = place.boss()
    reply, go = held()
    place.stage.on("draft-cue", "talk", reply)
    await boss.says(chat, "tell me about draft-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts), timeout=PATIENCE)
    assert not chat.from_bot
    go.set()
    answer = await told(chat, "word59")

    assert chat.from_bot == [answer]
    assert answer.edits == 0


@claude
async def test_in_a_telegram_group_one_message_grows(place: World) -> None:
    boss, _ = place.boss()
    group = place.telegram.group("Team")
    reply, go = held()
    place.stage.on("group-cue", "talk", reply)
    await boss.says(group, "tell me about group-cue", mention=True)
    growing = await told(group, "word5")
    assert "word59" not in growing.text
    go.set()
    await group.wait_until(lambda: "word59" in growing.text, timeout=PATIENCE)

    assert group.from_bot == [growing]


@claude
async def test_on_feishu_the_answer_is_typed_into_a_card_that_is_closed_at_the_end(
    place: World,
) -> None:
    chat = place.feishu_chat
    reply, go = held()
    place.stage.on("card-cue", "talk", reply)
    await place.feishu_boss.says(chat, "tell me about card-cue")
    card = await chat.wait_for(lambda m: "word5" in m.text, timeout=PATIENCE)
    assert card.entity is not None
    assert card.entity.streaming
    assert "word59" not in card.text
    go.set()
    await place.feishu.until(lambda: "word59" in card.text, timeout=PATIENCE)
    await place.feishu.until(partial(is_closed, card), timeout=PATIENCE)

    typed = [r for r in place.feishu.requests if r.method == "PUT" and "/content" in r.path]
    assert typed
    assert [m for m in chat.from_bot if "word1 " in m.text] == [card]


@claude
async def test_in_the_web_chat_the_answer_grows_in_its_place(place: World) -> None:
    reply, go = held()
    place.stage.on("live-cue", "talk", reply)
    async with web_page(place.shiftboss) as page:
        await page.says("tell me about live-cue")
        growing = await page.frame("", "word5")
        assert "word59" not in growing["html"]
        go.set()
        whole = await page.frame("item", "word59")

    assert whole["id"] == growing["id"]


async def test_a_newer_message_cuts_the_answer_short_and_is_answered(place: World) -> None:
    boss, chat = place.boss()
    reply, _ = held()
    place.stage.on("older-cue", "talk", reply)
    place.stage.on("newer-cue", "talk", Reply(text="the newer answer"))
    left = len(place.models.disconnects)
    await boss.says(chat, "tell me about older-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts), timeout=PATIENCE)
    await boss.says(chat, "no, rather newer-cue")
    await told(chat, "the newer answer")
    cut = await told(chat, "Interrupted")

    await place.until(lambda: len(place.models.disconnects) == left + 1)
    assert chat.from_bot.index(cut) == 0
    assert any("older-cue" in said for said in place.stage.heard("newer-cue")[0].said)


@claude
async def test_on_feishu_no_card_stays_behind_that_says_it_is_being_written(place: World) -> None:
    chat = place.feishu_chat
    reply, _ = held("cutoff " + LONG)
    broken = Reply(text="brokenoff " + LONG, failure=Failure(status=401), fail_after=30)
    place.stage.on("lark-older-cue", "talk", reply)
    place.stage.on("lark-newer-cue", "talk", broken)
    await place.feishu_boss.says(chat, "tell me about lark-older-cue")
    older = await chat.wait_for(lambda m: "cutoff" in m.text, timeout=PATIENCE)
    await place.feishu_boss.says(chat, "no, rather lark-newer-cue")
    newer = await chat.wait_for(lambda m: "could not answer" in m.text, timeout=PATIENCE)
    await place.feishu.until(lambda: "Interrupted" in older.text, timeout=PATIENCE)

    for card in (older, newer):
        await place.feishu.until(partial(is_closed, card), timeout=PATIENCE)


@claude
async def test_stop_ends_the_answer_at_once_and_shows_no_more_of_it(place: World) -> None:
    boss, chat = place.boss()
    reply, _ = held()
    place.stage.on("stopped-cue", "talk", reply)
    left = len(place.models.disconnects)
    await boss.says(chat, "tell me about stopped-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts), timeout=PATIENCE)
    await boss.says(chat, "/stop")
    await told(chat, "Stopped")
    await place.until(lambda: len(place.models.disconnects) == left + 1)

    assert not any("word59" in m.text for m in chat.from_bot)


async def test_talk_that_amounts_to_work_is_asked_about_and_then_done(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "Please write a poem to proposed.md")
    proposal = await chat.wait_for(lambda m: "Start" in " ".join(m.buttons), timeout=PATIENCE)
    assert not place.stage.heard("proposed.md", "plan")
    await boss.presses(proposal, label_with(proposal.buttons, "Start"))
    await told(chat, "Task finished")
    file = await chat.wait_for(lambda m: m.upload is not None, timeout=PATIENCE)

    assert file.upload is not None
    assert file.upload.name == "proposed.md"


async def test_a_picture_with_words_reaches_the_model_as_a_picture(place: World) -> None:
    boss, chat = place.boss()
    await boss.sends_photo(chat, "what is on picture-cue?")
    await told(chat, "picture-cue")

    asked = place.stage.heard("picture-cue")[0]
    assert len(pictures(asked)) == 1
    if place.api == "anthropic":
        assert pictures(asked)[0]["source"]["media_type"] == "image/png", "as the bytes say"


@claude
async def test_a_picture_on_feishu_joins_the_words_that_follow_it(place: World) -> None:
    chat = place.feishu_chat
    await place.feishu_boss.sends_image(chat, PIXEL)
    await place.feishu_boss.says(chat, "what is on lark-picture-cue?")
    await chat.wait_for(lambda m: "lark-picture-cue" in m.text, timeout=PATIENCE)

    assert len(pictures(place.stage.heard("lark-picture-cue")[0])) == 1


@claude
async def test_a_file_is_known_by_name_in_talk_and_lies_in_the_tasks_folder(place: World) -> None:
    boss, chat = place.boss()
    await boss.sends_document(chat, "notes.txt", b"buy milk", "what about notes-cue?")
    await told(chat, "notes-cue")
    await boss.sends_document(chat, "list.txt", b"buy bread", "/run write filed.md from list-cue")
    await told(chat, "Task finished")

    assert "notes.txt" in place.stage.heard("notes-cue")[0].last
    planned = place.stage.heard("list-cue", "plan")[0]
    assert "list.txt" in planned.last
    folders = {path.parent for path in place.shiftboss.home.glob("work/*/filed.md")}
    assert [(folder / "list.txt").read_text() for folder in folders] == ["buy bread"]


@claude
async def test_names_choose_for_one_message_and_commands_for_the_chat(place: World) -> None:
    boss, chat = place.boss()
    other, elsewhere = place.boss()
    await boss.says(chat, "@haiku hello inline-cue")
    await told(chat, "claude-haiku-5-5 speaking")
    await boss.says(chat, "@offline hello")
    await told(chat, "Offline backend")
    await boss.says(chat, "hello usual-cue")
    await told(chat, "claude-sonnet-5-5 speaking")
    await boss.says(chat, "/model opus")
    await told(chat, "this chat uses: anthropic:claude-opus")
    await boss.says(chat, "hello chosen-cue")
    await told(chat, "claude-opus-5-5 speaking")
    await boss.says(chat, f"/run {TASK.format('opus')}")
    await told(chat, "Task finished")
    await other.says(elsewhere, "hello elsewhere-cue")
    await told(elsewhere, "claude-sonnet-5-5 speaking")
    assert {one.model for one in place.stage.heard("opus1.md")} == {"claude-opus-5-5"}

    await boss.says(chat, "/backend offline")
    await told(chat, "this chat uses: offline")
    await place.restarted()
    await boss.says(chat, "hello after-cue")
    await chat.wait_until(
        lambda: sum("Offline backend" in m.text for m in chat.from_bot) == 2, timeout=PATIENCE
    )
    assert not place.stage.heard("after-cue")
    assert not any("Sent again" in m.text for m in chat.from_bot), "a polite stop loses no track"
