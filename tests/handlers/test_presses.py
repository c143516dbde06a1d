"""Buttons: each acts once, for whom it is meant, in its own chat, and says so otherwise."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cards.actions import (
    Action,
    ListTasks,
    PauseTask,
    ResumeTask,
    RetryTask,
    SetPriority,
    ShowLogs,
    ShowTask,
    StopTask,
    SubmitMessageForm,
)
from cards.model import FormBlock, FormField, SelectBlock
from handlers.parsing import parse_form_reply
from storage.records.messages import IncomingPress, MessageSender
from storage.records.people import Language, PersonId, PersonRole
from storage.records.tasks import TaskId, TaskPriority, TaskStatus
from tests.builders import NOW, make_task
from tests.handlers.router_harness import RouterHarness, text_of

PAUSE = PauseTask(task_id="k3m9qa")


@pytest.mark.parametrize(
    ("action", "status", "move"),
    [
        (PAUSE, TaskStatus.RUNNING, "pause"),
        (ResumeTask(task_id="k3m9qa"), TaskStatus.PAUSED, "resume"),
        (StopTask(task_id="k3m9qa"), TaskStatus.RUNNING, "stop"),
        (RetryTask(task_id="k3m9qa"), TaskStatus.FAILED, "retry"),
        (
            SetPriority(task_id="k3m9qa", priority=TaskPriority.URGENT),
            TaskStatus.PENDING,
            "priority",
        ),
    ],
)
async def test_a_button_moves_its_task_and_answers_in_a_toast(
    action: Action, status: TaskStatus, move: str
) -> None:
    desk = RouterHarness(make_task(status=status))

    reply = await desk.press(desk.world.post.add_button_card(action))

    assert [each[0] for each in desk.world.tasks.moves] == [move]
    assert reply.toast
    assert reply.good
    assert reply.card is None


async def test_a_picked_priority_is_the_one_set() -> None:
    desk = RouterHarness(make_task())
    await desk.send_message("/run write")
    card = desk.world.post.cards["task:new1xyz"]
    select = next(block for block in card.blocks if isinstance(block, SelectBlock))

    await desk.press(select.token, value="#0")

    assert desk.world.tasks.tasks[TaskId("new1xyz")].priority is TaskPriority.URGENT


async def test_picking_what_is_set_already_does_not_use_the_select_up() -> None:
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(
        SetPriority(task_id="k3m9qa", priority=TaskPriority.IMPORTANT)
    )

    replies = [await desk.press(token, value=each) for each in ("important", "urgent")]

    assert [reply.good for reply in replies] == [True, True]


async def test_a_pick_that_is_not_on_the_card_is_declined() -> None:
    desk = RouterHarness(make_task())
    await desk.send_message("/run write")
    card = desk.world.post.cards["task:new1xyz"]
    select = next(block for block in card.blocks if isinstance(block, SelectBlock))

    replies = [await desk.press(select.token, value=value) for value in ("#3", "#999")]

    assert [reply.good for reply in replies] == [False, False]
    assert desk.world.tasks.moves == []


@pytest.mark.parametrize("action", [ShowTask(task_id="k3m9qa"), ShowLogs(task_id="k3m9qa")])
async def test_details_and_logs_come_as_a_card_of_their_own_as_often_as_asked(
    action: Action,
) -> None:
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(action)

    first, second = await desk.press(token), await desk.press(token)

    assert first.key == second.key == ""
    assert "k3m9qa" in text_of(first.card)
    assert second.good


async def test_list_pages_turn_in_place() -> None:
    desk = RouterHarness(*(make_task(f"task{n}x", title=f"Title {n}") for n in range(7)))
    await desk.send_message("/list")
    token = next(
        token
        for _, action, token in desk.world.post.tokens("reply:1")
        if action == ListTasks(page=2)
    )

    reply = await desk.press(token)

    assert (reply.in_place, reply.key) == (True, "reply:1")
    assert "Title 6" in text_of(reply.card)
    assert "Title 1" not in text_of(reply.card)


async def test_a_second_press_changes_nothing_and_says_who_was_first_and_when() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.RUNNING))
    token = desk.world.post.add_button_card(PAUSE)
    await desk.press(token)

    mine = await desk.press(token)
    other = await desk.press(token, who="x-olga")

    assert len(desk.world.tasks.moves) == 1
    assert "You already pressed" in mine.toast
    assert "Ann" in other.toast
    assert "13:06" in other.toast
    assert not other.good


async def test_the_same_press_handled_again_acts_on() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.RUNNING))
    token = desk.world.post.add_button_card(PAUSE)
    place = desk.message("x").place
    press = IncomingPress(
        place=place, sender=MessageSender(external_id="x-ann"), token=token, message_id="m"
    )
    row = desk.row(press)

    await desk.deliver(row)
    again = await desk.deliver(row)

    assert again.good
    assert {source for *_, source in desk.world.tasks.moves} == {f"inbox:{row.id}"}


async def test_an_expired_button_is_declined() -> None:
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(PAUSE)
    desk.world.post.rows[token] = replace(
        desk.world.post.rows[token], expires_at=NOW - timedelta(seconds=1)
    )

    reply = await desk.press(token)

    assert "expired" in reply.toast
    assert desk.world.tasks.moves == []


async def test_a_button_gone_from_its_card_is_declined() -> None:
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(PAUSE)
    desk.world.post.rows[token] = replace(desk.world.post.rows[token], retired=True)

    reply = await desk.press(token)

    assert "out of date" in reply.toast
    assert desk.world.tasks.moves == []


async def test_a_button_of_another_chat_is_declined() -> None:
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(PAUSE, chat="g1")

    reply = await desk.press(token)

    assert "another chat" in reply.toast
    assert desk.world.tasks.moves == []


@pytest.mark.parametrize("token", ["", "forged000000", "../../etc", "x" * 500])
async def test_a_forged_token_is_declined(token: str) -> None:
    desk = RouterHarness(make_task())

    reply = await desk.press(token)

    assert "don't know" in reply.toast
    assert desk.world.tasks.moves == []
    assert desk.incidents == 0


async def test_an_action_of_another_version_is_declined() -> None:
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(PAUSE)
    desk.world.post.rows[token] = replace(
        desk.world.post.rows[token], action={"kind": "teleport", "task_id": "k3m9qa"}
    )

    reply = await desk.press(token)

    assert not reply.good
    assert desk.incidents == 0


async def test_a_button_meant_for_others_is_declined_and_stays_theirs() -> None:
    desk = RouterHarness(make_task())
    desk.world.post.allowed = (PersonId("olga"),)
    token = desk.world.post.add_button_card(PAUSE)

    declined = await desk.press(token)
    taken = await desk.press(token, who="x-olga")

    assert not declined.good
    assert taken.good
    assert len(desk.world.tasks.moves) == 1


async def test_an_owners_button_is_declined_to_members_and_not_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PauseTask, "required_role", PersonRole.OWNER)
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(PAUSE)

    declined = await desk.press(token)
    taken = await desk.press(token, who="x-olga")

    assert "can't use this" in declined.toast
    assert taken.good


async def test_a_member_presses_nothing_on_tasks_of_others() -> None:
    desk = RouterHarness(make_task(by="olga", chat="c0"))
    token = desk.world.post.add_button_card(PAUSE)

    reply = await desk.press(token)

    assert not reply.good
    assert desk.world.tasks.moves == []


async def test_what_the_state_forbids_is_a_toast_in_the_persons_language() -> None:
    desk = RouterHarness(make_task(status=TaskStatus.COMPLETED))
    await desk.world.people.set_language(desk.world.ann, Language.CHINESE)

    reply = await desk.press(desk.world.post.add_button_card(PAUSE))

    assert "已完成" in reply.toast
    assert len(reply.toast) <= 200


FORM = FormBlock(
    fields=(
        FormField(name="text", label="What"),
        FormField(name="priority", label="Priority", required=False),
    ),
    submit="Go",
    action=PAUSE,
)


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("feed the cat", {"text": "feed the cat"}),
        ("feed\nthe cat", {"text": "feed\nthe cat"}),
        ("what: feed\npriority：urgent", {"text": "feed", "priority": "urgent"}),
        ("-p urgent feed", {"priority": "urgent", "text": "feed"}),
        ("note: feed", {"text": "note: feed"}),
        ("", {}),
    ],
)
def test_a_typed_answer_fills_the_form(typed: str, values: dict[str, str]) -> None:
    assert parse_form_reply(FORM, typed) == values


@pytest.mark.parametrize("form", [{}, {"text": " "}, {"as": "step"}])
async def test_a_message_without_a_word_is_not_sent_and_its_form_stays(
    form: dict[str, str],
) -> None:
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(SubmitMessageForm(task_id="k3m9qa"))

    empty = await desk.press(token, form=form)
    written = await desk.press(token, form={"text": "mind the gap"})

    assert (empty.good, written.good) == (False, True)
    assert desk.incidents == 0
    assert desk.world.tasks.messages == ["mind the gap"]


async def test_the_form_of_a_message_becomes_the_record_of_what_was_sent() -> None:
    desk = RouterHarness(make_task())
    token = desk.world.post.add_button_card(SubmitMessageForm(task_id="k3m9qa"), key="form:1")

    reply = await desk.press(token, form={"text": "mind *the* gap"})

    (shown,) = desk.world.post.cards.values()
    assert not any(isinstance(block, FormBlock) for block in shown.blocks)
    assert "mind *the* gap" in text_of(shown)
    assert reply.toast
