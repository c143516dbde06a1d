"""Talk: proposals, sessions, models, and answers cut short."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cards.actions import JustTalk, PickModel, StartTask
from cards.model import Card, Select
from handlers.ports import Answered, BackendFailure, Proposal, TalkState
from storage.records.people import ChatId, ChatSettings
from storage.records.tasks import Priority
from tests.handlers.desk import Desk, text_of
from tests.samples import NOW, OPUS

CHAT = ChatId("c1")
WORK = Answered(
    text="",
    proposal=Proposal(title="Plants", text="Water the plants", priority=Priority.NORMAL),
)


async def test_talk_that_amounts_to_work_is_proposed_and_not_started() -> None:
    desk = Desk()
    desk.world.talk.answers = [WORK]

    reply = await desk.say("please water the plants")

    assert "Plants" in text_of(reply)
    assert desk.world.tasks.created == []


async def test_consent_starts_the_task_and_settles_the_proposal() -> None:
    desk = Desk()
    desk.world.talk.answers = [WORK]
    await desk.say("@opus please water the plants", files=("in/a.png",), message_id="m5")

    reply = await desk.press(desk.world.post.token("reply:1", StartTask))

    new = desk.world.tasks.created[0]
    assert (new.title, new.instruction, new.priority) == (
        "Plants",
        "Water the plants",
        Priority.NORMAL,
    )
    assert (new.model, new.files, new.reply_to) == ("claude-opus", ("in/a.png",), "m5")
    assert reply.key == "task:new1xyz"
    assert "Started" in text_of(desk.world.post.cards["reply:1"])
    assert list(desk.world.post.tokens("reply:1")) == []


async def test_consent_may_choose_another_priority() -> None:
    desk = Desk()
    desk.world.talk.answers = [WORK]
    await desk.say("please water the plants")

    await desk.press(_select(desk.world.post.cards["reply:1"]).token, value="#0")

    assert desk.world.tasks.created[0].priority is Priority.URGENT


async def test_both_ways_of_consenting_make_one_task() -> None:
    desk = Desk()
    desk.world.talk.answers = [WORK]
    await desk.say("please water the plants")
    card = desk.world.post.cards["reply:1"]
    button = desk.world.post.token("reply:1", StartTask)

    await desk.press(button)
    again = await desk.press(_select(card).token, value="urgent")

    assert len(desk.world.tasks.created) == 1
    assert not again.good


async def test_two_presses_at_the_same_moment_make_one_task() -> None:
    desk = Desk()
    desk.world.talk.answers = [WORK]
    await desk.say("please water the plants")
    select = _select(desk.world.post.cards["reply:1"]).token
    await desk.press(desk.world.post.token("reply:1", StartTask))
    # As if the other press had been claimed before the card changed.
    post = desk.world.post
    post.rows[select] = replace(post.rows[select], retired=False)

    reply = await desk.press(select, value="urgent")

    assert len(desk.world.tasks.created) == 1
    assert reply.key == "task:new1xyz"


async def test_declining_answers_as_talk() -> None:
    desk = Desk()
    desk.world.talk.answers = [WORK, Answered(text="You could use a can.")]
    await desk.say("please water the plants")

    reply = await desk.press(desk.world.post.token("reply:1", JustTalk))

    question = desk.world.talk.questions[1]
    assert (question.text, question.settle) == ("please water the plants", True)
    assert text_of(reply) == "You could use a can."
    assert list(desk.world.post.tokens("reply:1")) == []
    assert desk.world.tasks.created == []


async def test_an_answer_without_words_is_never_an_empty_message() -> None:
    desk = Desk()
    desk.world.talk.answers = [Answered(text=" ")]

    assert "other words" in text_of(await desk.say("tell me a story"))


async def test_an_interrupted_answer_says_so() -> None:
    desk = Desk()
    desk.world.talk.answers = [Answered(text="Once upon", interrupted=True)]

    text = text_of(await desk.say("tell me a story"))

    assert "Once upon" in text
    assert "Interrupted" in text


async def test_files_of_an_answer_come_along_where_they_exist() -> None:
    desk = Desk()
    desk.world.talk.answers = [
        Answered(text="Here.", files=("a/x.txt", "a/gone.txt"), sizes={"a/x.txt": 5})
    ]

    text = text_of(await desk.say("give me the file"))

    assert "x.txt" in text
    assert "gone.txt" not in text


async def test_small_print_stands_under_the_answer() -> None:
    desk = Desk()
    desk.world.talk.answers = [Answered(text="Here.", notes=("offline backend",))]

    assert text_of(await desk.say("give me the file")).endswith("offline backend")


async def test_a_model_that_fails_is_explained() -> None:
    desk = Desk()
    desk.world.talk.answers = [BackendFailure("backend.unavailable")]

    assert "/backend" in text_of(await desk.say("tell me a story"))


async def test_stop_without_an_id_cuts_the_answer_in_this_chat() -> None:
    desk = Desk()
    desk.world.talk.busy = True

    reply = await desk.say("/stop")

    assert desk.world.talk.interrupted == [CHAT]
    assert "Stopped" in text_of(reply)


async def test_stop_with_nothing_to_stop_says_what_it_can_do() -> None:
    desk = Desk()

    assert "/stop ID" in text_of(await desk.say("/stop"))


async def test_new_begins_a_new_conversation() -> None:
    desk = Desk()
    desk.world.talk.states[CHAT] = _state()

    first, second = await desk.say("/new"), await desk.say("/新对话")

    assert "new conversation" in text_of(first)
    assert "no conversation" in text_of(second)


async def test_chat_shows_the_conversation_or_that_there_is_none() -> None:
    desk = Desk()

    none = text_of(await desk.say("/chat"))
    desk.world.talk.states[CHAT] = _state()
    some = text_of(await desk.say("/会话"))

    assert "no conversation yet" in none
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
    desk = Desk()

    await desk.say(text)

    assert desk.world.people.chats[CHAT].settings == settings


@pytest.mark.parametrize(
    ("word", "settings", "how"),
    [
        ("auto", ChatSettings(model="auto"), "for each message the model that fits"),
        ("自动", ChatSettings(model="auto"), "for each message the model that fits"),
        ("default", ChatSettings(), "as set for all chats"),
        ("默认", ChatSettings(), "as set for all chats"),
    ],
)
async def test_auto_chooses_for_each_message_and_default_is_the_programs_own(
    word: str, settings: ChatSettings, how: str
) -> None:
    desk = Desk()
    await desk.say("/model opus")

    told = text_of(await desk.say(f"/model {word}"))

    assert desk.world.people.chats[CHAT].settings == settings
    assert how in told


async def test_who_answered_and_how_long_it_took_is_in_the_small_print() -> None:
    desk = Desk()
    desk.world.talk.answers = [
        Answered(text="Yes.", model="claude-opus", seconds=3.24),
        Answered(text="No.", model="offline", seconds=0.1),
    ]

    assert "claude-opus · 3.2 s" in text_of(await desk.say("is it?"))
    assert "offline" not in text_of(await desk.say("is it?"))


async def test_a_wish_for_a_set_time_is_answered_honestly_with_an_offer_for_now() -> None:
    desk = Desk()
    wish = Proposal(
        title="Report", text="Write a report", priority=Priority.NORMAL, when="every Monday"
    )
    desk.world.talk.answers = [Answered(text="", proposal=wish)]

    asked = await desk.say("a report every Monday")

    assert "every Monday" in text_of(asked)
    assert "cannot do things at set times yet" in text_of(asked)
    assert desk.world.tasks.created == [], "nothing is done before a person says so"


async def test_an_unknown_model_changes_nothing_and_lists_those_known() -> None:
    desk = Desk()

    text = text_of(await desk.say("/model gargantua"))

    assert "openai:gpt-5" in text
    assert desk.world.people.chats[CHAT].settings == ChatSettings()


async def test_a_model_is_picked_on_the_card_and_the_card_shows_it() -> None:
    desk = Desk()
    await desk.say("/model")

    reply = await desk.press(desk.world.post.token("reply:1", PickModel), value="#2")

    assert desk.world.people.chats[CHAT].settings.model == "claude-opus"
    assert reply.in_place
    assert reply.key == "reply:1"
    assert "claude-opus" in text_of(reply)


def _select(card: Card) -> Select:
    return next(block for block in card.blocks if isinstance(block, Select))


def _state() -> TalkState:
    return TalkState(turns=3, model=OPUS, started_at=NOW, last_used_at=NOW - timedelta(minutes=5))


async def test_what_is_noted_with_a_proposal_is_said_on_it() -> None:
    desk = Desk()
    desk.world.talk.answers = [replace(WORK, notes=("Noted: Max",))]

    assert "Noted: Max" in text_of(await desk.say("call me Max and water the plants"))
