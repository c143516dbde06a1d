"""Strangers, pairing and welcomes."""

from __future__ import annotations

from collections import Counter

import pytest

from cards.actions import Decide
from handlers.people import ANNOUNCED
from handlers.request import Reply
from storage.records.approvals import ApprovalState
from storage.records.messages import Urgency
from storage.records.people import ChatId, Language
from tests.fakes import FakeModels
from tests.handlers.desk import Desk, text_of
from tests.samples import GPT, OFFLINE, a_task


async def knock(
    desk: Desk, text: str = "hello there", *, chat: str = "s1", hint: str = ""
) -> Reply:
    return await desk.say(text, who="x-eve", chat=chat, hint=hint)


@pytest.mark.parametrize("text", ["/run write a poem", "/help", "ok", "/pair CODE1", "hello", "/"])
async def test_a_stranger_gets_a_code_and_nothing_else(text: str) -> None:
    desk = Desk(a_task())

    reply = await knock(desk, text)

    assert "CODE1" in text_of(reply)
    assert list(desk.world.post.tokens("reply:1")) == []
    assert desk.world.tasks.created == []
    assert desk.world.talk.questions == []
    assert desk.world.approvals.decisions == []


async def test_a_stranger_is_answered_every_ten_minutes_at_most() -> None:
    desk = Desk()

    first, second = await knock(desk), await knock(desk)
    desk.wait(minutes=10)
    third = await knock(desk)

    assert first.card
    assert second.card is None
    assert "CODE1" in text_of(third)
    assert desk.world.pairings.asked == 2


async def test_a_stranger_in_haste_still_gets_nothing_else() -> None:
    desk = Desk()

    replies = [await knock(desk) for _ in range(25)]

    assert [bool(reply.card) for reply in replies] == [True, *[False] * 24]


async def test_each_stranger_gets_an_own_code() -> None:
    desk = Desk()

    await knock(desk)
    other = await desk.say("hello there", who="x-mallory", chat="s1")

    assert "CODE2" in text_of(other)


async def test_every_owner_is_asked_in_private_once() -> None:
    desk = Desk()

    await knock(desk)
    desk.wait(minutes=11)
    await knock(desk)

    asked = [each for each in desk.world.post.sent if each[1] == "approval:pair1:c0"]
    assert {urgency for *_, urgency in asked} == {Urgency.APPROVAL}
    assert "approval:pair1:c1" not in desk.world.post.cards
    assert "CODE1" in text_of(desk.world.post.cards["approval:pair1:c0"])


async def test_an_owners_button_lets_the_stranger_in_and_tells_them_in_their_language() -> None:
    desk = Desk()
    await knock(desk, "你好")

    reply = await desk.press(
        desk.world.post.token("approval:pair1:c0", Decide), who="x-olga", chat="c0"
    )

    assert reply.good
    assert desk.world.approvals.all["pair1"].state is ApprovalState.APPROVED
    assert "已加入" in text_of(desk.world.post.cards["paired:pair1"])
    assert desk.world.post.chats["paired:pair1"] == "s1"


async def test_once_in_what_they_write_tells_their_language() -> None:
    desk = Desk()
    await knock(desk, "/start", hint="zh-hans")

    await desk.say("/approve pair1", who="x-olga", chat="c0")

    assert desk.world.people.chats[ChatId("s1")].settings.language is None


@pytest.mark.parametrize(("typed", "spoken"), [("zh", "中文"), ("中文", "中文"), ("EN", "English")])
async def test_a_person_chooses_their_language(typed: str, spoken: str) -> None:
    desk = Desk()

    reply = await desk.say(f"/language {typed}")

    assert spoken in text_of(reply)
    assert len(desk.world.people.spoken) == 1


async def test_a_language_nobody_speaks_here_changes_nothing() -> None:
    desk = Desk()

    assert "zh|en" in text_of(await desk.say("/语言 klingon"))
    assert desk.world.people.spoken == []


async def test_a_refused_stranger_is_told() -> None:
    desk = Desk()
    await knock(desk)

    await desk.say("/reject pair1", who="x-olga", chat="c0")

    assert "did not let you in" in text_of(desk.world.post.cards["paired:pair1"])


async def test_an_owner_lets_in_by_code() -> None:
    desk = Desk()
    await knock(desk)

    reply = await desk.say("/pair code1", who="x-olga", chat="c0")

    assert "x-eve" in text_of(reply)
    assert desk.world.approvals.all["pair1"].state is ApprovalState.APPROVED
    assert "Approved" in text_of(desk.world.post.cards["approval:pair1:c0"])


