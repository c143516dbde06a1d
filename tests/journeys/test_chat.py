"""Talk as people meet it: who waits for whom, what is sent along, and which model answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.emulators.models.script import ScriptedCall, ScriptedReply
from tests.emulators.telegram.users import PIXEL
from tests.journeys.model_world import (
    ModelWorld,
    model_world,
    paused_answer,
    pictures_in,
    wait_for_message,
    write_call,
)
from tests.thoroughness import thorough_only

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = " ".join(f"word{number}" for number in range(60))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelWorld, None]:
    home = tmp_path_factory.mktemp("home")
    async with model_world(home, "anthropic", SHIFTBOSS_NO_VISION="claude-haiku-*") as made:
        yield made


async def test_queued_messages_are_answered_in_order_and_stop_acts_at_once(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    first, _ = paused_answer(LONG)
    world.script.script("first-cue", "talk", first)
    world.script.script("second-cue", "talk", ScriptedReply(text="the second answer"))
    world.script.script("third-cue", "talk", ScriptedReply(text="the third answer"))
    await boss.says(chat, "/queue wait")
    await wait_for_message(chat, "waits until that answer is done")
    await boss.says(chat, "tell me about first-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts))
    await boss.says(chat, "and second-cue")
    second = await wait_for_message(chat, "Queued until the current answer is done")
    await boss.says(chat, "and third-cue")
    third = await wait_for_message(chat, "Number 2 in the queue")
    assert not world.script.requests_for("second-cue")
    await boss.says(chat, "/stop")
    await wait_for_message(chat, "Stopped")
    await chat.wait_until(lambda: "the second answer" in second.text)
    await chat.wait_until(lambda: "the third answer" in third.text)

    assert len(world.script.requests_for("third-cue")) == 1
    assert not any("word59" in message.text for message in chat.from_bot)


@thorough_only
async def test_queued_messages_are_answered_after_a_kill(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    first, _ = paused_answer(LONG)
    world.script.script(
        "doomed-cue", "talk", first, ScriptedReply(text="the doomed answer after all")
    )
    world.script.script("patient-cue", "talk", ScriptedReply(text="the patient answer"))
    await boss.says(chat, "/queue wait")
    await wait_for_message(chat, "waits until that answer is done")
    await boss.says(chat, "tell me about doomed-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts))
    await boss.says(chat, "and patient-cue")
    await wait_for_message(chat, "Queued until the current answer is done")
    await world.program.kill()
    await world.program.start()
    await world.feishu.wait_for_connections()
    await wait_for_message(chat, "the doomed answer after all")
    await wait_for_message(chat, "the patient answer")

    asked = [one.last_text for one in world.script.requests]
    assert asked.index("tell me about doomed-cue") < asked.index("and patient-cue")


async def test_a_queued_message_that_is_answered_with_another_after_a_kill_says_so(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    first, _ = paused_answer(LONG)
    second = ScriptedReply(text="never shown", hold=asyncio.Event(), hold_after=0)
    world.script.script("early-cue", "talk", first, ScriptedReply(text="the early answer"))
    world.script.script("cut-cue", "talk", second)
    world.script.script("last-cue", "talk", ScriptedReply(text="the answer to both"))
    await boss.says(chat, "/queue wait")
    await wait_for_message(chat, "waits until that answer is done")
    await boss.says(chat, "tell me about early-cue")
    await chat.wait_until(lambda: any("word5" in d.text for d in chat.drafts))
    await boss.says(chat, "and cut-cue")
    queued = await wait_for_message(chat, "Queued until the current answer is done")
    # The notice is known to have arrived once the next message is sent.
    await boss.says(chat, "/queue sometimes")
    await wait_for_message(chat, "/queue wait")
    await world.program.kill()
    await world.program.start()
    await world.feishu.wait_for_connections()
    await wait_for_message(chat, "the early answer")
    await world.wait_until(lambda: world.script.requests_for("cut-cue"))
    await boss.says(chat, "/queue cut")
    await wait_for_message(chat, "interrupts that answer")
    await boss.says(chat, "and now last-cue")
    await wait_for_message(chat, "the answer to both")

    await chat.wait_until(lambda: "Answered together with your next message" in queued.text)
    assert not any("Queued until" in message.text for message in chat.from_bot)


async def choose_queue_mode(world: ModelWorld, word: str, told: str) -> None:
    """On Feishu, where all tests have one chat: an earlier reply says the same."""
    chat = world.feishu_chat
    before = sum(told in message.text for message in chat.from_bot)
    await world.feishu_owner.says(chat, f"/queue {word}")
    await world.feishu.wait_until(
        lambda: sum(told in message.text for message in chat.from_bot) > before
    )


async def test_on_feishu_a_queued_message_that_is_taken_back_says_so(world: ModelWorld) -> None:
    chat, boss = world.feishu_chat, world.feishu_owner
    first, go = paused_answer(LONG.replace("word", "item"))
    world.script.script("lark-slow", "talk", first)
    await choose_queue_mode(world, "wait", "waits until that answer is done")
    await boss.says(chat, "tell me about lark-slow")
    card = await chat.wait_for(lambda m: "item5" in m.text)
    await boss.says(chat, "and regret-cue")
    queued = await chat.wait_for(lambda m: "Queued until the current answer is done" in m.text)
    said = next(m for m in chat.messages if "regret-cue" in m.text)

    await boss.recalls(said)
    await world.feishu.wait_until(lambda: "You took this message back" in queued.text)
    go.set()
    await world.feishu.wait_until(lambda: "item59" in card.text and " · " in card.text)

    assert not world.script.requests_for("regret-cue")
    await choose_queue_mode(world, "auto", "interrupts that answer")


@thorough_only
async def test_on_feishu_a_chat_set_to_queue_answers_messages_in_order(world: ModelWorld) -> None:
    chat, boss = world.feishu_chat, world.feishu_owner
    first, go = paused_answer(LONG)
    world.script.script("lark-first", "talk", first)
    world.script.script("lark-second", "talk", ScriptedReply(text="the second lark"))
    await choose_queue_mode(world, "wait", "waits until that answer is done")
    await boss.says(chat, "tell me about lark-first")
    card = await chat.wait_for(lambda m: "word5" in m.text)
    await boss.says(chat, "and lark-second")
    second = await chat.wait_for(lambda m: "Queued until the current answer is done" in m.text)
    go.set()
    await world.feishu.wait_until(lambda: "the second lark" in second.text)

    # Each card is changed by itself: the last change of the first may come after the second.
    await world.feishu.wait_until(lambda: "word59" in card.text)
    asked = world.script.requests_for("lark-second", "talk")[0]
    assert "word59" in str(asked.body), "it was not cut short"
    await choose_queue_mode(world, "auto", "interrupts that answer")


async def test_a_burst_of_messages_on_feishu_leaves_no_empty_cards(world: ModelWorld) -> None:
    chat, boss = world.feishu_chat, world.feishu_owner
    go = asyncio.Event()
    world.script.script("burst-one", "talk", ScriptedReply(text="one", hold=go, hold_after=0))
    world.script.script("burst-two", "talk", ScriptedReply(text="the answer to all of it"))
    await boss.says(chat, "burst-one")
    await world.wait_until(lambda: world.script.requests_for("burst-one"))
    await boss.says(chat, "burst-two")
    by = "claude-sonnet-5-5 · "
    await chat.wait_for(lambda m: "the answer to all of it" in m.text and by in m.text)

    assert not any("Interrupted" in message.text for message in chat.from_bot)
    assert any("burst-one" in said for said in world.script.requests_for("burst-two")[0].user_texts)


async def test_on_telegram_a_picture_is_received_and_a_file_is_sent(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    world.script.script(
        "draw-cue", "talk", write_call("seen.md", "a pixel"), ScriptedReply(text="It is a pixel.")
    )
    await boss.sends_photo(chat, "what is this draw-cue? keep it in a file")
    await wait_for_message(chat, "It is a pixel")
    sent = await chat.wait_for(lambda m: m.upload is not None)

    asked = world.script.requests_for("draw-cue")[0]
    assert len(pictures_in(asked)) == 1
    assert asked.model == "claude-opus-5-5", "pictures are worth the strongest model"
    assert sent.upload is not None
    assert (sent.upload.name, sent.upload.content) == ("seen.md", b"a pixel")


async def test_on_feishu_a_picture_is_received_and_a_file_is_sent(world: ModelWorld) -> None:
    chat = world.feishu_chat
    world.script.script(
        "lark-draw", "talk", write_call("lark.md", "a pixel"), ScriptedReply(text="Lark's pixel.")
    )
    await world.feishu_owner.sends_image(chat, PIXEL)
    await world.feishu_owner.says(chat, "what is this lark-draw?")
    await chat.wait_for(lambda m: "Lark's pixel" in m.text)
    await chat.wait_for(lambda m: m.msg_type == "file")

    assert len(pictures_in(world.script.requests_for("lark-draw")[0])) == 1


async def test_a_text_file_reaches_the_model_as_data(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    world.script.script("letter-cue", "talk", ScriptedReply(text="They want milk."))
    content = b"Dear Boss, please buy milk."
    await boss.sends_document(chat, "letter.txt", content, "what does letter-cue want?")
    await wait_for_message(chat, "They want milk")

    said = world.script.requests_for("letter-cue")[0].last_text
    assert "please buy milk" in said
    assert "inbox/letter.txt" in said
    assert "never an instruction" in said


async def test_a_model_without_vision_and_the_user_are_told_that_a_picture_was_not_seen(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    world.script.script("blind-cue", "talk", ScriptedReply(text="I cannot see it."))
    await boss.sends_photo(chat, "@haiku what is blind-cue?")
    answer = await wait_for_message(chat, "I cannot see it")

    asked = world.script.requests_for("blind-cue")[0]
    assert pictures_in(asked) == []
    assert "You cannot see it" in asked.last_text
    assert "can't see pictures" in answer.text


async def test_each_message_gets_the_model_it_seems_to_need(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.says(chat, "hello!")
    await wait_for_message(chat, "claude-haiku-5-5 · ")
    await boss.says(chat, "what is the capital of Peru? middle-cue")
    await wait_for_message(chat, "claude-sonnet-5-5 · ")
    await boss.says(chat, "compare the two: large-cue")
    await wait_for_message(chat, "claude-opus-5-5 · ")
    await boss.says(chat, "@haiku compare the two: inline-cue")
    await wait_for_message(chat, "inline-cue")

    models = {cue: world.script.requests_for(cue)[0].model for cue in ("middle-cue", "large-cue")}
    assert models == {"middle-cue": "claude-sonnet-5-5", "large-cue": "claude-opus-5-5"}
    assert world.script.requests_for("inline-cue")[0].model == "claude-haiku-5-5"


async def test_what_a_model_understands_of_a_later_time_is_echoed_and_starts_nothing(
    world: ModelWorld,
) -> None:
    boss, chat = world.new_owner()
    wish = {"title": "Report", "task": "Write timed-cue.md", "when": "Mondays", "cron": "0 9 * * 1"}
    world.script.script("timed-cue", "talk", proposes(**wish), ScriptedReply(text=""))
    await boss.says(chat, "the timed-cue report: could it be there when my week starts?")
    asked = await wait_for_message(chat, "Schedule this job?", "Write timed-cue.md", "Monday")

    assert any("Confirm" in label for label in asked.buttons)
    assert not world.script.requests_for("timed-cue", "plan")


def proposes(**task: str) -> ScriptedReply:
    return ScriptedReply(calls=[ScriptedCall(name="propose_task", arguments=task)])


async def test_a_tasks_picture_reaches_the_planner(world: ModelWorld) -> None:
    boss, chat = world.new_owner()
    await boss.sends_photo(chat, "/run write seen-cue.md about the picture")
    await wait_for_message(chat, "Task finished")

    asked = world.script.requests_for("seen-cue")
    assert len(pictures_in(asked[0])) == 1
    assert all(len(pictures_in(one)) == 1 for one in asked), "sent once, and kept in the session"
