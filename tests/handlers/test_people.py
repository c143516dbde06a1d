"""Strangers, pairing and welcomes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cards.actions import (
    ApplyPersonChange,
    ConfirmPersonChange,
    DecideApproval,
    EndWebSession,
)
from cards.catalog import catalog_for
from cards.model import ButtonsBlock
from cards.render import web
from handlers.people import MAX_ANNOUNCED
from handlers.request import Reply
from storage.records.approvals import ApprovalState
from storage.records.messages import DeliveryUrgency
from storage.records.people import ApiToken, Channel, ChatId, Language, PersonRole
from tests.builders import GPT, NOW, OFFLINE, make_task
from tests.fakes.services import FakeModels
from tests.handlers.router_harness import RouterHarness, text_of


async def knock(
    desk: RouterHarness, text: str = "hello there", *, chat: str = "s1", hint: str = ""
) -> Reply:
    return await desk.send_message(text, who="x-eve", chat=chat, hint=hint)


@pytest.mark.parametrize("text", ["/run write a poem", "/help", "ok", "/pair CODE1", "hello", "/"])
async def test_a_stranger_gets_a_code_and_nothing_else(text: str) -> None:
    desk = RouterHarness(make_task())

    reply = await knock(desk, text)

    assert "CODE1" in text_of(reply)
    assert list(desk.world.post.tokens("reply:1")) == []
    assert desk.world.tasks.created == []
    assert desk.world.talk.questions == []
    assert desk.world.approvals.decisions == []


async def test_a_stranger_is_answered_every_ten_minutes_at_most() -> None:
    desk = RouterHarness()

    first, second = await knock(desk), await knock(desk)
    desk.advance_time(minutes=10)
    third = await knock(desk)

    assert first.card
    assert second.card is None
    assert "CODE1" in text_of(third)
    assert desk.world.pairings.request_count == 2


async def test_a_stranger_in_haste_still_gets_nothing_else() -> None:
    desk = RouterHarness()

    replies = [await knock(desk) for _ in range(25)]

    assert [bool(reply.card) for reply in replies] == [True, *[False] * 24]


async def test_each_stranger_gets_an_own_code() -> None:
    desk = RouterHarness()

    await knock(desk)
    other = await desk.send_message("hello there", who="x-mallory", chat="s1")

    assert "CODE2" in text_of(other)


async def test_every_owner_is_asked_in_private_once() -> None:
    desk = RouterHarness()

    await knock(desk)
    desk.advance_time(minutes=11)
    await knock(desk)

    asked = [each for each in desk.world.post.sent if each[1] == "approval:pair1:c0"]
    assert {urgency for *_, urgency in asked} == {DeliveryUrgency.APPROVAL}
    assert "approval:pair1:c1" not in desk.world.post.cards
    assert "CODE1" in text_of(desk.world.post.cards["approval:pair1:c0"])


async def test_an_owners_button_lets_the_stranger_in_and_tells_them_in_their_language() -> None:
    desk = RouterHarness()
    await knock(desk, "你好")

    reply = await desk.press(
        desk.world.post.token("approval:pair1:c0", DecideApproval), who="x-olga", chat="c0"
    )

    assert reply.good
    assert desk.world.approvals.all["pair1"].state is ApprovalState.APPROVED
    assert "已加入" in text_of(desk.world.post.cards["paired:pair1"])
    assert desk.world.post.chats["paired:pair1"] == "s1"


async def test_once_in_what_they_write_tells_their_language() -> None:
    desk = RouterHarness()
    await knock(desk, "/start", hint="zh-hans")

    await desk.send_message("/approve pair1", who="x-olga", chat="c0")

    assert desk.world.people.chats[ChatId("s1")].settings.language is None


@pytest.mark.parametrize(("typed", "spoken"), [("zh", "中文"), ("中文", "中文"), ("EN", "English")])
async def test_a_person_chooses_their_language(typed: str, spoken: str) -> None:
    desk = RouterHarness()

    reply = await desk.send_message(f"/language {typed}")

    assert spoken in text_of(reply)
    assert len(desk.world.people.languages_set) == 1


async def test_a_language_nobody_speaks_here_changes_nothing() -> None:
    desk = RouterHarness()

    assert "zh|en" in text_of(await desk.send_message("/语言 klingon"))
    assert desk.world.people.languages_set == []


async def test_a_refused_stranger_is_told() -> None:
    desk = RouterHarness()
    await knock(desk)

    await desk.send_message("/reject pair1", who="x-olga", chat="c0")

    assert "rejected your request" in text_of(desk.world.post.cards["paired:pair1"])


async def test_an_owner_lets_in_by_code() -> None:
    desk = RouterHarness()
    await knock(desk)

    reply = await desk.send_message("/pair code1", who="x-olga", chat="c0")

    assert "x-eve" in text_of(reply)
    assert desk.world.approvals.all["pair1"].state is ApprovalState.APPROVED
    assert "Approved" in text_of(desk.world.post.cards["approval:pair1:c0"])


async def test_a_member_may_not_let_anybody_in() -> None:
    desk = RouterHarness()
    await knock(desk)

    text = text_of(await desk.send_message("/pair CODE1"))

    assert "can't do that" in text
    assert desk.world.approvals.decisions == []


async def test_a_wrong_code_says_where_to_get_a_right_one() -> None:
    desk = RouterHarness()

    text = text_of(await desk.send_message("/pair NOPE", who="x-olga", chat="c0"))

    assert "No such pairing code: NOPE" in text


async def test_pair_without_a_code_lists_who_waits() -> None:
    desk = RouterHarness()
    none = text_of(await desk.send_message("/pair", who="x-olga", chat="c0"))
    await knock(desk)

    some = text_of(await desk.send_message("/配对", who="x-olga", chat="c0"))

    assert "No pairing requests" in none
    assert "CODE1" in some


async def test_in_a_group_a_stranger_gets_one_line_and_no_code() -> None:
    desk = RouterHarness()

    reply, again = await knock(desk, chat="g1"), await knock(desk, chat="g1")

    assert "private" in text_of(reply)
    assert "CODE" not in text_of(reply)
    assert again.card is None
    assert desk.world.pairings.request_count == 0


async def test_in_a_group_paired_people_are_served() -> None:
    desk = RouterHarness()

    await desk.send_message("/run write", chat="g1")

    assert desk.world.tasks.created[0].chat_id == "g1"


async def test_a_stranger_who_opens_the_chat_gets_the_code_and_in_a_group_nothing() -> None:
    desk = RouterHarness()

    private = await desk.enter_chat(who="x-eve", chat="s1")
    group = await desk.enter_chat(who="x-mallory", chat="g1")

    assert "CODE1" in text_of(private)
    assert group.card is None


async def test_a_strangers_press_is_declined_in_a_toast() -> None:
    desk = RouterHarness()

    reply = await desk.press("whatever", who="x-eve", chat="g1")

    assert not reply.good
    assert "private" in reply.toast


@pytest.mark.parametrize("offline", [True, False])
async def test_who_opens_the_chat_is_welcomed_once_for_ever(offline: bool) -> None:
    desk = RouterHarness(models=FakeModels(OFFLINE if offline else GPT))

    first, again = await desk.enter_chat(), await desk.enter_chat()

    assert "/run" in text_of(first)
    assert ("shiftboss init" in text_of(first)) is offline
    assert first.key == again.key == "welcome:c1"


@pytest.mark.parametrize(("chat", "leads"), [("c0", True), ("c1", False), ("g1", False)])
async def test_only_an_owner_in_private_is_led_to_setup(chat: str, leads: bool) -> None:
    desk = RouterHarness(models=FakeModels(OFFLINE))

    who = "x-ann" if chat == "c1" else "x-olga"
    welcome = await desk.send_message("/start", chat=chat, who=who)

    assert welcome.card is not None
    assert ("Connect a model" in str(welcome.card)) is leads
    assert ("An owner can connect one" in text_of(welcome)) is not leads


@pytest.mark.parametrize("text", ["/start", "/start deep-link", "/开始"])
async def test_start_says_how_to_begin(text: str) -> None:
    desk = RouterHarness()

    assert "/run" in text_of(await desk.send_message(text))


async def test_a_group_is_told_when_the_bot_answers() -> None:
    desk = RouterHarness()

    assert "Mention me" in text_of(await desk.enter_chat(chat="g1"))


async def test_the_code_comes_in_the_strangers_language() -> None:
    desk = RouterHarness()

    assert "配对码" in text_of(await knock(desk, "/start", hint="zh-hans"))
    assert desk.world.people.chats[ChatId("s1")].settings.language is Language.CHINESE


async def test_strangers_wait_behind_the_people_who_are_known() -> None:
    desk = RouterHarness()

    at_home, in_group = await knock(desk), await desk.send_message("hi", who="x-mallory", chat="g1")

    assert (at_home.urgency, in_group.urgency) == (DeliveryUrgency.NOTICE, DeliveryUrgency.NOTICE)


async def test_a_crowd_of_strangers_does_not_bury_the_owner() -> None:
    desk = RouterHarness()

    replies = [
        await desk.send_message("hello", who=f"x-stranger{n}", chat="s1") for n in range(100)
    ]

    assert all("CODE" in text_of(reply) for reply in replies), "everybody gets a code"
    assert owner_was_told(desk) == {"approval": MAX_ANNOUNCED, "strangers": 1}
    desk.advance_time(hours=1)
    await desk.send_message("hello", who="x-later", chat="s1")
    assert owner_was_told(desk) == {"approval": MAX_ANNOUNCED + 1, "strangers": 1}


def owner_was_told(desk: RouterHarness) -> dict[str, int]:
    """How many messages of each kind are in the owner's chat."""
    keys = {key for to, key, _, _ in desk.world.post.sent if to == "c0"}
    return dict(Counter(key.partition(":")[0] for key in keys))


