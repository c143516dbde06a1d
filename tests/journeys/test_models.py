"""The first journey with a model behind it, on both kinds of model API and all three channels."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from functools import partial

import pytest
import pytest_asyncio

from tests.emulators.feishu.tenant import FeishuMessage
from tests.emulators.models.script import ScriptedFailure, ScriptedReply
from tests.emulators.telegram.users import PIXEL
from tests.journeys.model_world import (
    ModelWorld,
    Scene,
    ask,
    label_with,
    model_world,
    paused_answer,
    pictures_in,
    script_task,
    wait_for_message,
)
from tests.journeys.web_page import open_web_page
from tests.thoroughness import sampled

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = " ".join(f"word{number}" for number in range(60))
claude = pytest.mark.parametrize("world", ["anthropic"], indirect=True)
"""For what does not depend on which API it is."""
claude_in_gate = pytest.mark.parametrize(
    "world", ["anthropic", "openai"][: sampled(2, 1)], indirect=True
)
"""For what each backend's own tests try with both APIs."""

TASK = "write {0}1.md and then write {0}2.md"


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["anthropic", "openai"])
async def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[ModelWorld, None]:
    async with model_world(tmp_path_factory.mktemp("home"), request.param) as made:
        yield made


def is_closed(card: FeishuMessage) -> bool:
    return card.entity is None or not card.entity.streaming


async def test_a_task_on_telegram_uses_one_session_and_reports_its_cost(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, f"/run {TASK.format('tele')}")
    ending = await wait_for_message(chat, "Task finished", "2/2")
    file = await chat.wait_for(lambda m: m.upload is not None)
    card = await chat.wait_for(lambda m: "tele" in m.text and "💰" in m.text)
    await boss.says(chat, "/cost")
    costs = await wait_for_message(chat, "Calls")

    assert file.upload is not None
    assert file.upload.name in {"tele1.md", "tele2.md"}
    assert "tele" in ending.text
    assert "💰" in card.text
    asked = world.script.requests_for("tele1.md")
    sizes = [len(one.body["messages"]) for one in asked]
    assert len(asked) == 5, "one plan, and for each of two steps a file and a report"
    assert sizes == sorted(sizes), "each call sees all that went before"
    assert sizes[-1] > sizes[0]
    if world.api == "anthropic":
        assert "$0.0" in card.text
        assert "$0.0" in costs.text
        assert all("cache_control" in str(one.body) for one in asked)


@claude
async def test_a_task_on_feishu_sends_its_file(world: ModelWorld) -> None:
    chat = world.feishu_chat
    await world.feishu_owner.says(chat, f"/run {TASK.format('lark')}")
    await chat.wait_for(lambda m: "Task finished" in m.header)
    file = await chat.wait_for(lambda m: m.msg_type == "file")

    sent = world.feishu.world.files[json.loads(file.content)["file_key"]]
    assert sent.name in {"lark1.md", "lark2.md"}


@claude
async def test_a_task_in_the_web_chat_shows_its_file_on_the_card(world: ModelWorld) -> None:
    async with open_web_page(world.program) as page:
        await page.send_message(f"/run {TASK.format('webby')}")
        ending = await page.next_frame("item", "Task finished")

    assert "webby" in ending["html"]


@claude
async def test_a_plain_question_gets_the_models_own_answer(world: ModelWorld) -> None:
    world.script.script("say-cue", "talk", ScriptedReply(text="The model says **hello**."))
    status, said = await world.program.run_to_end("say", "hello say-cue")

    assert status == 0
    assert "The model says" in said