async def test_a_member_may_not_let_anybody_in() -> None:
    desk = Desk()
    await knock(desk)

    text = text_of(await desk.say("/pair CODE1"))

    assert "may not" in text
    assert desk.world.approvals.decisions == []


async def test_a_wrong_code_says_where_to_get_a_right_one() -> None:
    desk = Desk()

    text = text_of(await desk.say("/pair NOPE", who="x-olga", chat="c0"))

    assert "No such pairing code: NOPE" in text


async def test_pair_without_a_code_lists_who_waits() -> None:
    desk = Desk()
    none = text_of(await desk.say("/pair", who="x-olga", chat="c0"))
    await knock(desk)

    some = text_of(await desk.say("/配对", who="x-olga", chat="c0"))

    assert "Nobody waits" in none
    assert "CODE1" in some


async def test_in_a_group_a_stranger_gets_one_line_and_no_code() -> None:
    desk = Desk()

    reply, again = await knock(desk, chat="g1"), await knock(desk, chat="g1")

    assert "private" in text_of(reply)
    assert "CODE" not in text_of(reply)
    assert again.card is None
    assert desk.world.pairings.asked == 0


async def test_in_a_group_paired_people_are_served() -> None:
    desk = Desk()

    await desk.say("/run write", chat="g1")

    assert desk.world.tasks.created[0].chat_id == "g1"


async def test_a_stranger_who_opens_the_chat_gets_the_code_and_in_a_group_nothing() -> None:
    desk = Desk()

    private = await desk.enter(who="x-eve", chat="s1")
    group = await desk.enter(who="x-mallory", chat="g1")

    assert "CODE1" in text_of(private)
    assert group.card is None


async def test_a_strangers_press_is_declined_in_a_toast() -> None:
    desk = Desk()

    reply = await desk.press("whatever", who="x-eve", chat="g1")

    assert not reply.good
    assert "private" in reply.toast


@pytest.mark.parametrize("offline", [True, False])
async def test_who_opens_the_chat_is_welcomed_once_for_ever(offline: bool) -> None:
    desk = Desk(models=FakeModels(OFFLINE if offline else GPT))

    first, again = await desk.enter(), await desk.enter()

    assert "/run" in text_of(first)
    assert ("OPENAI_BASE_URL" in text_of(first)) is offline
    assert first.key == again.key == "welcome:c1"


@pytest.mark.parametrize("text", ["/start", "/start deep-link", "/开始"])
async def test_start_says_how_to_begin(text: str) -> None:
    desk = Desk()

    assert "/run" in text_of(await desk.say(text))


async def test_a_group_is_told_when_the_bot_answers() -> None:
    desk = Desk()

    assert "mentioned" in text_of(await desk.enter(chat="g1"))


async def test_the_code_comes_in_the_strangers_language() -> None:
    desk = Desk()

    assert "配对码" in text_of(await knock(desk, "/start", hint="zh-hans"))
    assert desk.world.people.chats[ChatId("s1")].settings.language is Language.CHINESE


async def test_strangers_wait_behind_the_people_who_are_known() -> None:
    desk = Desk()

    at_home, in_group = await knock(desk), await desk.say("hi", who="x-mallory", chat="g1")

    assert (at_home.urgency, in_group.urgency) == (Urgency.NOTICE, Urgency.NOTICE)


async def test_a_crowd_of_strangers_does_not_bury_the_owner() -> None:
    desk = Desk()

    replies = [await desk.say("hello", who=f"x-stranger{n}", chat="s1") for n in range(100)]

    assert all("CODE" in text_of(reply) for reply in replies), "everybody gets a code"
    assert owner_was_told(desk) == {"approval": ANNOUNCED, "strangers": 1}
    desk.wait(hours=1)
    await desk.say("hello", who="x-later", chat="s1")
    assert owner_was_told(desk) == {"approval": ANNOUNCED + 1, "strangers": 1}


def owner_was_told(desk: Desk) -> dict[str, int]:
    """How many messages of each kind are in the owner's chat."""
    keys = {key for to, key, _, _ in desk.world.post.sent if to == "c0"}
    return dict(Counter(key.partition(":")[0] for key in keys))


async def test_who_waits_is_not_read_out_in_a_group() -> None:
    desk = Desk()
    await knock(desk)

    for words in ("/pair", "/approvals"):
        shown = text_of(await desk.say(words, who="x-olga", chat="g1"))
        assert "CODE1" not in shown
        assert "CODE1" in text_of(await desk.say(words, who="x-olga", chat="c0"))