async def test_who_waits_is_not_read_out_in_a_group() -> None:
    desk = RouterHarness()
    await knock(desk)

    for words in ("/pair", "/approvals"):
        shown = text_of(await desk.send_message(words, who="x-olga", chat="g1"))
        assert "CODE1" not in shown
        assert "CODE1" in text_of(await desk.send_message(words, who="x-olga", chat="c0"))


OWNER: dict[str, Any] = {"who": "x-olga", "chat": "c0"}


def actions(reply: Reply) -> list[Any]:
    assert reply.card is not None
    blocks = [block for block in reply.card.blocks if isinstance(block, ButtonsBlock)]
    return [button.action for block in blocks for button in block.items]


async def role(desk: RouterHarness, who: str) -> PersonRole | None:
    person = await desk.world.people.find_by_account(Channel.TELEGRAM, who)
    return person.role if person else None


async def test_an_owner_sees_everybody_and_may_choose_one() -> None:
    desk = RouterHarness()

    reply = await desk.send_message("/people", **OWNER)

    for part in (desk.world.olga.name, desk.world.ann.name, "owner", "member", "x-ann"):
        assert part in text_of(reply)
    assert actions(reply) == [ConfirmPersonChange(person_id="ann", remove=True)]
    assert reply.data is not None
    assert [each["role"] for each in reply.data["people"]] == ["owner", "member"]


