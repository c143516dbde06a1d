"""/next, /resume without an id, /plan, /subtask, and work that is only kept here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cards.catalog import catalog_for
from storage.records.people import Language
from storage.records.task_logs import LogMatch
from storage.records.tasks import NodeStatus, TaskPriority, TaskStatus, TaskView, UsageTotals
from tests.builders import make_step, make_task
from tests.handlers.router_harness import RouterHarness, text_of

RUNNING = make_task(status=TaskStatus.RUNNING)
URGENT = make_task("u9", title="Fire", priority=TaskPriority.URGENT)
STUCK = make_task("stuck1", TaskStatus.BLOCKED, title="Roof")
PAUSED = make_task("p4used", TaskStatus.PAUSED, title="Paint")


async def test_next_says_keep_going_where_the_first_is_in_progress() -> None:
    desk = RouterHarness(RUNNING)
    desk.world.notebook.tasks = [RUNNING, PAUSED]

    reply = await desk.send_message("/next")

    assert "Keep going" in text_of(reply)
    assert "Paint" in text_of(reply)
    assert reply.data is not None
    assert reply.data["advice"] == "keep"
    assert [task["id"] for task in reply.data["queue"]] == ["p4used"]


async def test_next_says_switch_and_how_to_put_the_other_aside() -> None:
    desk = RouterHarness(RUNNING, URGENT)
    desk.world.notebook.tasks = [URGENT, RUNNING]

    reply = await desk.send_message("/next")

    assert "Switch to" in text_of(reply)
    assert "/interrupt k3m9qa" in text_of(reply)
    assert reply.data is not None
    assert (reply.data["advice"], reply.data["current"]["id"]) == ("switch", "k3m9qa")


async def test_next_with_nothing_to_do_says_how_to_begin() -> None:
    reply = await RouterHarness().send_message("/下一步", hint="en")

    assert "/run" in text_of(reply)
    assert reply.data == {"advice": "nothing", "task": None, "current": None, "queue": []}


async def test_resume_without_an_id_answers_five_questions_and_has_a_button() -> None:
    desk = RouterHarness(PAUSED)
    desk.world.notebook.tasks = [replace(PAUSED, stage="half the fence")]

    reply = await desk.send_message("/resume")

    text = text_of(reply)
    assert all(f"{n} · " in text for n in range(1, 6))
    assert "half the fence" in text
    assert "/resume p4used" in text
    assert desk.world.tasks.moves == []
    assert reply.data is not None
    assert reply.data["task"]["id"] == "p4used"


async def test_resume_with_nothing_to_take_up_says_so() -> None:
    reply = await RouterHarness().send_message("/resume")

    assert not reply.good
    assert "Nothing to resume" in text_of(reply)


async def test_a_plan_is_shown_with_numbers_to_name_its_steps_by() -> None:
    desk = RouterHarness(RUNNING)
    desk.world.tasks.views[RUNNING.id] = TaskView(
        task=RUNNING,
        plan="Can first.",
        steps=(make_step(), make_step("2", "Fill it", NodeStatus.PENDING)),
        spent=UsageTotals(),
    )

    reply = await desk.send_message("/plan k3m")

    assert "Can first." in text_of(reply)
    assert "2. Fill it" in text_of(reply)
    assert reply.data is not None
    assert [step["title"] for step in reply.data["steps"]] == ["Find the can", "Fill it"]


async def test_a_plan_is_written_and_says_who_goes_by_it() -> None:
    outside = replace(RUNNING, outside=True)
    for task, told in ((outside, ""), (RUNNING, "/replan"), (make_task(), "when it plans")):
        desk = RouterHarness(task)

        text = text_of(await desk.send_message("/plan k3m can, then water\nand rest"))

        assert desk.world.notebook.jottings[0].text == "can, then water\nand rest"
        assert told in text


async def test_subtasks_are_added_by_arrows_or_lines() -> None:
    desk = RouterHarness(RUNNING)

    await desk.send_message("/subtask add k3m dig → plant -> water")
    await desk.send_message("/子任务 添加 k3m 一\n二", hint="en")

    assert desk.world.notebook.calls == [
        ("add", "k3m9qa", "dig → plant → water"),
        ("add", "k3m9qa", "一 → 二"),
    ]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("build", "build"),
        ("build -s it links, all of it", "build it links, all of it"),
        ('"build" -s "it -s links"', "build it -s links"),
        ("build —summary done", "build done"),
    ],
)
async def test_a_subtask_is_done_with_or_without_a_summary(said: str, kept: str) -> None:
    desk = RouterHarness(RUNNING)

    reply = await desk.send_message(f"/subtask done k3m {said}")

    assert desk.world.notebook.calls == [("subtask done", "k3m9qa", kept)]
    assert "One subtask left" in text_of(reply)
    assert reply.data is not None
    assert (reply.data["subtask"], reply.data["left"]) == ("build", 1)


async def test_the_last_subtask_says_that_the_task_is_finished() -> None:
    text = text_of(await RouterHarness(RUNNING).send_message("/subtask done k3m test"))

    assert "the task is finished" in text


async def test_a_name_that_is_no_subtasks_is_answered_with_those_there_are() -> None:
    desk = RouterHarness(RUNNING)
    desk.world.tasks.views[RUNNING.id] = TaskView(
        task=RUNNING, plan="", steps=(make_step(title="Fill：it"),), spent=UsageTotals()
    )

    reply = await desk.send_message("/subtask done k3m nonsense")

    assert not reply.good
    assert "No such subtask: nonsense" in text_of(reply)
    assert "1. Fill：it" in text_of(reply)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("/subtask", "/subtask add id"),
        ("/subtask add k3m", "/subtask add id"),
        ("/subtask paint k3m fence", "/subtask add id"),
        ("/subtask add k3m → ->", "/subtask add id"),
        ("/subtask add k3m k3m9qa", "its own subtask"),
        ("/subtask done k3m nothing", "has no subtasks"),
    ],
)
async def test_nonsense_about_subtasks_is_refused(said: str, told: str) -> None:
    desk = RouterHarness(RUNNING)

    reply = await desk.send_message(said)

    assert told in text_of(reply)
    assert not reply.good
    assert desk.world.notebook.calls == []


async def test_a_subtasks_phase_names_what_is_done_about_it() -> None:
    desk = RouterHarness(RUNNING)

    await desk.send_message("/subtask phase k3m build linking now")
    await desk.send_message('/subtask phase k3m "test" half way')

    assert desk.world.notebook.calls == [
        ("subtask phase", "k3m9qa", "build linking now"),
        ("subtask phase", "k3m9qa", "half way"),
    ]


async def test_work_of_ones_own_is_kept_with_what_is_known_already() -> None:
    desk = RouterHarness(RUNNING)
    await desk.send_message("/log k3m finding the shed key hangs at the door")
    entry = desk.world.notebook.entries[0]
    desk.world.notebook.recalled = [LogMatch(task=RUNNING, entry=entry)]

    reply = await desk.send_message("/run --self -p urgent Sort the shed")

    new = desk.world.tasks.created[0]
    assert (new.outside, new.instruction, new.priority) == (
        True,
        "Sort the shed",
        TaskPriority.URGENT,
    )
    assert "You do the work" in text_of(reply)
    assert "the shed key" in text_of(reply)
    assert reply.data is not None
    assert reply.data["self"] is True
    assert [hit["title"] for hit in reply.data["recalled"]] == [RUNNING.title]


async def test_next_names_what_waits_for_a_person_also_where_nothing_else_is_to_do() -> None:
    desk = RouterHarness(STUCK)
    desk.world.notebook.stuck = [STUCK]

    text = text_of(await desk.send_message("/next"))

    assert "Waiting for you" in text
    assert "Roof" in text
    assert "Nothing to do" not in text


async def test_why_a_task_is_stuck_is_told_without_the_backends_note_on_itself() -> None:
    note = catalog_for(Language.ENGLISH)("offline.note")
    desk = RouterHarness(STUCK)
    desk.world.notebook.tasks = [replace(STUCK, status_reason=f"Put it in `quotes`.\n\n{note}")]

    text = text_of(await desk.send_message("/resume"))

    assert "Put it in" in text
    assert "Offline backend" not in text
    assert "*" not in text
