"""Reminders and jobs in chat: what is proposed, who may change it, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cards.actions import AnswerReminder, ControlSchedule, DecideSchedule
from handlers.ports import ChatAnswer, TaskProposal
from handlers.ports_autonomy import TimedRequest
from storage.records.people import ChatId, PersonId
from storage.records.schedules import (
    CronTiming,
    FiringState,
    MessageBody,
    MissedPolicy,
    OneTime,
    ScheduledFiring,
    ScheduleKind,
    ScheduleState,
    TaskBody,
    WorkflowBody,
)
from storage.records.tasks import TaskPriority
from tests.builders import NOW
from tests.fakes.schedules import make_firing, make_schedule
from tests.handlers.router_harness import RouterHarness, text_of

TOMORROW = OneTime(at=NOW + timedelta(days=1))
WEEKDAYS = CronTiming(expression="30 8 * * 1-5")


def desk_that_reads(text: str, subject: str, *, reminder: bool) -> RouterHarness:
    desk = RouterHarness()
    desk.world.schedules.requests[text] = TimedRequest(
        timing=TOMORROW, subject=subject, asks_reminder=reminder
    )
    return desk


async def test_a_message_that_asks_for_a_reminder_is_echoed_and_counts_once_confirmed() -> None:
    text = "remind me tomorrow to water the plants"
    desk = desk_that_reads(text, "water the plants", reminder=True)

    asked = await desk.send_message(text, message_id="m7")

    (new,) = desk.world.schedules.proposed
    assert (new.kind, new.body) == (ScheduleKind.REMINDER, MessageBody(text="water the plants"))
    assert (new.owner_id, new.chat_id, new.reply_to) == (PersonId("ann"), ChatId("c1"), "m7")
    assert "water the plants" in text_of(asked)
    assert not desk.world.schedules.fires("s1")
    assert desk.world.talk.questions == [], "no model is asked"

    await desk.press(desk.world.post.token("reply:1", DecideSchedule))
    assert desk.world.schedules.fires("s1")


async def test_a_message_that_asks_for_work_later_becomes_a_job() -> None:
    text = "every weekday at 8:30 send me the news"
    desk = desk_that_reads(text, "send me the news", reminder=False)

    await desk.send_message(text)

    (new,) = desk.world.schedules.proposed
    assert (new.kind, new.body) == (ScheduleKind.JOB, TaskBody(instruction="send me the news"))
    assert desk.world.tasks.created == []


async def test_without_a_model_a_reminder_at_no_time_is_told_what_is_missing() -> None:
    desk = RouterHarness()

    assert "can't read a time" in text_of(await desk.send_message("remind me twice a week to run"))
    assert desk.world.talk.questions == []


async def test_what_a_model_understood_is_proposed_by_the_persons_own_words() -> None:
    desk = RouterHarness()
    desk.world.schedules.timings["every Monday at 9"] = WEEKDAYS
    proposal = TaskProposal(
        title="Report",
        text="Write the report",
        priority=TaskPriority.NORMAL,
        requested_time="every Monday at 9",
        computed_time="0 7 * * *",
    )
    desk.world.talk.answers = [ChatAnswer(text="", proposal=proposal)]

    await desk.send_message("could you do the report each week, say Mondays?")

    (new,) = desk.world.schedules.proposed
    assert (new.timing, new.title) == (WEEKDAYS, "Report")


async def test_options_of_a_job_are_read_and_rubbish_in_them_is_refused() -> None:
    desk = RouterHarness()
    desk.world.schedules.timings["0 9 * * 1"] = WEEKDAYS
    flags = '--missed ask --retries 3 --cap "0.50 USD" --zone Europe/Berlin --quiet --fresh'
    await desk.send_message(f"/schedule add {flags} 0 9 * * 1 clean up")

    (new,) = desk.world.schedules.proposed
    assert (new.missed, new.retries, new.cap) == (MissedPolicy.ASK, 3, "0.50 USD")
    assert (new.zone, new.respects_quiet_hours, new.use_memory) == ("Europe/Berlin", True, False)

    for wrong, said in (
        ("--missed maybe", "Unknown option: maybe"),
        ("--retries many", "Not a number of retries: many"),
        ("--cap lots", "Not a cap: lots"),
        ("0 9 * * 1 --quiet", "Options go before the time"),
    ):
        text = text_of(await desk.send_message(f"/schedule add {wrong} 0 9 * * 1 clean up"))
        assert said in text
    assert len(desk.world.schedules.proposed) == 1


async def test_a_workflow_is_scheduled_with_its_inputs_checked_now() -> None:
    desk = RouterHarness()
    desk.world.schedules.timings["0 9 * * 1"] = WEEKDAYS

    refused = await desk.send_message("/schedule add --workflow nope 0 9 * * 1")
    assert desk.world.schedules.proposed == []
    assert "nope" in text_of(refused)

    await desk.send_message("/schedule add --workflow review 0 9 * * 1")
    (new,) = desk.world.schedules.proposed
    assert isinstance(new.body, WorkflowBody)
    assert new.body.name == "review"


@pytest.mark.parametrize("change", ["pause", "resume", "delete"])
async def test_only_its_person_and_owners_change_a_schedule(change: str) -> None:
    desk = RouterHarness()
    desk.world.schedules.add(make_schedule(owner_id=PersonId("olga"), chat_id=ChatId("c0")))

    refused = await desk.send_message(f"/schedule {change} sch4dl")
    assert desk.world.schedules.all["sch4dl"].state is ScheduleState.ACTIVE
    assert not text_of(refused).startswith("✅")

    await desk.send_message(f"/schedule {change} sch4dl", who="x-olga", chat="c0")
    expected = {"pause": "paused", "resume": "active", "delete": "ended"}[change]
    assert desk.world.schedules.all["sch4dl"].state == expected


async def test_a_run_that_was_left_out_is_not_called_started() -> None:
    desk = RouterHarness()
    assert "Started once" in text_of(await desk.send_message("/schedule run sch4dl"))

    desk.world.schedules.last = make_firing(
        state=FiringState.SKIPPED, note="schedule.skipped_running"
    )
    told = text_of(await desk.send_message("/schedule run sch4dl"))
    assert "Not started: the previous run had not ended" in told
    assert "Started once" not in told


async def test_the_list_has_buttons_that_draw_it_anew() -> None:
    desk = RouterHarness()
    listed = await desk.send_message("/schedule")
    assert "Water the plants" in text_of(listed)

    reply = await desk.press(desk.world.post.token("reply:1", ControlSchedule))

    assert reply.in_place
    assert desk.world.schedules.all["sch4dl"].state is ScheduleState.PAUSED


async def test_a_reminder_is_snoozed_under_its_press() -> None:
    desk = RouterHarness()
    desk.world.schedules.firings[1] = ScheduledFiring(
        schedule=make_schedule(), firing=make_firing()
    )
    token = desk.world.post.add_button_card(AnswerReminder(firing_id=1, snooze_minutes=10))
    reply = await desk.press(token)

    ((firing, delay, _),) = desk.world.schedules.snoozes
    assert (firing, delay) == (1, timedelta(minutes=10))
    assert reply.in_place
    assert desk.world.schedules.firings[1].firing.state is FiringState.DONE


async def test_a_time_without_work_is_a_question_about_usage() -> None:
    desk = RouterHarness()
    desk.world.schedules.timings["tomorrow"] = replace(TOMORROW)
    assert "/remind" in text_of(await desk.send_message("/remind tomorrow"))
    assert "/remind" in text_of(await desk.send_message("/remind"))
    assert desk.world.schedules.proposed == []
