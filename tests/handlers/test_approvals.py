"""Decisions by button, command and bare word."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cards.actions import (
    AnswerQuestion,
    DecideApproval,
    RequestApprovalAgain,
    SubmitApprovalForm,
)
from cards.catalog import catalog_for
from cards.model import ButtonsBlock, FormBlock
from cards.views.approvals import approval_card
from handlers.errors import BackendFailure
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language, PersonId
from storage.records.tasks import TaskStatus
from tests.builders import make_approval, make_task
from tests.handlers.router_harness import RouterHarness, text_of


def desk_with(*ids: str, approvers: tuple[str, ...] = ("ann",), chat: str = "c1") -> RouterHarness:
    desk = RouterHarness()
    for id in ids:  # noqa: A001 - what the record calls it
        desk.world.approvals.all[id] = make_approval(id, chat=chat, approvers=approvers)
    return desk


@pytest.mark.parametrize("word", ["通过", "approve", "批准", "ok", "yes", "OK", "通过 ap7"])
async def test_a_bare_word_approves_what_waits_here(word: str) -> None:
    desk = desk_with("ap7x2k")

    await desk.send_message(word)

    assert desk.world.approvals.decisions == [("ap7x2k", True, "", PersonId("ann"))]
    assert desk.world.talk.questions == []


@pytest.mark.parametrize(
    ("word", "reason"), [("拒绝", ""), ("no", ""), ("否", ""), ("reject too dear", "too dear")]
)
async def test_a_bare_word_rejects_what_waits_here(word: str, reason: str) -> None:
    desk = desk_with("ap7x2k")

    await desk.send_message(word)

    assert desk.world.approvals.decisions == [("ap7x2k", False, reason, PersonId("ann"))]


@pytest.mark.parametrize("text", ["好的", "ok 开始吧", "no problem", "yes please"])
async def test_what_only_sounds_like_it_is_talk(text: str) -> None:
    desk = desk_with("ap7x2k")

    await desk.send_message(text)

    assert desk.world.approvals.decisions == []
    assert len(desk.world.talk.questions) == 1


@pytest.mark.parametrize("text", ["ok", "通过", "no", "通过 zz"])
async def test_a_bare_word_is_talk_where_nothing_waits(text: str) -> None:
    desk = desk_with("ap7x2k", chat="g1")

    await desk.send_message(text)

    assert desk.world.approvals.decisions == []
    assert len(desk.world.talk.questions) == 1


async def test_a_bare_word_of_somebody_else_is_talk() -> None:
    desk = desk_with("ap7x2k", approvers=("olga",))

    await desk.send_message("ok")

    assert desk.world.approvals.decisions == []
    assert len(desk.world.talk.questions) == 1


async def test_a_bare_word_asks_which_of_several() -> None:
    desk = desk_with("ap7x2k", "bq8y3l")

    text = text_of(await desk.send_message("ok"))

    assert desk.world.approvals.decisions == []
    assert "ap7x2k" in text
    assert "bq8y3l" in text


async def test_a_bare_word_never_lets_anybody_in() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["p"] = make_approval("p", ApprovalKind.PAIRING, chat="c0")

    await desk.send_message("ok", who="x-olga", chat="c0")

    assert desk.world.approvals.decisions == []


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("/approve", ("ap7x2k", True, "")),
        ("/approve ap7", ("ap7x2k", True, "")),
        ("/通过", ("ap7x2k", True, "")),
        ("/批准 ap7x2k", ("ap7x2k", True, "")),
        ("/reject", ("ap7x2k", False, "")),
        ("/reject too dear", ("ap7x2k", False, "too dear")),
        ("/reject ap7x2k too dear", ("ap7x2k", False, "too dear")),
        ("/否决 太贵", ("ap7x2k", False, "太贵")),
    ],
)
async def test_commands_decide(text: str, decision: tuple[str, bool, str]) -> None:
    desk = desk_with("ap7x2k")

    await desk.send_message(text)

    assert [each[:3] for each in desk.world.approvals.decisions] == [decision]


async def test_commands_without_a_name_do_not_guess() -> None:
    several, none = desk_with("ap7x2k", "bq8y3l"), RouterHarness()

    assert "/approvals" in text_of(await several.send_message("/approve"))
    assert "Nothing is waiting" in text_of(await none.send_message("/approve"))
    assert several.world.approvals.decisions == []


@pytest.mark.parametrize("text", ["/approve ap7x2k", "/reject ap7x2k too dear"])
async def test_what_is_asked_elsewhere_is_neither_shown_nor_decided_in_a_group(text: str) -> None:
    desk = desk_with("ap7x2k")

    said = text_of(await desk.send_message(text, chat="g1"))

    assert "No such request" in said
    assert desk.world.approvals.all["ap7x2k"].title not in said
    assert desk.world.approvals.decisions == []


async def test_who_may_not_decide_is_told_so() -> None:
    desk = desk_with("ap7x2k", approvers=("olga",))

    text = text_of(await desk.send_message("/approve ap7x2k"))

    assert "can't do that" in text
    assert desk.world.approvals.decisions == []


async def test_the_second_decision_hears_of_the_first() -> None:
    desk = desk_with("ap7x2k", approvers=("ann", "olga"))

    await desk.send_message("/approve ap7x2k")
    text = text_of(await desk.send_message("/reject ap7x2k", who="x-olga", chat="c0"))

    assert len(desk.world.approvals.decisions) == 1
    assert "approved" in text


async def test_a_decision_shows_on_every_copy_with_who_took_it() -> None:
    desk = desk_with("ap7x2k", approvers=("ann", "olga"))
    tokens = await _copies(desk, "ap7x2k", "c0", "c1")

    reply = await desk.press(tokens["c1"])

    assert "Approved" in reply.toast
    assert reply.card is None
    for chat in ("c0", "c1"):
        text = text_of(desk.world.post.cards[f"approval:ap7x2k:{chat}"])
        assert "Approved" in text
        assert "Ann" in text


async def test_the_second_press_changes_nothing_and_names_the_first() -> None:
    desk = desk_with("ap7x2k", approvers=("ann", "olga"))
    tokens = await _copies(desk, "ap7x2k", "c0", "c1")
    await desk.press(tokens["c1"])

    late = await desk.press(tokens["c0"], who="x-olga", chat="c0")

    assert not late.good
    assert len(desk.world.approvals.decisions) == 1


async def test_a_button_decides_its_own_request_only() -> None:
    desk = desk_with("ap7x2k", "bq8y3l")
    tokens = await _copies(desk, "bq8y3l", "c1")

    await desk.press(tokens["c1"])

    assert [each[0] for each in desk.world.approvals.decisions] == ["bq8y3l"]


async def test_an_expired_request_is_shown_as_expired() -> None:
    desk = desk_with("ap7x2k")
    tokens = await _copies(desk, "ap7x2k", "c1")
    desk.world.approvals.all["ap7x2k"] = make_approval(
        state=ApprovalState.EXPIRED, approvers=("ann",)
    )

    reply = await desk.press(tokens["c1"])

    assert not reply.good
    assert "Expired" in text_of(desk.world.post.cards["approval:ap7x2k:c1"])


async def test_the_list_of_what_waits_turns_in_place() -> None:
    desk = desk_with("ap7x2k", "bq8y3l")
    await desk.send_message("/approvals")

    reply = await desk.press(desk.world.post.token("reply:1", DecideApproval))

    assert reply.in_place
    assert reply.key == "reply:1"
    assert "ap7x2k" not in text_of(reply.card)
    assert "bq8y3l" in text_of(reply.card)


async def test_nothing_waiting_is_said_kindly() -> None:
    desk = RouterHarness()

    assert "Nothing is waiting" in text_of(await desk.send_message("/approvals"))


async def test_a_press_of_somebody_who_may_not_leaves_the_button_to_those_who_may() -> None:
    desk = desk_with("ap7x2k", approvers=("olga",), chat="g1")
    tokens = await _copies(desk, "ap7x2k", "g1")

    refused = await desk.press(tokens["g1"], chat="g1")
    decided = await desk.press(tokens["g1"], who="x-olga", chat="g1")

    assert not refused.good
    assert "can't do that" in refused.toast
    assert "Approved" in decided.toast
    assert [each[3] for each in desk.world.approvals.decisions] == [PersonId("olga")]


async def test_who_comes_second_is_told_who_was_first() -> None:
    desk = desk_with("ap7x2k", approvers=("ann", "olga"))
    tokens = await _copies(desk, "ap7x2k", "c0", "c1")
    await desk.press(tokens["c1"])

    late = await desk.press(tokens["c0"], who="x-olga", chat="c0")

    assert "Ann decided first" in late.toast


_BY_THE_WAY = (
    *(ApprovalKind.PAIRING, ApprovalKind.MEMORY, ApprovalKind.PROMPT, ApprovalKind.MCP),
    ApprovalKind.LINK,
    ApprovalKind.PAGE,
)


@pytest.mark.parametrize("kind", [each for each in ApprovalKind if each not in _BY_THE_WAY])
async def test_a_bare_word_answers_the_copy_in_a_private_chat(kind: ApprovalKind) -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = make_approval(kind=kind, chat="g1", approvers=("ann",))
    await _copies(desk, "ap7x2k", "c1")

    await desk.send_message("ok")

    assert [each[:2] for each in desk.world.approvals.decisions] == [("ap7x2k", True)]


async def test_a_bare_word_never_answers_what_is_asked_by_the_way() -> None:
    desk = RouterHarness()
    kind = ApprovalKind.MEMORY
    desk.world.approvals.all["ap7x2k"] = make_approval(kind=kind, chat="c1", approvers=("ann",))
    await _copies(desk, "ap7x2k", "c1")

    await desk.send_message("ok")

    assert desk.world.approvals.decisions == []


async def test_a_bare_word_never_answers_the_copy_of_a_pairing() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["p"] = make_approval("p", ApprovalKind.PAIRING, chat="s1")
    await _copies(desk, "p", "c0")

    await desk.send_message("ok", who="x-olga", chat="c0")
    await desk.send_message("/approve", who="x-olga", chat="c0")

    assert desk.world.approvals.decisions == []


async def test_what_expired_is_asked_again_by_letting_its_task_go_on() -> None:
    desk = RouterHarness(make_task("k3m9qa", TaskStatus.PAUSED))
    desk.world.approvals.all["ap7x2k"] = make_approval(state=ApprovalState.EXPIRED)

    reply = await desk.press(
        desk.world.post.add_button_card(RequestApprovalAgain(approval_id="ap7x2k"))
    )

    assert reply.good
    assert [each[:2] for each in desk.world.tasks.moves] == [("resume", "k3m9qa")]


async def test_only_who_may_move_a_task_has_it_ask_again() -> None:
    theirs = replace(
        make_task("k3m9qa", TaskStatus.PAUSED), created_by=PersonId("olga"), chat_id=ChatId("c0")
    )
    desk = RouterHarness(theirs)
    desk.world.approvals.all["ap7x2k"] = make_approval(state=ApprovalState.EXPIRED)

    reply = await desk.press(
        desk.world.post.add_button_card(RequestApprovalAgain(approval_id="ap7x2k"))
    )

    assert not reply.good
    assert desk.world.tasks.moves == []


async def test_money_asked_for_again_moves_all_that_wait_and_can_be_moved() -> None:
    tasks = [make_task(id, TaskStatus.PAUSED) for id in ("k3m9qa", "b2cdef")]  # noqa: A001 - ids
    desk = RouterHarness(*tasks, make_task("r8nnng"))
    expired = make_approval(kind=ApprovalKind.BUDGET, state=ApprovalState.EXPIRED)
    waiting = ["k3m9qa", "r8nnng", "b2cdef", "n0where"]
    desk.world.approvals.all["ap7x2k"] = replace(expired, payload={"tasks": waiting})

    reply = await desk.press(
        desk.world.post.add_button_card(RequestApprovalAgain(approval_id="ap7x2k"))
    )

    assert reply.good
    assert [each[1] for each in desk.world.tasks.moves] == ["k3m9qa", "b2cdef"]


async def test_nobody_is_let_in_again_without_knocking_again() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["p"] = make_approval(
        "p", ApprovalKind.PAIRING, state=ApprovalState.EXPIRED
    )

    reply = await desk.press(
        desk.world.post.add_button_card(RequestApprovalAgain(approval_id="p"), chat="c0"),
        who="x-olga",
        chat="c0",
    )

    assert "message me again" in reply.toast


async def test_talk_that_a_cap_stops_asks_for_more_in_its_chat_and_of_the_owner() -> None:
    asked = make_approval(kind=ApprovalKind.BUDGET)
    desk = RouterHarness()
    desk.world.talk.answers.append(BackendFailure("backend.budget", approval=asked))

    await desk.send_message("tell me everything")

    assert {"approval:ap7x2k:c1", "approval:ap7x2k:c0"} <= set(desk.world.post.cards)


async def test_a_cap_that_stops_a_group_too_is_asked_about_there_without_who_was_first() -> None:
    desk = RouterHarness()
    approval = make_approval(kind=ApprovalKind.BUDGET, approvers=("ann",))
    desk.world.approvals.all["ap7x2k"] = approval
    await _copies(desk, "ap7x2k", "c1", "g1")

    said = await desk.send_message("ok", chat="g1")

    shown = [text_of(desk.world.post.cards[f"approval:ap7x2k:{chat}"]) for chat in ("c1", "g1")]
    assert [each[:2] for each in desk.world.approvals.decisions] == [("ap7x2k", True)]
    assert ["Delete the old logs" in each for each in (*shown, text_of(said))] == [
        True,
        False,
        False,
    ]
    assert ["k3m9qa" in each for each in shown] == [True, False]
    assert said.data is not None
    assert said.data["title"] == "Spending cap extension"


async def _copies(desk: RouterHarness, approval_id: str, *chats: str) -> dict[str, str]:
    """Tokens of the approve buttons on a copy of the request in each chat."""
    approval = desk.world.approvals.all[approval_id]
    card = approval_card(approval, catalog_for(Language.ENGLISH), zone=ZoneInfo("UTC"))
    tokens = {}
    for chat in chats:
        key = f"approval:{approval_id}:{chat}"
        await desk.world.post.send(ChatId(chat), card, key=key, urgency=DeliveryUrgency.APPROVAL)
        question = approval.kind is ApprovalKind.QUESTION
        tokens[chat] = desk.world.post.token(key, AnswerQuestion if question else DecideApproval)
    return tokens


def a_tool_request(**changes: Any) -> Approval:
    payload = {"tool": "exec", "why": "No rule allows it.", "pattern": "make deploy"}
    return replace(make_approval(kind=ApprovalKind.TOOL), payload=payload, **changes)


def a_question(**changes: Any) -> Approval:
    payload = {"options": ["red", "blue"]}
    asked = make_approval(kind=ApprovalKind.QUESTION, approvers=("ann",))
    return replace(asked, payload=payload, **changes)


@pytest.mark.parametrize(
    ("typed", "reach"), [("", None), ("task", "task"), ("始终", "always"), ("ALWAYS", "always")]
)
async def test_a_yes_to_a_tool_reaches_as_far_as_it_says(typed: str, reach: str | None) -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_tool_request()

    await desk.send_message(f"/approve ap7x2k {typed}", who="x-olga", chat="c0")

    decided = desk.world.approvals.all["ap7x2k"]
    assert decided.state is ApprovalState.APPROVED
    assert decided.payload.get("reach") == reach


async def test_a_word_that_is_no_reach_is_no_yes() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_tool_request()

    reply = await desk.send_message("/approve ap7x2k not yet", who="x-olga", chat="c0")

    assert "Nothing was decided" in text_of(reply)
    assert desk.world.approvals.decisions == []


async def test_always_is_an_owners_word_even_for_who_may_allow_it_once() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_tool_request(approvers=(PersonId("ann"),))
    always = desk.world.post.add_button_card(
        DecideApproval(approval_id="ap7x2k", approve=True, scope="always")
    )

    refused = await desk.press(always)

    assert not refused.good
    assert desk.world.approvals.decisions == []


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("2", "blue"), ("1.", "red"), ("3", "3"), ("green?", "green?")],
)
async def test_a_question_is_answered_by_number_or_by_words(typed: str, answer: str) -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_question()
    form = desk.world.post.add_button_card(AnswerQuestion(question_id="ap7x2k"))

    await desk.press(form, form={"text": typed})

    assert [each[1:3] for each in desk.world.approvals.decisions] == [(True, answer)]


async def test_a_question_is_answered_by_a_button_by_a_command_and_by_a_bare_word() -> None:
    for say in ("press", "/approve ap7x2k 2", "ok"):
        desk = RouterHarness()
        desk.world.approvals.all["ap7x2k"] = a_question()
        if say == "press":
            await desk.press(
                desk.world.post.add_button_card(AnswerQuestion(question_id="ap7x2k", value="blue"))
            )
        else:
            await desk.send_message(say)

        told = desk.world.approvals.decisions[0][2]
        assert told == ("ok" if say == "ok" else "blue")


async def test_an_empty_answer_is_none() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_question()

    reply = await desk.press(
        desk.world.post.add_button_card(AnswerQuestion(question_id="ap7x2k")), form={"text": " "}
    )

    assert not reply.good
    assert desk.world.approvals.decisions == []


async def test_a_list_loses_the_buttons_of_what_is_decided_elsewhere() -> None:
    desk = RouterHarness()
    for each in ("ap7x2k", "bq8y3m"):
        desk.world.approvals.all[each] = replace(make_approval(approvers=("ann", "olga")), id=each)
    await desk.send_message("/approvals")
    listed = "reply:1"

    await desk.send_message("/approve ap7x2k", who="x-olga", chat="c0")

    card = desk.world.post.cards[listed]
    blocks = [block for block in card.blocks if isinstance(block, ButtonsBlock)]
    left = [button.action for block in blocks for button in block.items]
    assert {each.approval_id for each in left if isinstance(each, DecideApproval)} == {"bq8y3m"}
    assert catalog_for(Language.ENGLISH)("approval.decided.approved") in text_of(card)


async def test_a_question_answered_elsewhere_leaves_no_form_on_a_list() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_question()
    listed = (await desk.send_message("/approvals")).card

    await desk.send_message("/approve ap7x2k 2")

    card = desk.world.post.cards["reply:1"]
    assert listed is not None
    assert [block for block in listed.blocks if isinstance(block, ButtonsBlock | FormBlock)]
    assert not [block for block in card.blocks if isinstance(block, ButtonsBlock | FormBlock)]


@pytest.mark.parametrize(("typed", "answer"), [("2", "blue"), ("2.", "blue"), ("why not teal", "")])
async def test_the_next_message_answers_the_open_question(typed: str, answer: str) -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_question()

    reply = await desk.send_message(typed)

    settled = desk.world.approvals.all["ap7x2k"]
    assert (settled.state, settled.reason) == (ApprovalState.APPROVED, answer or typed)
    assert "Answered" in text_of(reply)
    assert "Approved" not in text_of(reply)
    assert desk.world.talk.questions == []


async def test_of_several_open_questions_one_is_named() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_question()
    desk.world.approvals.all["bq8y3m"] = replace(a_question(), id="bq8y3m")

    listed = await desk.send_message("2")
    talk = await desk.send_message("what do you mean?")

    assert listed.card is not None
    assert "ap7x2k" in str(listed.card)
    assert "bq8y3m" in str(listed.card)
    assert text_of(talk) == "Fine."


async def test_a_command_or_an_edited_message_is_no_answer() -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = a_question()

    await desk.send_message("/help")
    await desk.deliver(desk.row(replace(desk.message("2"), edited=True)))

    assert desk.world.approvals.all["ap7x2k"].state is ApprovalState.WAITING


async def test_words_decide_nothing_that_was_asked_after_they_came() -> None:
    desk = RouterHarness()
    asked = make_approval(approvers=("ann",))
    desk.world.approvals.all["ap7x2k"] = asked
    said = desk.message("ok")
    early = replace(desk.row(said), received_at=asked.created_at - timedelta(seconds=1))
    late = desk.row(replace(said, sent_at=asked.created_at - timedelta(hours=13)))

    await desk.deliver(early)
    await desk.deliver(replace(late, received_at=asked.created_at))

    assert desk.world.approvals.decisions == []
    await desk.send_message("ok")
    assert len(desk.world.approvals.decisions) == 1


@pytest.mark.parametrize("change", [{"approvers": ("olga",)}, {"chat_id": ChatId("c9")}])
async def test_a_message_answers_only_the_senders_own_question_of_this_chat(
    change: dict[str, Any],
) -> None:
    desk = RouterHarness()
    desk.world.approvals.all["ap7x2k"] = replace(a_question(), **change)

    reply = await desk.send_message("2")

    assert text_of(reply) == "Fine."
    assert desk.world.approvals.all["ap7x2k"].state is ApprovalState.WAITING


FORM = [
    {"name": "amount", "title": "How much?", "type": "number"},
    {"name": "day", "type": "date", "required": False},
    {"name": "to", "type": "choice", "options": ["Ann", "Bo"], "default": "Ann"},
]


def desk_with_form() -> RouterHarness:
    desk = desk_with("ap7x2k")
    asked = desk.world.approvals.all["ap7x2k"]
    payload = {**asked.payload, "form": FORM}
    desk.world.approvals.all["ap7x2k"] = replace(asked, kind=ApprovalKind.HUMAN, payload=payload)
    return desk


async def test_a_form_stays_until_it_is_right_and_the_first_one_counts() -> None:
    desk = desk_with_form()
    token = desk.world.post.add_button_card(SubmitApprovalForm(approval_id="ap7x2k"))

    wrong = await desk.press(token, form={"amount": "much", "day": "2026-02-30", "to": "Eve"})
    empty = await desk.press(token, form={"amount": " "})
    assert not wrong.good
    assert not empty.good
    assert desk.world.approvals.decisions == []
    right = await desk.press(token, form={"amount": "5", "day": "2026/3/1", "to": "bo", "x": "y"})
    again = await desk.press(token, form={"amount": "6"})

    assert right.good
    assert not again.good
    decided = desk.world.approvals.all["ap7x2k"]
    assert decided.payload["values"] == {"amount": 5, "day": "2026-03-01", "to": "Bo"}
    assert decided.reason == "How much?: 5\nday: 2026-03-01\nto: Bo"


@pytest.mark.parametrize(
    ("say", "values"),
    [
        ("/approve ap7x2k amount=7 to=Bo", {"amount": 7, "to": "Bo"}),
        ("/approve ap7x2k", None),
        ("/approve ap7x2k amount=x", None),
        ("/approve ap7x2k amount=1 nobody=2", None),
        ("ok", None),
        ("press", None),
    ],
)
async def test_a_request_with_a_form_is_approved_with_its_values_only(
    say: str, values: object
) -> None:
    desk = desk_with_form()

    if say == "press":
        action = DecideApproval(approval_id="ap7x2k", approve=True)
        await desk.press(desk.world.post.add_button_card(action))
    else:
        await desk.send_message(say)

    assert desk.world.approvals.all["ap7x2k"].payload.get("values") == values
    assert len(desk.world.approvals.decisions) == (values is not None)
