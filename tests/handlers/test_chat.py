"""Talk: proposals, sessions, models, and answers cut short."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cards.actions import AnswerWithoutTask, ChooseModel, ChoosePersona, StartTask
from cards.model import Card, SelectBlock
from handlers.errors import BackendFailure
from handlers.ports import ChatAnswer, ConversationState, TaskProposal
from storage.records.people import ChatId, ChatSettings, Language
from storage.records.tasks import TaskPriority
from tests.builders import NOW, OPUS
from tests.handlers.router_harness import RouterHarness, text_of

CHAT = ChatId("c1")
WORK = ChatAnswer(
    text="",
    proposal=TaskProposal(title="Plants", text="Water the plants", priority=TaskPriority.NORMAL),
)


async def test_talk_that_amounts_to_work_is_proposed_and_not_started() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [WORK]

    reply = await desk.send_message("please water the plants")

    assert "Plants" in text_of(reply)
    assert desk.world.tasks.created == []


async def test_consent_starts_the_task_and_settles_the_proposal() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [WORK]
    await desk.send_message("@opus please water the plants", files=("in/a.png",), message_id="m5")

    reply = await desk.press(desk.world.post.token("reply:1", StartTask))

    new = desk.world.tasks.created[0]
    assert (new.title, new.instruction, new.priority) == (
        "Plants",
        "Water the plants",
        TaskPriority.NORMAL,
    )
    assert (new.model, new.files, new.reply_to) == ("claude-opus", ("in/a.png",), "m5")
    assert reply.key == "task:new1xyz"
    assert "Started" in text_of(desk.world.post.cards["reply:1"])
    assert list(desk.world.post.tokens("reply:1")) == []


async def test_consent_may_choose_another_priority() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [WORK]
    await desk.send_message("please water the plants")

    await desk.press(_select(desk.world.post.cards["reply:1"]).token, value="#0")

    assert desk.world.tasks.created[0].priority is TaskPriority.URGENT


async def test_both_ways_of_consenting_make_one_task() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [WORK]
    await desk.send_message("please water the plants")
    card = desk.world.post.cards["reply:1"]
    button = desk.world.post.token("reply:1", StartTask)

    await desk.press(button)
    again = await desk.press(_select(card).token, value="urgent")

    assert len(desk.world.tasks.created) == 1
    assert not again.good


async def test_two_presses_at_the_same_moment_make_one_task() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [WORK]
    await desk.send_message("please water the plants")
    select = _select(desk.world.post.cards["reply:1"]).token
    await desk.press(desk.world.post.token("reply:1", StartTask))
    # As if the other press had been claimed before the card changed.
    post = desk.world.post
    post.rows[select] = replace(post.rows[select], retired=False)

    reply = await desk.press(select, value="urgent")

    assert len(desk.world.tasks.created) == 1
    assert reply.key == "task:new1xyz"


async def test_declining_answers_as_talk() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [WORK, ChatAnswer(text="You could use a can.")]
    await desk.send_message("please water the plants")

    reply = await desk.press(desk.world.post.token("reply:1", AnswerWithoutTask))

    question = desk.world.talk.questions[1]
    assert (question.text, question.no_proposal) == ("please water the plants", True)
    assert text_of(reply) == "You could use a can."
    assert list(desk.world.post.tokens("reply:1")) == []
    assert desk.world.tasks.created == []


async def test_an_answer_without_words_is_never_an_empty_message() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [ChatAnswer(text=" ")]

    assert "rewording" in text_of(await desk.send_message("tell me a story"))


async def test_an_interrupted_answer_says_so() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [ChatAnswer(text="Once upon", interrupted=True)]

    text = text_of(await desk.send_message("tell me a story"))

    assert "Once upon" in text
    assert "Interrupted" in text


async def test_files_of_an_answer_come_along_where_they_exist() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [
        ChatAnswer(text="Here.", files=("a/x.txt", "a/gone.txt"), sizes={"a/x.txt": 5})
    ]

    text = text_of(await desk.send_message("give me the file"))

    assert "x.txt" in text
    assert "gone.txt" not in text


async def test_small_print_stands_under_the_answer() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [ChatAnswer(text="Here.", notes=("offline backend",))]

    assert text_of(await desk.send_message("give me the file")).endswith("offline backend")


async def test_a_model_that_fails_is_explained() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [BackendFailure("backend.unavailable")]

    assert "/backend" in text_of(await desk.send_message("tell me a story"))


async def test_stop_without_an_id_cuts_the_answer_in_this_chat() -> None:
    desk = RouterHarness()
    desk.world.talk.busy = True

    reply = await desk.send_message("/stop")

    assert desk.world.talk.interrupted == [CHAT]
    assert "Stopped" in text_of(reply)


async def test_stop_with_nothing_to_stop_says_what_it_can_do() -> None:
    desk = RouterHarness()

    assert "/stop ID" in text_of(await desk.send_message("/stop"))


async def test_new_begins_a_new_conversation() -> None:
    desk = RouterHarness()
    desk.world.talk.states[CHAT] = _state()

    first, second = await desk.send_message("/new"), await desk.send_message("/新对话")

    assert "new conversation" in text_of(first)
    assert "No conversation" in text_of(second)


async def test_chat_shows_the_conversation_or_that_there_is_none() -> None:
    desk = RouterHarness()

    none = text_of(await desk.send_message("/chat"))
    desk.world.talk.states[CHAT] = _state()
    some = text_of(await desk.send_message("/会话"))

    assert "No conversation yet" in none
    assert "claude-opus" in some
    assert "5 min ago" in some


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("/model opus", ChatSettings(model="claude-opus", backend="anthropic")),
        ("/model @opus", ChatSettings(model="claude-opus", backend="anthropic")),
        ("/model openai:gpt-5", ChatSettings(model="gpt-5", backend="openai")),
        ("/backend openai", ChatSettings(backend="openai")),
        ("/模型 OPUS", ChatSettings(model="claude-opus", backend="anthropic")),
    ],
)
async def test_a_chats_model_is_chosen(text: str, settings: ChatSettings) -> None:
    desk = RouterHarness()

    await desk.send_message(text)

    assert desk.world.people.chats[CHAT].settings == settings


@pytest.mark.parametrize(
    ("word", "settings", "how"),
    [
        ("auto", ChatSettings(model="auto"), "the model that fits each message"),
        ("自动", ChatSettings(model="auto"), "the model that fits each message"),
        ("default", ChatSettings(), "(default)"),
        ("默认", ChatSettings(), "(default)"),
    ],
)
async def test_auto_chooses_for_each_message_and_default_is_the_programs_own(
    word: str, settings: ChatSettings, how: str
) -> None:
    desk = RouterHarness()
    await desk.send_message("/model opus")

    told = text_of(await desk.send_message(f"/model {word}"))

    assert desk.world.people.chats[CHAT].settings == settings
    assert how in told


async def test_who_answered_and_how_long_it_took_is_in_the_small_print() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [
        ChatAnswer(text="Yes.", model="claude-opus", seconds=3.24),
        ChatAnswer(text="No.", model="offline", seconds=0.1),
    ]

    assert "claude-opus · 3.2 s" in text_of(await desk.send_message("is it?"))
    assert "offline" not in text_of(await desk.send_message("is it?"))


async def test_a_time_that_nobody_understands_is_said_with_an_offer_for_now() -> None:
    desk = RouterHarness()
    wish = TaskProposal(
        title="Report",
        text="Write a report",
        priority=TaskPriority.NORMAL,
        requested_time="when the moon is blue",
    )
    desk.world.talk.answers = [ChatAnswer(text="", proposal=wish)]

    asked = await desk.send_message("a report when the moon is blue")

    assert "when the moon is blue" in text_of(asked)
    assert "can't tell when that is" in text_of(asked)
    assert desk.world.tasks.created == [], "nothing is done before a person says so"


async def test_an_unknown_model_changes_nothing_and_lists_those_known() -> None:
    desk = RouterHarness()

    text = text_of(await desk.send_message("/model gargantua"))

    assert "openai:gpt-5" in text
    assert desk.world.people.chats[CHAT].settings == ChatSettings()


async def test_a_model_is_picked_on_the_card_and_the_card_shows_it() -> None:
    desk = RouterHarness()
    await desk.send_message("/model")

    reply = await desk.press(desk.world.post.token("reply:1", ChooseModel), value="#2")

    assert desk.world.people.chats[CHAT].settings.model == "claude-opus"
    assert reply.in_place
    assert reply.key == "reply:1"
    assert "claude-opus" in text_of(reply)


def _select(card: Card) -> SelectBlock:
    return next(block for block in card.blocks if isinstance(block, SelectBlock))


def _state() -> ConversationState:
    return ConversationState(
        turns=3, model=OPUS, started_at=NOW, last_used_at=NOW - timedelta(minutes=5)
    )


async def test_what_is_noted_with_a_proposal_is_said_on_it() -> None:
    desk = RouterHarness()
    desk.world.talk.answers = [replace(WORK, notes=("Noted: Max",))]

    assert "Noted: Max" in text_of(await desk.send_message("call me Max and water the plants"))


async def test_parts_are_listed_with_sizes_and_what_became_of_them() -> None:
    shown = text_of(await RouterHarness().send_message("/context"))

    assert "15.2k characters (about 3.8k tokens)" in shown
    assert "14.0k of 30.0k" in shown
    assert "start and end only" in shown
    assert "project brief" in shown
    assert "Missing: TOOLS.md." in shown


async def test_it_is_told_in_chinese_too() -> None:
    shown = text_of(await RouterHarness(language=Language.CHINESE).send_message("/上下文"))

    assert "保留首尾" in shown
    assert "项目概况" in shown


async def test_a_program_is_told_the_same_as_data() -> None:
    reply = await RouterHarness().send_message("/context")

    assert reply.data is not None
    assert reply.data["parts"][0] == {
        "name": "AGENTS.md",
        "state": "cut",
        "size": 30_000,
        "used": 14_000,
    }


async def test_nothing_of_ones_own_is_not_said_to_be_nothing_at_all() -> None:
    desk = RouterHarness()
    desk.world.contexts.context_parts = ()

    shown = text_of(await desk.send_message("/context"))

    assert "Nothing added yet" in shown
    assert "0 characters" not in shown


CHOICES = (
    "/model haiku",
    "/model default",
    "/backend offline",
    "/persona poet",
    "/queue wait",
    "/memory off",
)


def settings(desk: RouterHarness, chat: str) -> ChatSettings:
    return desk.world.people.chats[ChatId(chat)].settings


@pytest.mark.parametrize("said", CHOICES)
async def test_a_member_chooses_nothing_for_a_group_and_is_told_who_can(said: str) -> None:
    desk = RouterHarness()

    reply = await desk.send_message(said, chat="g1")

    assert not reply.good
    assert desk.world.olga.name in text_of(reply)
    assert settings(desk, "g1") == ChatSettings()


@pytest.mark.parametrize("said", CHOICES)
async def test_an_owner_chooses_for_a_group_and_a_member_for_their_own_chat(said: str) -> None:
    desk = RouterHarness()

    assert (await desk.send_message(said, who="x-olga", chat="g1")).good
    assert (await desk.send_message(said)).good
    assert settings(desk, "g1") == settings(desk, "c1")


@pytest.mark.parametrize("said", ["/model", "/backend", "/persona", "/persona show poet", "/queue"])
async def test_everybody_may_look(said: str) -> None:
    assert (await RouterHarness().send_message(said, chat="g1")).good


@pytest.mark.parametrize("action", [ChooseModel(), ChoosePersona(name="poet")])
async def test_a_members_pick_on_a_groups_card_changes_nothing(
    action: ChooseModel | ChoosePersona,
) -> None:
    desk = RouterHarness()
    token = desk.world.post.add_button_card(action, chat="g1")

    refused = await desk.press(token, chat="g1", value="haiku")
    before = settings(desk, "g1")
    value = "haiku" if isinstance(action, ChooseModel) else ""
    taken = await desk.press(token, who="x-olga", chat="g1", value=value)

    assert not refused.good
    assert desk.world.olga.name in refused.toast
    assert before == ChatSettings()
    assert taken.good
    assert settings(desk, "g1") != ChatSettings()
