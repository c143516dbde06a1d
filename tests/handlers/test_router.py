"""Incoming events from the outside: access, language, rates and failures."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from handlers.command_table import COMMANDS
from handlers.ports import ChatAnswer
from storage.errors import StoreUnavailable
from storage.records.people import Language, PersonId
from storage.records.tasks import TaskStatus
from tests.builders import make_task
from tests.handlers.router_harness import RouterHarness, text_of


async def test_talk_is_streamed_and_then_answered() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [ChatAnswer(text="Hello there")]

    reply = await desk.send_message("good morning to you")

    assert desk.world.post.streamed == [("reply:1", "Hello"), ("reply:1", "Hello there")]
    assert text_of(reply) == "Hello there"
    assert desk.world.talk.questions[0].text == "good morning to you"


async def test_an_unknown_slash_word_is_talk() -> None:
    desk = RouterHarness()

    await desk.send_message("/dance with me")

    assert desk.world.talk.questions[0].text == "/dance with me"


async def test_directives_choose_for_one_message() -> None:
    desk = RouterHarness()

    await desk.send_message("@opus what is a queue")

    question = desk.world.talk.questions[0]
    assert (question.text, question.model, question.backend) == (
        "what is a queue",
        "claude-opus",
        "anthropic",
    )


async def test_a_picture_without_words_is_talk() -> None:
    desk = RouterHarness()

    await desk.send_message("", files=("inbox/1/cat.png",))

    assert desk.world.talk.questions[0].files == ("inbox/1/cat.png",)


async def test_a_mention_without_words_asks_what_is_wanted() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("@_user_1")

    assert "/help" in text_of(reply)
    assert desk.world.talk.questions == []


async def test_bots_are_not_answered() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("hello", is_bot=True)

    assert reply.card is None
    assert desk.world.talk.questions == []


@pytest.mark.parametrize(
    ("text", "hint", "expected"),
    [
        ("/list 进行中", "en", "任务列表"),
        ("/列表", "", "任务列表"),
        ("/list", "zh-hans", "任务列表"),
        ("/list", "en", "Tasks"),
        ("/list", "fr", "Tasks"),
        ("/get what is this", "zh", "No such task"),
    ],
)
async def test_the_language_is_guessed_from_the_text_then_the_channel(
    text: str, hint: str, expected: str
) -> None:
    desk = RouterHarness()
    _speaks(desk, None)

    reply = await desk.send_message(text, hint=hint)

    assert expected in text_of(reply)


async def test_a_persons_own_language_wins() -> None:
    desk = RouterHarness()
    _speaks(desk, Language.ENGLISH)

    reply = await desk.send_message("/列表", hint="zh")

    assert "Tasks" in text_of(reply)


async def test_a_language_once_written_is_remembered() -> None:
    desk = RouterHarness()
    _speaks(desk, None)

    await desk.send_message("你好，帮我看看")
    reply = await desk.send_message("/list", hint="en")

    assert desk.world.people.languages_set == [(PersonId("ann"), Language.CHINESE)]
    assert "任务列表" in text_of(reply)


async def test_a_language_fixed_in_the_settings_goes_before_all() -> None:
    desk = RouterHarness(language=Language.CHINESE)

    reply = await desk.send_message("/list of things please", hint="en")

    assert "任务列表" in text_of(reply)


async def test_the_unexpected_is_told_with_an_incident_and_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [ZeroDivisionError("secret 42")]

    with caplog.at_level(logging.ERROR):
        reply = await desk.send_message("divide by zero please")

    assert "inc-1" in text_of(reply)
    assert "secret" not in text_of(reply)
    assert "inc-1" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_a_store_that_fails_at_the_door_is_told_too() -> None:
    desk = RouterHarness()

    desk.world.people.failure = StoreUnavailable("disk full")
    reply = await desk.send_message("帮我看一下", hint="zh")

    assert "无法保存" in text_of(reply)


async def test_cancellation_passes_through() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [asyncio.CancelledError()]

    with pytest.raises(asyncio.CancelledError):
        await desk.send_message("hello to you")


def test_control_words_do_not_wait() -> None:
    desk = RouterHarness()
    texts = ["/stop", "/NEW", "/停止 k3", "/pause k3", "/approve", "/通过", "@bot /status", "/help"]

    waiting = [text for text in texts if not desk.router.is_immediate(desk.message(text))]

    assert waiting == []


@pytest.mark.parametrize("text", ["hello", "/run write", "ok", "/dance", "stop"])
def test_talk_and_new_work_keep_their_turn(text: str) -> None:
    desk = RouterHarness()

    assert not desk.router.is_immediate(desk.message(text))


@pytest.mark.parametrize(
    ("text", "cuts"), [("hi again", True), ("/run x", True), ("/status", False), ("通过", False)]
)
def test_a_new_message_cuts_the_running_answer(text: str, cuts: bool) -> None:
    desk = RouterHarness()

    desk.router.on_message_waiting(desk.row(desk.message(text)), "")

    assert bool(desk.world.talk.interrupted) is cuts


async def test_in_a_group_only_who_asked_cuts_the_answer() -> None:
    desk = RouterHarness()
    cut: list[int] = []

    def meanwhile() -> None:
        for who in ("x-olga", "x-ann"):
            row = desk.row(desk.message("and another thing", who=who, chat="g1"), "g1")
            desk.router.on_message_waiting(row, "")
            cut.append(len(desk.world.talk.interrupted))

    desk.world.talk.on_answer = meanwhile

    await desk.send_message("tell me a story", chat="g1")

    assert cut == [0, 1]


def test_every_command_has_a_place_in_exactly_one_table() -> None:
    names = [command.name for command in COMMANDS]

    assert len(names) == len(set(names))
    assert {
        "help", "start", "run", "list", "get", "logs", "stop", "pause", "resume", "retry",
        "status", "new", "chat", "model", "backend", "approve", "reject", "priority", "pair",
        "cost",
    } <= set(names)  # fmt: skip


def _speaks(desk: RouterHarness, language: Language | None) -> None:
    people = desk.world.people
    for key, person in people.identities.items():
        people.identities[key] = replace(person, language=language)


@pytest.mark.parametrize("text", ["   ", "\u200b\u200d", "\u202e\u2066", "\u3164", "\n\t\n"])
async def test_what_nobody_can_see_costs_no_model(text: str) -> None:
    desk = RouterHarness()

    assert (await desk.send_message(text)).card

    assert desk.world.talk.questions == []


@pytest.mark.parametrize("told", ["/stop everything", "yes", "@opus do it", "Clouds all day."])
async def test_it_is_no_command_no_decision_and_no_choice(told: str) -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [ChatAnswer(text="So it rains.")]

    reply = await desk.deliver(desk.row(replace(desk.message(""), told=told)))

    (question,) = desk.world.talk.questions
    assert text_of(reply) == "So it rains."
    assert question.text == told
    assert question.no_proposal, "nothing is proposed in its name"
    assert question.model == ""


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("/approve ap7x2k", True), ("／通过 ap7x2k", True), ("/status", True), ("/nosuch", False),
        ("/status@other_bot", False), ("approve ap7x2k", False), ("/approve@other_bot x", False),
    ],
)  # fmt: skip
def test_a_command_is_ours_if_we_know_it_and_no_other_bot_is_named(text: str, ours: bool) -> None:
    desk = RouterHarness()

    assert desk.router.is_command(desk.message(text)) is ours


async def test_the_model_is_told_which_files_it_did_not_get() -> None:
    desk = RouterHarness()
    row = desk.row(desk.message("what is in it?"))

    await desk.router.handle(row, (), (), ("plan.pdf",))

    (question,) = desk.world.talk.questions
    assert question.missing_files == ("plan.pdf",)


async def test_a_task_says_which_files_its_worker_did_not_get() -> None:
    desk = RouterHarness()
    row = desk.row(desk.message("/run sum up both"))

    await desk.router.handle(row, ("in/a.pdf",), (), ("plan.pdf",))

    (new,) = desk.world.tasks.created
    assert new.instruction.startswith("sum up both\n\n[")
    assert "“plan.pdf”" in new.instruction
    assert new.title == "sum up both"


async def test_a_message_knows_the_unfinished_task_that_it_made() -> None:
    desk = RouterHarness()
    row = desk.row(desk.message("/run count the chairs"))
    await desk.deliver(row)
    (task,) = desk.world.tasks.tasks.values()

    assert await desk.router.find_task(row) == task.id
    desk.world.tasks.tasks[task.id] = replace(task, status=TaskStatus.COMPLETED)
    assert await desk.router.find_task(row) == ""
    assert await desk.router.find_task(desk.row(desk.message("/run more"))) == ""


async def test_stop_without_an_answer_offers_the_tasks() -> None:
    desk = RouterHarness(make_task("abc234", status=TaskStatus.RUNNING))
    desk.world.talk.busy = False

    offered = text_of(await desk.send_message("/stop"))

    assert "press its button" in offered
    assert "abc234" in offered
    assert desk.world.tasks.moves == []