@pytest.mark.parametrize("said", ["/people", "/people remove olga", "/people remove olga yes"])
async def test_members_neither_see_nor_move_anybody(said: str) -> None:
    desk = RouterHarness()

    reply = await desk.send_message(said)

    assert not reply.good
    assert "x-olga" not in text_of(reply)
    assert await role(desk, "x-olga") is PersonRole.OWNER


async def test_nobody_is_listed_where_others_read_along() -> None:
    reply = await RouterHarness().send_message("/people", who="x-olga", chat="g1")

    assert not reply.good
    assert "x-ann" not in text_of(reply)


@pytest.mark.parametrize("named", ["ann", "x-ann", "ANN"])
async def test_removing_takes_two_presses_and_ends_their_talk(named: str) -> None:
    desk = RouterHarness()

    asked = await desk.send_message(f"/people remove {named}", **OWNER)
    still = await role(desk, "x-ann")
    token = desk.world.post.add_button_card(
        ApplyPersonChange(person_id="ann", remove=True), chat="c0"
    )
    done = await desk.press(token, **OWNER)

    assert actions(asked) == [ApplyPersonChange(person_id="ann", remove=True)]
    assert still is PersonRole.MEMBER
    assert "no longer has access" in text_of(done)
    assert await role(desk, "x-ann") is None
    assert "c1" in desk.world.talk.interrupted
    assert "c1" in desk.world.talk.ended


