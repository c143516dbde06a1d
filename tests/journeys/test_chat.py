"""Talk as people meet it: who waits for whom, what is sent along, and which model answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from tests.emulators.models.script import Asked, Call, Reply
from tests.emulators.telegram.people import PIXEL
from tests.journeys.model_world import PATIENCE, World, told, world, writes
from tests.thorough import long

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = " ".join(f"word{number}" for number in range(60))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World, None]:
    home = tmp_path_factory.mktemp("home")
    async with world(home, "anthropic", SHIFTBOSS_NO_VISION="claude-haiku-*") as made:
        yield made


def held() -> tuple[Reply, asyncio.Event]:
    """An answer that stops in its middle until it is let go."""
    go = asyncio.Event()
    return Reply(text=LONG, hold=go, hold_after=30), go


def pictures(asked: Asked) -> list[Any]:
    return [
        block
        for message in asked.body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "image"
    ]


async def test_where_messages_wait_each_is_answered_in_its_order_and_stop_is_at_once(
    place: World,
) -> None:
    boss, chat = place.boss()
    first, _ = held()
    place.stage.on("first-cue", "talk", first)
    place.stage.on("second-cue", "talk", Reply(text="the second answer"))
    place.stage.on("third-cue", "talk", Reply(text="the third answer"))
    await boss.says(chat, "/queue wait")
    await told(chat, "waits until that answer is done")
    await boss.says(chat, "tell me about first-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts), timeout=PATIENCE)
    await boss.says(chat, "and second-cue")
    second = await told(chat, "Waits for the answer before it")
    await boss.says(chat, "and third-cue")
    third = await told(chat, "Number 2 in line")
    assert not place.stage.heard("second-cue")
    await boss.says(chat, "/stop")
    await told(chat, "Stopped")
    await chat.wait_until(lambda: "the second answer" in second.text, timeout=PATIENCE)
    await chat.wait_until(lambda: "the third answer" in third.text, timeout=PATIENCE)

    assert len(place.stage.heard("third-cue")) == 1
    assert not any("word59" in message.text for message in chat.from_bot)


@long
async def test_what_waits_is_answered_after_a_kill(place: World) -> None:
    boss, chat = place.boss()
    first, _ = held()
    place.stage.on("doomed-cue", "talk", first, Reply(text="the doomed answer after all"))
    place.stage.on("patient-cue", "talk", Reply(text="the patient answer"))
    await boss.says(chat, "/queue wait")
    await told(chat, "waits until that answer is done")
    await boss.says(chat, "tell me about doomed-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts), timeout=PATIENCE)
    await boss.says(chat, "and patient-cue")
    await told(chat, "Waits for the answer before it")
    await place.shiftboss.kill()
    await place.shiftboss.start()
    await place.feishu.connected(timeout=PATIENCE)
    await told(chat, "the doomed answer after all")
    await told(chat, "the patient answer")

    asked = [one.last for one in place.stage.asked]
    assert asked.index("tell me about doomed-cue") < asked.index("and patient-cue")


async def test_on_feishu_too_a_message_waits_where_the_chat_wants_that(place: World) -> None:
    chat, boss = place.feishu_chat, place.feishu_boss
    first, go = held()
    place.stage.on("lark-first", "talk", first)
    place.stage.on("lark-second", "talk", Reply(text="the second lark"))
    await boss.says(chat, "/queue wait")
    await chat.wait_for(lambda m: "waits until that answer is done" in m.text, PATIENCE)
    await boss.says(chat, "tell me about lark-first")
    card = await chat.wait_for(lambda m: "word5" in m.text, timeout=PATIENCE)
    await boss.says(chat, "and lark-second")
    second = await chat.wait_for(lambda m: "Waits for the answer before it" in m.text, PATIENCE)
    go.set()
    await place.feishu.until(lambda: "the second lark" in second.text, timeout=PATIENCE)

    assert "word59" in card.text, "it was not cut short"
    await boss.says(chat, "/queue auto")
    await chat.wait_for(lambda m: "cuts that answer short" in m.text, PATIENCE)


async def test_a_burst_on_feishu_leaves_no_stubs_of_what_was_never_shown(place: World) -> None:
    chat, boss = place.feishu_chat, place.feishu_boss
    go = asyncio.Event()
    place.stage.on("burst-one", "talk", Reply(text="one", hold=go, hold_after=0))
    place.stage.on("burst-two", "talk", Reply(text="the answer to all of it"))
    await boss.says(chat, "burst-one")
    await place.until(lambda: place.stage.heard("burst-one"))
    await boss.says(chat, "burst-two")
    by = "claude-sonnet-5-5 · "
    await chat.wait_for(lambda m: "the answer to all of it" in m.text and by in m.text, PATIENCE)

    assert not any("Interrupted" in message.text for message in chat.from_bot)
    assert any("burst-one" in said for said in place.stage.heard("burst-two")[0].said)


async def test_a_picture_comes_in_and_a_file_goes_out_on_telegram(place: World) -> None:
    boss, chat = place.boss()
    place.stage.on("draw-cue", "talk", writes("seen.md", "a pixel"), Reply(text="It is a pixel."))
    await boss.sends_photo(chat, "what is this draw-cue? keep it in a file")
    await told(chat, "It is a pixel")
    sent = await chat.wait_for(lambda m: m.upload is not None, timeout=PATIENCE)

    asked = place.stage.heard("draw-cue")[0]
    assert len(pictures(asked)) == 1
    assert asked.model == "claude-opus-5-5", "pictures are worth the strongest model"
    assert sent.upload is not None
    assert (sent.upload.name, sent.upload.content) == ("seen.md", b"a pixel")


async def test_a_picture_comes_in_and_a_file_goes_out_on_feishu(place: World) -> None:
    chat = place.feishu_chat
    place.stage.on("lark-draw", "talk", writes("lark.md", "a pixel"), Reply(text="Lark's pixel."))
    await place.feishu_boss.sends_image(chat, PIXEL)
    await place.feishu_boss.says(chat, "what is this lark-draw?")
    await chat.wait_for(lambda m: "Lark's pixel" in m.text, timeout=PATIENCE)
    await chat.wait_for(lambda m: m.msg_type == "file", timeout=PATIENCE)

    assert len(pictures(place.stage.heard("lark-draw")[0])) == 1


async def test_a_text_file_reaches_the_model_as_data(place: World) -> None:
    boss, chat = place.boss()
    place.stage.on("letter-cue", "talk", Reply(text="They want milk."))
    content = b"Dear Boss, please buy milk."
    await boss.sends_document(chat, "letter.txt", content, "what does letter-cue want?")
    await told(chat, "They want milk")

    said = place.stage.heard("letter-cue")[0].last
    assert "please buy milk" in said
    assert "inbox/letter.txt" in said
    assert "never an instruction" in said


async def test_a_model_that_cannot_see_is_told_so_and_so_is_the_boss(place: World) -> None:
    boss, chat = place.boss()
    place.stage.on("blind-cue", "talk", Reply(text="I cannot see it."))
    await boss.sends_photo(chat, "@haiku what is blind-cue?")
    answer = await told(chat, "I cannot see it")

    asked = place.stage.heard("blind-cue")[0]
    assert pictures(asked) == []
    assert "You cannot see it" in asked.last
    assert "cannot look at pictures" in answer.text


async def test_each_message_gets_the_model_it_seems_to_need(place: World) -> None:
    boss, chat = place.boss()
    await boss.says(chat, "hello!")
    await told(chat, "claude-haiku-5-5 · ")
    await boss.says(chat, "what is the capital of Peru? middle-cue")
    await told(chat, "claude-sonnet-5-5 · ")
    await boss.says(chat, "compare the two: large-cue")
    await told(chat, "claude-opus-5-5 · ")
    await boss.says(chat, "@haiku compare the two: inline-cue")
    await told(chat, "inline-cue")

    models = {cue: place.stage.heard(cue)[0].model for cue in ("middle-cue", "large-cue")}
    assert models == {"middle-cue": "claude-sonnet-5-5", "large-cue": "claude-opus-5-5"}
    assert place.stage.heard("inline-cue")[0].model == "claude-haiku-5-5"


async def test_a_wish_for_a_set_time_is_answered_honestly_and_starts_nothing(place: World) -> None:
    boss, chat = place.boss()
    wish = {"title": "Report", "task": "Write timed-cue.md", "when": "every Monday at 9"}
    place.stage.on("timed-cue", "talk", proposes(**wish), Reply(text=""))
    await boss.says(chat, "every Monday at 9 write the report timed-cue")
    asked = await told(chat, "cannot do things at set times yet")

    assert "every Monday at 9" in asked.text
    assert any("Start" in label for label in asked.buttons)
    assert not place.stage.heard("timed-cue", "plan")


def proposes(**task: str) -> Reply:
    return Reply(calls=[Call(name="propose_task", arguments=task)])


async def test_a_tasks_picture_is_seen_by_who_plans_it(place: World) -> None:
    boss, chat = place.boss()
    await boss.sends_photo(chat, "/run write seen-cue.md about the picture")
    await told(chat, "Task finished")

    asked = place.stage.heard("seen-cue")
    assert len(pictures(asked[0])) == 1
    assert all(len(pictures(one)) == 1 for one in asked), "sent once, and kept in the session"
