"""/self and /doctor: for owners in private; checks, problems, their tasks, and drive."""

from __future__ import annotations

from dataclasses import replace

from cards.actions import ProveButtons, StartRepairTask
from handlers.request import Reply
from storage.records.autonomy import GoalName, GoalState
from storage.records.system import SettingsReading
from tests.builders import NOW
from tests.fakes.self_check import make_incident
from tests.handlers.router_harness import RouterHarness, text_of


async def ask(desk: RouterHarness, text: str, who: str = "x-olga", chat: str = "c0") -> Reply:
    return await desk.send_message(text, who=who, chat=chat)


async def test_the_overview_has_one_line_each_for_health_and_drive() -> None:
    desk = RouterHarness()

    text = text_of(await ask(desk, "/self"))

    assert "Health" in text
    assert "1 problem" in text
    assert "1 of 3 goals is on" in text
    assert "976.6 KB of disk space" in text, "the open problem is listed"


async def test_a_check_says_what_is_wrong_and_what_to_do() -> None:
    desk = RouterHarness()

    reply = await ask(desk, "/self check")

    assert desk.world.self_check.checks == 1
    assert "Free some space" in text_of(reply)
    assert reply.data is not None
    assert reply.data["grade"] == "warn"


async def test_an_owners_press_creates_the_proposed_task_once() -> None:
    desk = RouterHarness()
    token = desk.world.post.add_button_card(StartRepairTask(incident_id=1), chat="c0")

    pressed = await desk.press(token, who="x-olga", chat="c0")
    typed = await ask(desk, "/self repair 1")

    assert "r3pair" in text_of(pressed)
    assert "r3pair" in text_of(typed)
    assert desk.world.self_check.tasks == ["r3pair"]


async def test_a_problem_that_is_over_or_unknown_gets_no_task() -> None:
    desk = RouterHarness()
    desk.world.self_check.incidents[1] = replace(make_incident(), ended_at=NOW)

    over = await ask(desk, "/self repair 1")
    unknown = await ask(desk, "/self repair 77")

    assert "No longer a problem" in text_of(over)
    assert "No problem 77" in text_of(unknown)
    assert desk.world.self_check.tasks == []


async def test_past_problems_are_listed() -> None:
    desk = RouterHarness()

    assert "– now" in text_of(await ask(desk, "/self history"))


async def test_drive_is_stopped_started_and_changed() -> None:
    desk = RouterHarness()
    states = desk.world.drive.states

    stopped = text_of(await ask(desk, "/self drive stop"))
    after_stop = states[GoalName.HEALTH_CHECK]
    await ask(desk, "/self drive start")
    after_start = states[GoalName.HEALTH_CHECK]
    await ask(desk, "/self drive enable cleanup")
    await ask(desk, "/self drive disable 体检")

    assert "stopped until" in stopped
    assert (after_stop, after_start) == (GoalState.STOPPED, GoalState.ON)
    assert states[GoalName.CLEANUP] is GoalState.ON
    assert states[GoalName.HEALTH_CHECK] is GoalState.DISABLED


async def test_a_goal_that_is_missing_or_not_available_is_refused() -> None:
    desk = RouterHarness()

    unknown = text_of(await ask(desk, "/self drive enable world-peace"))
    unavailable = text_of(await ask(desk, "/self drive enable evolve"))
    nonsense = text_of(await ask(desk, "/self drive dance"))

    assert "health-check, evolve, cleanup" in unknown
    assert "not available" in unavailable
    assert "/self" in nonsense


async def test_the_doctor_says_what_to_do_and_repairs_when_asked() -> None:
    desk = RouterHarness()

    reply = await ask(desk, "/doctor")
    await ask(desk, "/doctor fix")

    assert "1 thing to do" in text_of(reply)
    assert "Free some space" in text_of(reply)
    assert desk.world.doctor.fixed == [False, True]
    assert not (await ask(desk, "/doctor house")).good
    assert not (await ask(desk, "/doctor", who="x-mia", chat="c2")).good


async def test_a_press_on_the_doctors_card_is_its_proof() -> None:
    desk = RouterHarness()
    token = desk.world.post.add_button_card(ProveButtons(), chat="c0")

    pressed = await desk.press(token, who="x-olga", chat="c0")

    assert "This press arrived" in pressed.toast
    assert len(desk.world.doctor.presses) == 1


async def test_only_owners_see_it_and_only_in_private() -> None:
    desk = RouterHarness()

    member = await ask(desk, "/self check", who="x-ann", chat="c1")
    group = await ask(desk, "/self check", chat="g1")

    assert desk.world.self_check.checks == 0
    assert not member.good
    assert "private" in text_of(group)


async def test_an_owner_reads_the_settings_again_in_private() -> None:
    desk = RouterHarness()

    text = text_of(await ask(desk, "/reload"))

    assert "SHIFTBOSS_CAP_DAY" in text
    assert "After a restart" in text
    assert "SHIFTBOSS_RETENTION.spans_days" in text
    desk.world.settings.reading = SettingsReading(retry_seconds=7)
    assert "in 7 seconds" in text_of(await ask(desk, "/reload"))
    assert "CAP_DAY" not in text_of(await ask(desk, "/reload", who="x-ann", chat="c1"))