async def test_a_press_on_the_list_asks_first() -> None:
    desk = RouterHarness()
    token = desk.world.post.add_button_card(
        ConfirmPersonChange(person_id="ann", remove=True), chat="c0"
    )

    asked = await desk.press(token, **OWNER)

    assert actions(asked) == [ApplyPersonChange(person_id="ann", remove=True)]
    assert await role(desk, "x-ann") is PersonRole.MEMBER


async def test_who_is_removed_is_a_stranger_from_then_on() -> None:
    desk = RouterHarness()

    await desk.send_message("/people remove ann yes", **OWNER)
    reply = await desk.send_message("/list")

    assert "Pairing code" in text_of(reply)


async def test_the_last_owner_stays() -> None:
    desk = RouterHarness()

    for order in ("demote", "remove"):
        reply = await desk.send_message(f"/people {order} olga yes", **OWNER)
        assert not reply.good
        assert "last owner" in text_of(reply)

    assert await role(desk, "x-olga") is PersonRole.OWNER


async def test_one_owner_makes_another_a_member() -> None:
    desk = RouterHarness()
    ann = desk.world.ann
    desk.world.people.promote(ann.id)

    asked = await desk.send_message("/people demote ann", **OWNER)
    done = await desk.send_message("/people demote ann yes", **OWNER)
    again = await desk.send_message("/people demote ann", **OWNER)

    assert actions(asked) == [ApplyPersonChange(person_id="ann", remove=False)]
    assert "now a member" in text_of(done)
    assert await role(desk, "x-ann") is PersonRole.MEMBER
    assert "already a member" in text_of(again)


@pytest.mark.parametrize("said", ["/people remove", "/people promote ann", "/people remove nobody"])
async def test_what_is_not_understood_moves_nobody(said: str) -> None:
    desk = RouterHarness()

    assert not (await desk.send_message(said, **OWNER)).good
    assert await role(desk, "x-ann") is PersonRole.MEMBER


async def test_a_stranger_is_not_told_that_an_owner_was_asked_who_cannot_be_reached() -> None:
    desk = RouterHarness()
    home = desk.world.people.chats.pop(ChatId("c0"))

    told = await knock(desk)

    assert "No owner has written to me yet" in text_of(told)
    assert "approval:pair1:c0" not in desk.world.post.cards
    desk.world.people.chats[home.id] = home
    await desk.send_message("hello", who="x-olga", chat="c0")
    assert "CODE1" in text_of(desk.world.post.cards["approval:pair1:c0"])


HOSTILE_AGENT = "<script>x</script> [x](javascript:alert(1)) `code` *b* \u202e\x1b[31m\nNew: line"


async def test_an_owner_lists_and_ends_web_sessions() -> None:
    desk = RouterHarness()
    for each in ("s1aaaaaaaaaa", "s2aaaaaaaaaa", "s3aaaaaaaaaa"):
        desk.world.web_sessions.add(each)

    listed = await desk.send_message("/sessions", **OWNER)
    token = desk.world.post.add_button_card(EndWebSession(session_id="s1aaaaaaaaaa"), chat="c0")
    pressed = await desk.press(token, **OWNER)
    typed = await desk.send_message("/sessions end S2AAAAAAAAAA", **OWNER)
    unknown = await desk.send_message("/sessions end s2aaaaaaaaaa", **OWNER)
    rest = await desk.send_message("/sessions end others", **OWNER)

    assert actions(listed) == [
        *(EndWebSession(session_id=each) for each in ("s1aaaaaaaaaa", "s2aaaaaaaaaa")),
        EndWebSession(session_id="s3aaaaaaaaaa"),
        EndWebSession(),
    ]
    assert "s1aaaaaaaaaa" not in text_of(pressed)
    assert "s2aaaaaaaaaa" not in text_of(typed)
    assert not unknown.good
    assert "No browser is signed in" in text_of(rest)
    assert not desk.world.web_sessions.all