@claude_in_gate
async def test_in_a_private_telegram_chat_drafts_end_in_one_message(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    reply, go = paused_answer(LONG)
    world.script.script("draft-cue", "talk", reply)
    await boss.says(chat, "tell me about draft-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts))
    assert not chat.from_bot
    go.set()
    answer = await wait_for_message(chat, "word59")

    assert chat.from_bot == [answer]
    assert answer.edits == 0


@claude
async def test_in_a_telegram_group_one_message_grows(world: ModelWorld) -> None:
    boss, _ = world.new_owner()
    group = world.telegram.group("Team")
    reply, go = paused_answer(LONG)
    world.script.script("group-cue", "talk", reply)
    await boss.says(group, "tell me about group-cue", mention=True)
    growing = await wait_for_message(group, "word5")
    assert "word59" not in growing.text
    go.set()
    await group.wait_until(lambda: "word59" in growing.text)

    assert group.from_bot == [growing]


@claude
async def test_on_feishu_the_answer_streams_into_a_card_that_is_closed_at_the_end(
    world: ModelWorld,
) -> None:
    chat = world.feishu_chat
    reply, go = paused_answer(LONG)
    world.script.script("card-cue", "talk", reply)
    await world.feishu_owner.says(chat, "tell me about card-cue")
    card = await chat.wait_for(lambda m: "word5" in m.text)
    assert card.entity is not None
    assert card.entity.streaming
    assert "word59" not in card.text
    go.set()
    await world.feishu.wait_until(lambda: "word59" in card.text)
    await world.feishu.wait_until(partial(is_closed, card))

    typed = [r for r in world.feishu.requests if r.method == "PUT" and "/content" in r.path]
    assert typed
    assert [m for m in chat.from_bot if "word1 " in m.text] == [card]


@claude
async def test_in_the_web_chat_the_answer_grows_in_its_place(world: ModelWorld) -> None:
    reply, go = paused_answer(LONG)
    world.script.script("live-cue", "talk", reply)
    async with open_web_page(world.program) as page:
        await page.send_message("tell me about live-cue")
        growing = await page.next_frame("", "word5")
        assert "word59" not in growing["html"]
        go.set()
        whole = await page.next_frame("item", "word59")

    assert whole["id"] == growing["id"]


@claude_in_gate
async def test_a_newer_message_stops_the_answer_and_is_answered(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    reply, _ = paused_answer(LONG)
    world.script.script("older-cue", "talk", reply)
    world.script.script("newer-cue", "talk", ScriptedReply(text="the newer answer"))
    left = len(world.models.disconnects)
    await boss.says(chat, "tell me about older-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts))
    await boss.says(chat, "no, rather newer-cue")
    await wait_for_message(chat, "the newer answer")
    cut = await wait_for_message(chat, "Interrupted")

    await world.wait_until(lambda: len(world.models.disconnects) == left + 1)
    assert chat.from_bot.index(cut) == 0
    assert any("older-cue" in said for said in world.script.requests_for("newer-cue")[0].user_texts)


@claude
async def test_on_feishu_no_unfinished_answer_card_stays_behind(
    world: ModelWorld,
) -> None:
    chat = world.feishu_chat
    reply, _ = paused_answer("cutoff " + LONG)
    broken = ScriptedReply(
        text="brokenoff " + LONG, failure=ScriptedFailure(status=401), fail_after=30
    )
    world.script.script("lark-older-cue", "talk", reply)
    world.script.script("lark-newer-cue", "talk", broken)
    await world.feishu_owner.says(chat, "tell me about lark-older-cue")
    older = await chat.wait_for(lambda m: "cutoff" in m.text)
    await world.feishu_owner.says(chat, "no, rather lark-newer-cue")
    newer = await chat.wait_for(lambda m: "couldn't answer" in m.text)
    await world.feishu.wait_until(lambda: "Interrupted" in older.text)

    for card in (older, newer):
        await world.feishu.wait_until(partial(is_closed, card))


@claude
async def test_stop_ends_the_answer_at_once_and_shows_no_more_of_it(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    reply, _ = paused_answer(LONG)
    world.script.script("stopped-cue", "talk", reply)
    left = len(world.models.disconnects)
    await boss.says(chat, "tell me about stopped-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts))
    await boss.says(chat, "/stop")
    await wait_for_message(chat, "Stopped")
    await world.wait_until(lambda: len(world.models.disconnects) == left + 1)

    assert not any("word59" in m.text for m in chat.from_bot)


@claude_in_gate
async def test_chat_that_asks_for_work_is_confirmed_and_then_done(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "Please write a poem to proposed.md")
    proposal = await chat.wait_for(lambda m: "Start" in " ".join(m.buttons))
    assert not world.script.requests_for("proposed.md", "plan")
    await boss.presses(proposal, label_with(proposal.buttons, "Start"))
    await wait_for_message(chat, "Task finished")
    file = await chat.wait_for(lambda m: m.upload is not None)

    assert file.upload is not None
    assert file.upload.name == "proposed.md"


async def test_a_picture_with_words_reaches_the_model_as_a_picture(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.sends_photo(chat, "what is on picture-cue?")
    await wait_for_message(chat, "picture-cue")

    asked = world.script.requests_for("picture-cue")[0]
    assert len(pictures_in(asked)) == 1
    if world.api == "anthropic":
        assert pictures_in(asked)[0]["source"]["media_type"] == "image/png", "as the bytes say"


@claude
async def test_a_picture_on_feishu_joins_the_words_that_follow_it(world: ModelWorld) -> None:
    chat = world.feishu_chat
    await world.feishu_owner.sends_image(chat, PIXEL)
    await world.feishu_owner.says(chat, "what is on lark-picture-cue?")
    await chat.wait_for(lambda m: "lark-picture-cue" in m.text)

    assert len(pictures_in(world.script.requests_for("lark-picture-cue")[0])) == 1


@claude
async def test_a_file_is_known_by_name_in_chat_and_copied_into_the_tasks_folder(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    await boss.sends_document(chat, "notes.txt", b"buy milk", "what about notes-cue?")
    await wait_for_message(chat, "notes-cue")
    await boss.sends_document(chat, "list.txt", b"buy bread", "/run write filed.md from list-cue")
    await wait_for_message(chat, "Task finished")

    assert "notes.txt" in world.script.requests_for("notes-cue")[0].last_text
    planned = world.script.requests_for("list-cue", "plan")[0]
    assert "list.txt" in planned.last_text
    folders = {path.parent for path in world.program.home.glob("work/*/filed.md")}
    assert [(folder / "list.txt").read_text() for folder in folders] == ["buy bread"]


@claude
async def test_a_mention_chooses_the_model_for_one_message_and_a_command_for_the_chat(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    other, elsewhere = world.new_owner()
    await boss.says(chat, "@haiku hello inline-cue")
    await wait_for_message(chat, "claude-haiku-5-5 speaking")
    await boss.says(chat, "@offline hello")
    await wait_for_message(chat, "Offline backend")
    await boss.says(chat, "hello usual-cue")
    await wait_for_message(chat, "claude-sonnet-5-5 speaking")
    await boss.says(chat, "/model opus")
    await wait_for_message(chat, "now uses: anthropic:claude-opus")
    await boss.says(chat, "hello chosen-cue")
    await wait_for_message(chat, "claude-opus-5-5 speaking")
    await boss.says(chat, f"/run {TASK.format('opus')}")
    await wait_for_message(chat, "Task finished")
    await other.says(elsewhere, "hello elsewhere-cue")
    await wait_for_message(elsewhere, "claude-sonnet-5-5 speaking")
    assert {one.model for one in world.script.requests_for("opus1.md")} == {"claude-opus-5-5"}

    await boss.says(chat, "/backend offline")
    await wait_for_message(chat, "now uses: offline")
    await world.restart()
    await boss.says(chat, "hello after-cue")
    await wait_for_message(chat, "needs a model, and none is connected")
    assert not world.script.requests_for("after-cue")
    assert not any("Sent again" in m.text for m in chat.from_bot), "a polite stop loses no track"


@claude
async def test_the_time_ends_the_prompts_of_talk_plan_and_step_and_is_in_no_front(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    world.script.script("clock-talk", "talk", ScriptedReply(text="Noon, I think."))
    await ask(boss, chat, "clock-talk: what time is it?", "Noon, I think.")
    await ask(boss, chat, script_task(world.script, "clock"), "It is done: clock.")

    scenes: Mapping[str, Scene] = {
        "clock-talk": "talk",
        "task-clock": "plan",
        "step-clock": "step",
    }
    for cue, scene in scenes.items():
        asked = world.script.requests_for(cue, scene)[0]
        front = json.dumps([asked.body["system"], asked.body["tools"]])
        last = json.dumps(asked.body["messages"][-1])
        assert "[now: " not in front, scene
        assert re.search(r"\[now: \d{4}-\d\d-\d\d \w{3} \d\d:\d\d, [^]]+\]\"", last), scene
