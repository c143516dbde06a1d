"""The live card of a task and the message that ends it, in every state."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from cards.actions import (
    OpenPage,
    PauseTask,
    ResumeTask,
    RetryTask,
    SetPriority,
    ShowLogs,
    ShowMessageForm,
    ShowTask,
    ShowWorkflowNameForm,
    StopTask,
)
from cards.catalog import catalog_for
from cards.formats import date_time
from cards.model import (
    ButtonsBlock,
    Card,
    CardTone,
    ChecklistBlock,
    ChecklistState,
    FileBlock,
    ImageBlock,
    NoteBlock,
    ProgressBlock,
    SelectBlock,
)
from cards.render import web
from cards.render.text import render
from cards.views.chat import answer_card
from cards.views.task_card import task_card, task_ended_card
from cards.views.tasks import task_detail_card
from storage.records.people import Language
from storage.records.tasks import (
    LiveStep,
    LiveToolCall,
    NodeStatus,
    Task,
    TaskControl,
    TaskStatus,
    TaskView,
)
from tests.builders import NOW, make_step, make_task, make_view

EN = catalog_for(Language.ENGLISH)
ZONE = ZoneInfo("Asia/Shanghai")
STEPS = (
    make_step("1", "Find the can"),
    make_step("2", "Fill it", NodeStatus.RUNNING),
    make_step("3", "Pour", NodeStatus.PENDING),
    make_step("4", "Put it back", NodeStatus.SKIPPED),
)

every_state = pytest.mark.parametrize("status", list(TaskStatus))
both = pytest.mark.parametrize("language", list(Language))


def live(task: Task) -> Card:
    return task_card(make_view(task, *STEPS), EN, now=NOW)


def actions(card: Card) -> list[type]:
    return [
        type(button.action)
        for block in card.blocks
        if isinstance(block, ButtonsBlock)
        for button in block.items
    ]


@both
@every_state
def test_every_state_has_its_card(status: TaskStatus, language: Language) -> None:
    words = catalog_for(language)
    view = make_view(make_task(status=status, summary="All wet."), *STEPS, plan="Use the can")

    card = task_card(view, words, now=NOW)

    assert "Water the plants" in card.title
    assert words(f"status.{status}") in card.summary
    assert "k3m9qa" in render(card).text


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (TaskStatus.PENDING, [PauseTask, ShowMessageForm, StopTask, ShowTask]),
        (TaskStatus.RUNNING, [PauseTask, ShowMessageForm, StopTask, ShowTask]),
        (TaskStatus.WAITING, [PauseTask, ShowMessageForm, StopTask, ShowTask]),
        (TaskStatus.PAUSED, [ResumeTask, ShowMessageForm, StopTask, ShowTask]),
        (TaskStatus.BLOCKED, [ResumeTask, ShowMessageForm, StopTask, ShowTask, ShowLogs]),
        (TaskStatus.COMPLETED, [ShowTask, ShowLogs, ShowWorkflowNameForm]),
        (TaskStatus.FAILED, [RetryTask, ShowTask, ShowLogs]),
        (TaskStatus.CANCELLED, [RetryTask, ShowTask, ShowLogs]),
    ],
)
def test_the_buttons_are_those_the_state_allows(status: TaskStatus, expected: list[type]) -> None:
    assert actions(live(make_task(status=status))) == expected


@every_state
def test_the_priority_can_be_changed_until_the_end(status: TaskStatus) -> None:
    selects = [b for b in live(make_task(status=status)).blocks if isinstance(b, SelectBlock)]

    assert bool(selects) is not status.is_final
    assert all(isinstance(select.action, SetPriority) for select in selects)


def test_a_pause_under_way_can_be_taken_back() -> None:
    pausing = live(make_task(status=TaskStatus.RUNNING, control=TaskControl.PAUSE))

    assert actions(pausing) == [ResumeTask, ShowMessageForm, StopTask, ShowTask]
    assert "Pauses after the current step" in render(pausing).text


def test_steps_and_progress_show_how_far_it_is() -> None:
    card = live(make_task(status=TaskStatus.RUNNING))

    progress = next(block for block in card.blocks if isinstance(block, ProgressBlock))
    checklist = next(block for block in card.blocks if isinstance(block, ChecklistBlock))
    assert (progress.percent, progress.label) == (50, "2/4 steps")
    assert [item.state for item in checklist.items] == [
        ChecklistState.DONE,
        ChecklistState.RUNNING,
        ChecklistState.PENDING,
        ChecklistState.SKIPPED,
    ]


def test_the_interrupted_step_of_a_paused_task_is_marked_paused() -> None:
    card = live(make_task(status=TaskStatus.PAUSED))

    checklist = next(block for block in card.blocks if isinstance(block, ChecklistBlock))
    assert checklist.items[1].state is ChecklistState.PAUSED


@pytest.mark.parametrize(
    ("ahead", "text"),
    [
        (0, "Next in the queue"),
        (1, "One task is"),
        (3, "3 tasks are"),
        (11, "More than 10 tasks are"),
    ],
)
def test_a_waiting_task_says_how_many_go_before_it(ahead: int, text: str) -> None:
    view = make_view(make_task(), ahead=ahead)

    assert text in render(task_card(view, EN, now=NOW)).text


def test_work_that_somebody_does_elsewhere_has_no_place_in_the_queue() -> None:
    shown = render(
        task_card(make_view(replace(make_task(), outside=True), ahead=0), EN, now=NOW)
    ).text

    assert "Next in the queue" not in shown


def test_time_and_money_are_on_the_card() -> None:
    text = render(live(make_task(status=TaskStatus.RUNNING))).text

    assert "5 min 00 s" in text
    assert "$0.0123" in text
    assert "12.3k tokens" in text


@pytest.mark.parametrize("status", [TaskStatus.FAILED, TaskStatus.BLOCKED])
def test_what_went_wrong_comes_with_what_to_do(status: TaskStatus) -> None:
    text = render(live(make_task(status=status, reason="The shed is locked."))).text

    assert text.count("The shed is locked.") == 1
    assert "/logs k3m9qa" in text


@both
def test_the_offline_backend_says_once_on_each_card_what_it_is(language: Language) -> None:
    words, note = catalog_for(language), EN("offline.note")
    view = make_view(
        make_task(
            status=TaskStatus.BLOCKED,
            reason=f"{'I cannot. ' * 15}\n\n{note}",
            summary=f"Wrote it.\n\n{note}",
        ),
        *STEPS,
        plan=f"4 steps\n\n{note}",
    )
    done = make_view(make_task(status=TaskStatus.COMPLETED, summary=view.task.summary), *STEPS)
    cards = (
        task_card(view, words, now=NOW),
        task_card(done, words, now=NOW),
        task_detail_card(view, words, now=NOW, zone=ZONE),
        answer_card(f"Hello\n\n{note}", words),
    )

    for card in cards:
        notes = [block for block in card.blocks if isinstance(block, NoteBlock)]
        assert [note.markdown for note in notes].count(words("offline.note")) == 1
    assert words("offline.note") not in str(task_ended_card(done, words, now=NOW, zone=ZONE))


@both
def test_where_a_model_is_needed_the_cards_lead_to_setup(language: Language) -> None:
    words = catalog_for(language)
    reason = f"{words('offline.cannot')}\n\n{words('offline.note')}"
    view = make_view(make_task(status=TaskStatus.BLOCKED, reason=reason), *STEPS)

    card = task_card(view, words, now=NOW)
    notice = task_ended_card(view, words, now=NOW, zone=ZONE)
    answer = answer_card(words("offline.cannot_answer"), words, can_connect=True)

    for each in (card, notice, answer):
        assert OpenPage in actions(each)
        assert words("offline.note") not in str(each), "the reason says as much"
        assert 'href="/dashboard/setup"' in web.render(each, words).html
    assert words("offline.next") in str(card)
    assert actions(answer_card(words("offline.cannot_answer"), words)) == []


@both
def test_cards_say_when_a_schedule_tries_it_again(language: Language) -> None:
    words = catalog_for(language)
    view = replace(make_view(make_task(status=TaskStatus.BLOCKED), *STEPS), retry_at=NOW)

    for card in (
        task_card(view, words, now=NOW, zone=ZONE),
        task_ended_card(view, words, now=NOW, zone=ZONE),
    ):
        assert words("task.retries", at=date_time(NOW, ZONE)) in str(card)


def test_the_step_a_task_is_stuck_at_is_marked() -> None:
    begun = replace(STEPS[1], status=NodeStatus.PENDING)
    card = task_card(make_view(make_task(status=TaskStatus.BLOCKED), STEPS[0], begun), EN, now=NOW)

    checklist = next(block for block in card.blocks if isinstance(block, ChecklistBlock))
    assert [item.state for item in checklist.items] == [ChecklistState.DONE, ChecklistState.FAILED]


def test_a_failure_without_a_reason_shows_the_last_steps_error() -> None:
    view = make_view(make_task(status=TaskStatus.FAILED), make_step(status=NodeStatus.FAILED))

    assert "The shed is locked." in render(task_card(view, EN, now=NOW)).text


def test_files_come_with_the_notice() -> None:
    step = make_step()
    step = type(step)(
        path="1", title="Draw", status=NodeStatus.DONE, files=("w/a.md", "w/b.png", "w/gone.txt")
    )
    view = make_view(make_task(status=TaskStatus.COMPLETED, summary="**All** wet."), step)

    card = task_ended_card(view, EN, now=NOW, zone=ZONE, sizes={"w/a.md": 12, "w/b.png": 34})

    assert FileBlock(path="w/a.md", name="a.md", size=12) in card.blocks
    assert ImageBlock(path="w/b.png", alt="b.png") in card.blocks
    assert "gone.txt" in render(card).text
    assert "All wet." in render(card).text
    assert card.tone is CardTone.GOOD


def test_the_card_becomes_the_result_and_the_notice_tells_it_in_short() -> None:
    report = "\n\n".join(f"Paragraph {n}. {'Watered. ' * 20}" for n in range(6))
    step = replace(make_step("1", "Draw", NodeStatus.DONE), files=("w/a.md",))
    view = make_view(make_task(status=TaskStatus.COMPLETED, summary=report), step)

    card = render(task_card(view, EN, now=NOW)).text
    notice = task_ended_card(view, EN, now=NOW, zone=ZONE)
    short = render(notice).text

    assert "Paragraph 5." in card
    assert "a.md" in card
    assert "Paragraph 0." in short
    assert "Paragraph 5." not in short
    assert actions(notice) == [], "what can be done is on the card"


def test_no_more_files_are_attached_than_people_can_take() -> None:
    paths = tuple(f"w/{n}.txt" for n in range(9))
    step = make_step()
    step = type(step)(path="1", title="Write", status=NodeStatus.DONE, files=paths)
    view = make_view(make_task(status=TaskStatus.COMPLETED), step)

    card = task_ended_card(view, EN, now=NOW, zone=ZONE, sizes=dict.fromkeys(paths, 1))

    assert len([block for block in card.blocks if isinstance(block, FileBlock)]) == 5
    assert "and 4 more" in render(card).text


@both
@pytest.mark.parametrize(
    ("status", "tone", "title"),
    [
        (TaskStatus.COMPLETED, CardTone.GOOD, "✅"),
        (TaskStatus.FAILED, CardTone.BAD, "❌"),
        (TaskStatus.BLOCKED, CardTone.BAD, "🔒"),
    ],
)
def test_an_end_has_a_notice_and_shows_its_steps_on_the_card(
    status: TaskStatus, tone: CardTone, title: str, language: Language
) -> None:
    view = make_view(make_task(status=status, summary="All wet.", reason="Locked."), *STEPS)

    card = task_ended_card(view, catalog_for(language), now=NOW, zone=ZONE)

    text = render(card).text
    assert card.tone is tone
    assert card.title.startswith(title)
    assert "Water the plants" in text
    assert "2/4" in text
    assert "2026-03-04 13:06" in text
    assert "Find the can (" in render(task_card(view, catalog_for(language), now=NOW)).text


def test_titles_of_the_reference_are_kept() -> None:
    zh = catalog_for(Language.CHINESE)
    done = make_view(make_task(status=TaskStatus.COMPLETED))
    failed = make_view(make_task(status=TaskStatus.FAILED))

    assert task_ended_card(done, zh, now=NOW, zone=ZONE).title == "✅ 任务已完成"
    assert task_ended_card(failed, zh, now=NOW, zone=ZONE).title == "❌ 任务失败"


def test_a_task_that_says_why_it_waits_is_not_also_said_to_be_next_in_line() -> None:
    view = make_view(replace(make_task(), status_reason="Paused for now"))

    text = render(task_card(view, EN, now=NOW)).text

    assert "Paused for now" in text
    assert "Next in the queue" not in text


@pytest.mark.parametrize("asked", [False, True])
def test_only_a_task_that_somebody_is_asked_about_waits_for_a_decision(asked: bool) -> None:
    reason = "" if asked else "Waiting until 18:00."
    task = replace(make_task(status=TaskStatus.WAITING, reason=reason), wake_at=NOW)
    step = replace(make_step("1", "Rest", NodeStatus.WAITING), awaits_person=asked)

    told = render(task_card(make_view(task, step), EN, now=NOW)).text

    assert ("decision" in told) is asked
    assert (EN("task.waiting_time") in told) is not asked


LIVE = LiveStep(
    path="1",
    plan=(("Look around", "completed"), ("Write it", "in_progress"), ("Test it", "pending")),
    calls=(
        LiveToolCall(id="a", title="Edit a.txt", succeeded=True, diff="--- a\n+++ b\n-one\n+two\n"),
        LiveToolCall(id="b", title="make test"),
    ),
    call_count=12,
    notes=(
        (
            "backend.fell_back",
            {"name": "codex", "instead": "offline", "why": "backend.cli_missing"},
        ),
    ),
)


def shown(live: LiveStep | None, language: Language = Language.ENGLISH) -> str:
    view: TaskView = replace(
        make_view(make_task(status=TaskStatus.RUNNING)), live_steps=(live,) if live else ()
    )
    return render(task_card(view, catalog_for(language), now=NOW)).text


@pytest.mark.parametrize("language", list(Language))
def test_its_own_list_what_it_does_now_and_the_details(language: Language) -> None:
    told = shown(LIVE, language)

    assert "Look around" in told
    assert "make test" in told
    assert "12" in told
    assert "+two" in told
    assert "codex" in told
    assert "backend.cli_missing" not in told


def test_a_long_list_is_shown_from_where_it_is() -> None:
    done = tuple((f"Done {n}", "completed") for n in range(30))
    live = LiveStep(path="1", plan=(*done, ("This one", "in_progress")))  # type: ignore[arg-type] # literals in a loop

    told = shown(live)

    assert "This one" in told
    assert "Done 29" in told
    assert "Done 1\n" not in told


def test_nothing_is_shown_where_nothing_is_told() -> None:
    assert shown(None) == shown(LiveStep(path="1"))