@pytest.mark.parametrize("how", [{}, {"who": "x-olga", "chat": "g1"}])
@pytest.mark.parametrize("said", ["", " end s1", " end others"])
async def test_web_sessions_are_for_owners_in_private(how: dict[str, Any], said: str) -> None:
    desk = RouterHarness()
    desk.world.web_sessions.add("s1")

    reply = await desk.send_message(f"/sessions{said}", **how)
    token = desk.world.post.add_button_card(EndWebSession(), chat=how.get("chat", "c1"))
    pressed = await desk.press(token, **how)

    # A member may ask for their own tokens.
    assert [reply.good, pressed.good] == [not said and not how, False]
    assert "Firefox" not in text_of(reply)
    assert list(desk.world.web_sessions.all) == ["s1"]


async def test_dashboard_sends_an_owner_a_link_in_private_only() -> None:
    desk = RouterHarness()

    sent = await desk.send_message("/dashboard", **OWNER)
    desk.world.web_sessions.address = "https://boss.example"
    public = await desk.send_message("/dashboard", **OWNER)
    group = await desk.send_message("/dashboard", who="x-olga", chat="g1")
    member = await desk.send_message("/dashboard")

    assert text_of(sent).count("http://127.0.0.1:8321/sign-in/secret") == 1
    assert "SHIFTBOSS_WEB_URL" in text_of(sent)
    assert "SHIFTBOSS_WEB_URL" not in text_of(public)
    assert [group.good, member.good] == [False, False]
    assert [each.person_id for each in desk.world.web_sessions.links] == ["olga", "olga"]


async def test_people_make_list_and_revoke_their_own_tokens() -> None:
    desk = RouterHarness()
    for each, person in (("t1", desk.world.olga), ("t2", desk.world.ann), ("t3", desk.world.ann)):
        desk.world.web_sessions.tokens[each] = ApiToken(
            id=each, person_id=person.id, name=f"*{each}* [x](y)", created_at=NOW
        )

    made = await desk.send_message("/sessions token my backup script")
    own = await desk.send_message("/sessions")
    foreign = await desk.send_message("/sessions end t1")
    revoked = await desk.send_message("/sessions end T2")
    every = await desk.send_message("/sessions", **OWNER)
    by_owner = await desk.send_message("/sessions end t3", **OWNER)
    in_group = await desk.send_message("/sessions token x", chat="g1")

    assert "/sign-in/secret" in text_of(made)
    assert [each.name for each in desk.world.web_sessions.links] == ["my backup script"]
    assert ["t1" in text_of(own), "t2" in text_of(own)] == [False, True]
    assert [foreign.good, revoked.good, by_owner.good] == [False, True, True]
    assert ["t1" in text_of(every), "t2" in text_of(every)] == [True, False]
    assert not in_group.good
    assert list(desk.world.web_sessions.tokens) == ["t1"]


@pytest.mark.parametrize("said", ["/sessions end", "/sessions stop s1", "/sessions s1"])
async def test_what_is_not_understood_ends_no_session(said: str) -> None:
    desk = RouterHarness()
    desk.world.web_sessions.add("s1")

    assert not (await desk.send_message(said, **OWNER)).good
    assert list(desk.world.web_sessions.all) == ["s1"]


async def test_what_a_browser_says_of_itself_is_only_text() -> None:
    desk = RouterHarness()
    desk.world.web_sessions.add("s1", HOSTILE_AGENT)

    reply = await desk.send_message("/sessions", **OWNER)

    assert reply.card is not None
    page = web.render(reply.card, catalog_for(Language.ENGLISH)).html
    assert "<script" not in page
    assert "<a " not in page
    for shown in (page, text_of(reply)):
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\nNew: line" not in shown
