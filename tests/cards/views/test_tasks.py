"""The live card of a task and the message that ends it, in every state."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from cards.actions import (
    AskMessage,
    PauseTask,
    ResumeTask,
    RetryTask,
    SetPriority,
    ShowLogs,
    ShowTask,
    StopTask,
)
from cards.model import (
    Buttons,
    Card,
    Checklist,
    CheckState,
    File,
    Image,
    Note,
    Progress,
    Select,
    Tone,
)
from cards.render.text import render
from cards.views.chat import answer_card
from cards.views.work.task_lists import detail_card
from cards.views.work.tasks import ending_card, task_card
from cards.words import words_for
from storage.records.people import Language
from storage.records.tasks import Control, NodeStatus, Task, TaskStatus
from tests.samples import NOW, a_step, a_task, a_view

EN = words_for(Language.ENGLISH)
ZONE = ZoneInfo("Asia/Shanghai")
STEPS = (
    a_step("1", "Find the can"),
    a_step("2", "Fill it", NodeStatus.RUNNING),
    a_step("3", "Pour", NodeStatus.PENDING),
    a_step("4", "Put it back", NodeStatus.SKIPPED),
)

every_state = pytest.mark.parametrize("status", list(TaskStatus))
both = pytest.mark.parametrize("language", list(Language))


def live(task: Task) -> Card:
    return task_card(a_view(task, *STEPS), EN, now=NOW)


def actions(card: Card) -> list[type]:
    return [
        type(button.action)
        for block in card.blocks
        if isinstance(block, Buttons)
        for button in block.items
    ]


@both
@every_state
def test_every_state_has_its_card(status: TaskStatus, language: Language) -> None:
    words = words_for(language)
    view = a_view(a_task(status=status, summary="All wet."), *STEPS, plan="Use the can")

    card = task_card(view, words, now=NOW)

    assert "Water the plants" in card.title
    assert words(f"status.{status}") in card.summary
    assert "k3m9qa" in render(card).text


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (TaskStatus.PENDING, [PauseTask, AskMessage, StopTask, ShowTask]),
        (TaskStatus.RUNNING, [PauseTask, AskMessage, StopTask, ShowTask]),
        (TaskStatus.WAITING, [PauseTask, AskMessage, StopTask, ShowTask]),
        (TaskStatus.PAUSED, [ResumeTask, AskMessage, StopTask, ShowTask]),
        (TaskStatus.BLOCKED, [ResumeTask, AskMessage, StopTask, ShowTask]),
        (TaskStatus.COMPLETED, [ShowTask, ShowLogs]),
        (TaskStatus.FAILED, [RetryTask, ShowTask]),
        (TaskStatus.CANCELLED, [RetryTask, ShowTask]),
    ],
)
def test_the_buttons_are_those_the_state_allows(status: TaskStatus, expected: list[type]) -> None:
    assert actions(live(a_task(status=status))) == expected


@every_state
def test_the_priority_can_be_changed_until_the_end(status: TaskStatus) -> None:
    selects = [b for b in live(a_task(status=status)).blocks if isinstance(b, Select)]

    assert bool(selects) is not status.is_final
    assert all(isinstance(select.action, SetPriority) for select in selects)


def test_a_pause_under_way_can_be_taken_back() -> None:
    pausing = live(a_task(status=TaskStatus.RUNNING, control=Control.PAUSE))

    assert actions(pausing) == [ResumeTask, AskMessage, StopTask, ShowTask]
    assert "step under way" in render(pausing).text


def test_steps_and_progress_show_how_far_it_is() -> None:
    card = live(a_task(status=TaskStatus.RUNNING))

    progress = next(block for block in card.blocks if isinstance(block, Progress))
    checklist = next(block for block in card.blocks if isinstance(block, Checklist))
    assert (progress.percent, progress.label) == (50, "2/4 steps")
    assert [item.state for item in checklist.items] == [
        CheckState.DONE,
        CheckState.RUNNING,
        CheckState.PENDING,
        CheckState.SKIPPED,
    ]


def test_the_interrupted_step_of_a_paused_task_is_marked_paused() -> None:
    card = live(a_task(status=TaskStatus.PAUSED))

    checklist = next(block for block in card.blocks if isinstance(block, Checklist))
    assert checklist.items[1].state is CheckState.PAUSED


@pytest.mark.parametrize(
    ("ahead", "text"),
    [(0, "Next in line"), (1, "One task goes"), (3, "3 tasks go"), (11, "More than 10 tasks go")],
)
def test_a_waiting_task_says_how_many_go_before_it(ahead: int, text: str) -> None:
    view = a_view(a_task(), ahead=ahead)

    assert text in render(task_card(view, EN, now=NOW)).text


def test_work_that_somebody_does_elsewhere_has_no_place_in_the_queue() -> None:
    shown = render(task_card(a_view(replace(a_task(), outside=True), ahead=0), EN, now=NOW)).text

    assert "Next in line" not in shown


def test_time_and_money_are_on_the_card() -> None:
    text = render(live(a_task(status=TaskStatus.RUNNING))).text

    assert "5 min 00 s" in text
    assert "$0.0123" in text
    assert "12.3k tokens" in text


@pytest.mark.parametrize("status", [TaskStatus.FAILED, TaskStatus.BLOCKED])
def test_what_went_wrong_comes_with_what_to_do(status: TaskStatus) -> None:
    text = render(live(a_task(status=status, reason="The shed is locked."))).text

    assert text.count("The shed is locked.") == 1
    assert "/logs k3m9qa" in text


@both
def test_the_offline_backend_says_once_on_each_card_what_it_is(language: Language) -> None:
    words, note = words_for(language), EN("offline.note")
    view = a_view(
        a_task(
            status=TaskStatus.BLOCKED,
            reason=f"{'I cannot. ' * 15}\n\n{note}",
            summary=f"Wrote it.\n\n{note}",
        ),
        *STEPS,
        plan=f"4 steps\n\n{note}",
    )
    done = a_view(a_task(status=TaskStatus.COMPLETED, summary=view.task.summary), *STEPS)
    cards = (
        task_card(view, words, now=NOW),
        ending_card(view, words, now=NOW, zone=ZONE),
        ending_card(done, words, now=NOW, zone=ZONE),
        detail_card(view, words, now=NOW, zone=ZONE),
        answer_card(f"Hello\n\n{note}", words),
    )

    for card in cards:
        notes = [block for block in card.blocks if isinstance(block, Note)]
        assert [note.markdown for note in notes].count(words("offline.note")) == 1
        assert render(card).text.count("OPENAI_BASE_URL") == 1


def test_the_step_a_task_is_stuck_at_is_marked() -> None:
    begun = replace(STEPS[1], status=NodeStatus.PENDING)
    card = task_card(a_view(a_task(status=TaskStatus.BLOCKED), STEPS[0], begun), EN, now=NOW)

    checklist = next(block for block in card.blocks if isinstance(block, Checklist))
    assert [item.state for item in checklist.items] == [CheckState.DONE, CheckState.FAILED]


def test_a_failure_without_a_reason_shows_the_last_steps_error() -> None:
    view = a_view(a_task(status=TaskStatus.FAILED), a_step(status=NodeStatus.FAILED))

    assert "The shed is locked." in render(task_card(view, EN, now=NOW)).text


def test_results_and_files_come_with_the_ending() -> None:
    step = a_step()
    step = type(step)(
        path="1", title="Draw", status=NodeStatus.DONE, files=("w/a.md", "w/b.png", "w/gone.txt")
    )
    view = a_view(a_task(status=TaskStatus.COMPLETED, summary="**All** wet."), step)

    card = ending_card(view, EN, now=NOW, zone=ZONE, sizes={"w/a.md": 12, "w/b.png": 34})

    assert File(path="w/a.md", name="a.md", size=12) in card.blocks
    assert Image(path="w/b.png", alt="b.png") in card.blocks
    assert "gone.txt" in render(card).text
    assert "All wet." in render(card).text
    assert card.tone is Tone.GOOD
    assert "All wet." not in render(task_card(view, EN, now=NOW)).text, "nothing is told twice"


def test_no_more_files_are_attached_than_people_can_take() -> None:
    paths = tuple(f"w/{n}.txt" for n in range(9))
    step = a_step()
    step = type(step)(path="1", title="Write", status=NodeStatus.DONE, files=paths)
    view = a_view(a_task(status=TaskStatus.COMPLETED), step)

    card = ending_card(view, EN, now=NOW, zone=ZONE, sizes=dict.fromkeys(paths, 1))

    assert len([block for block in card.blocks if isinstance(block, File)]) == 5
    assert "and 4 more" in render(card).text


@both
@pytest.mark.parametrize(
    ("status", "tone", "title"),
    [
        (TaskStatus.COMPLETED, Tone.GOOD, "✅"),
        (TaskStatus.FAILED, Tone.BAD, "❌"),
        (TaskStatus.BLOCKED, Tone.BAD, "🔒"),
    ],
)
def test_an_end_has_a_message_of_its_own(
    status: TaskStatus, tone: Tone, title: str, language: Language
) -> None:
    view = a_view(a_task(status=status, summary="All wet.", reason="Locked."), *STEPS)

    card = ending_card(view, words_for(language), now=NOW, zone=ZONE)

    text = render(card).text
    assert card.tone is tone
    assert card.title.startswith(title)
    assert "Water the plants" in text
    assert "2/4" in text
    assert "2026-03-04 13:06" in text
    assert "Find the can (" in text


def test_titles_of_the_reference_are_kept() -> None:
    zh = words_for(Language.CHINESE)
    done = a_view(a_task(status=TaskStatus.COMPLETED))
    failed = a_view(a_task(status=TaskStatus.FAILED))

    assert ending_card(done, zh, now=NOW, zone=ZONE).title == "✅ 任务完成"
    assert ending_card(failed, zh, now=NOW, zone=ZONE).title == "❌ 任务失败"


def test_a_task_that_says_why_it_waits_is_not_also_said_to_be_next_in_line() -> None:
    view = a_view(replace(a_task(), status_reason="Paused for now"))

    text = render(task_card(view, EN, now=NOW)).text

    assert "Paused for now" in text
    assert "Next in line" not in text


@pytest.mark.parametrize("asked", [False, True])
def test_only_a_task_that_somebody_is_asked_about_waits_for_a_decision(asked: bool) -> None:
    reason = "" if asked else "Waits until 18:00."
    task = replace(a_task(status=TaskStatus.WAITING, reason=reason), wake_at=NOW)
    step = replace(a_step("1", "Rest", NodeStatus.WAITING), asked=asked)

    told = render(task_card(a_view(task, step), EN, now=NOW)).text

    assert ("decision" in told) is asked
    assert (EN("task.waiting_time") in told) is not asked
