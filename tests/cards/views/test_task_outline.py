"""A plan with branches on a card: worded, indented and small enough on every platform."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cards.catalog import catalog_for
from cards.json_data import task_view_data
from cards.model import Card, ChecklistBlock, ChecklistState, CollapsibleBlock, ProgressBlock
from cards.render import telegram, text, web
from cards.render.feishu.card import render as feishu
from cards.render.text import render
from cards.views.journal import plan_card
from cards.views.task_card import task_card, task_ended_card
from cards.views.task_parts import is_plain_list
from cards.views.tasks import task_detail_card
from storage.records.people import Language
from storage.records.tasks import (
    SUBAGENTS_RUNNING_REASON,
    LiveStep,
    LiveToolCall,
    LoopProgress,
    NodeStatus,
    SubagentLine,
    SubagentStatus,
    TaskEta,
    TaskStatus,
    TaskStep,
    TaskView,
)
from tests.builders import NOW, make_step, make_task, make_view

EN = catalog_for(Language.ENGLISH)
ZONE = ZoneInfo("Asia/Shanghai")
both = pytest.mark.parametrize("language", list(Language))


def lines_of(*steps: TaskStep, language: Language = Language.ENGLISH, **more: Any) -> list[str]:
    view = replace(
        make_view(make_task(status=TaskStatus.RUNNING)), steps=steps, outline=steps, **more
    )
    return shown(task_card(view, catalog_for(language), now=NOW, zone=ZONE))


def shown(card: Card) -> list[str]:
    return text.render(card).text.splitlines()


def a_line(title: str, status: NodeStatus = NodeStatus.PENDING, **more: Any) -> TaskStep:
    return replace(make_step(title, title, status), **more)


def test_branches_are_indented_and_say_what_leads_into_them() -> None:
    lines = lines_of(
        a_line("Review", NodeStatus.DONE, chosen_branches=("Fix it",)),
        a_line("Fix it", NodeStatus.RUNNING, depth=1, branch="rejected"),
        a_line("Send it", depth=1, branch=""),
    )

    assert "✅ Review → Fix it" in lines
    assert "   📍 ↳ rejected: Fix it" in lines
    assert "   ○ ↳ Send it" in lines


@pytest.mark.parametrize(
    ("rounds", "told"),
    [
        (LoopProgress(), "📍 🔁 Polish"),
        (LoopProgress(total=7), "📍 🔁 Polish · 0/7"),
        (LoopProgress(done=3, current=4, total=7), "📍 🔁 Polish · 3/7"),
        (LoopProgress(done=3, failed=1, current=4, total=7), "📍 🔁 Polish · 3/7 · 1 failed"),
        (LoopProgress(done=1, current=2, max_total=5), "📍 🔁 Polish · round 2 of ≤ 5"),
        (LoopProgress(done=1, current=2), "📍 🔁 Polish · round 2"),
    ],
)
def test_a_loop_says_how_far_it_is(rounds: LoopProgress, told: str) -> None:
    assert told in lines_of(a_line("Polish", NodeStatus.RUNNING, rounds=rounds, kind="loop"))


@both
def test_who_is_waited_for_and_until_when(language: Language) -> None:
    words = catalog_for(language)
    soon = NOW + timedelta(hours=2)
    late = NOW + timedelta(days=3)
    lines = "\n".join(
        lines_of(
            a_line(
                "Sign",
                NodeStatus.WAITING,
                awaits_person=True,
                awaited_names=("Ann",),
                waits_until=soon,
            ),
            a_line("Choose", NodeStatus.WAITING, awaits_person=True, awaited_names=("Ann", "Bo")),
            a_line(
                "Crowd", NodeStatus.WAITING, awaits_person=True, awaited_names=("Ann", "Bo", "Cy")
            ),
            a_line("Allow", NodeStatus.WAITING, awaits_person=True),
            a_line("Rest", NodeStatus.WAITING, waits_until=late),
            language=language,
        )
    )

    ann = words("graph.waits_for", who="Ann")
    until = words("graph.until", at=f"{soon.astimezone(ZONE):%H:%M}")
    assert f"{ann} · {until}" in lines
    assert words("graph.waits_for", who=f"Ann{words('graph.or')}Bo") in lines
    assert words("graph.waits_for_many", who=f"Ann{words('graph.comma')}Bo") in lines
    assert words("graph.waits") in lines
    assert words("graph.until", at=f"{late.astimezone(ZONE):%Y-%m-%d %H:%M}") in lines


def test_what_is_left_out_and_folded_is_counted() -> None:
    lines = lines_of(
        a_line("Again", NodeStatus.DONE, round=3),
        a_line("Mail", NodeStatus.SKIPPED, folded_steps=2),
        lines_left_out=(12, 30),
    )

    assert "✅ 12 earlier steps" in lines
    assert "✅ Again ×3" in lines
    assert "⏭️ Mail +2" in lines
    assert "○ … and 30 more" in lines


def test_how_long_it_takes_stands_beside_how_far_it_is() -> None:
    view = replace(
        make_view(make_task(status=TaskStatus.RUNNING), a_line("a")),
        step_counts=(2, 9),
        eta=TaskEta(seconds=300, confidence=0.5, steps=7),
    )

    bar = next(b for b in task_card(view, EN, now=NOW).blocks if isinstance(b, ProgressBlock))

    assert (bar.percent, bar.label) == (22, "2/9 steps · ~5 min left")


def test_several_steps_at_once_are_told_in_a_line_each() -> None:
    steps = tuple(a_line(name, NodeStatus.RUNNING) for name in ("Read", "Sum"))
    live = tuple(
        LiveStep(path=name, call_count=4, calls=(LiveToolCall(id="1", title=f"open {name}.md"),))
        for name in ("Read", "Sum")
    )

    lines = lines_of(*steps, live_steps=live)

    assert "⚙️ Read: open Read.md" in lines
    assert "⚙️ Sum: open Sum.md" in lines
    assert "🔧 8 tool calls" in lines


def test_a_loop_whose_body_waits_for_a_person_waits_and_one_of_a_paused_task_rests() -> None:
    loop = a_line("Polish", NodeStatus.RUNNING, rounds=LoopProgress(current=1), kind="loop")

    def state(status: TaskStatus) -> ChecklistState:
        view = replace(make_view(make_task(status=status), loop), outline=(loop,))
        card = task_card(view, EN, now=NOW)
        return next(b for b in card.blocks if isinstance(b, ChecklistBlock)).items[0].state

    assert state(TaskStatus.RUNNING) is ChecklistState.RUNNING
    assert state(TaskStatus.WAITING) is ChecklistState.WAITING
    assert state(TaskStatus.PAUSED) is ChecklistState.PAUSED


def test_a_plan_is_numbered_only_where_it_is_a_list() -> None:
    flat = (a_line("one"), a_line("two"))
    deep = (a_line("one"), a_line("two", depth=1, branch=""))

    assert is_plain_list(flat)
    assert not is_plain_list(deep)
    view = make_view(make_task(), *flat)
    assert "○ 2. two" in shown(plan_card(replace(view, outline=flat), EN))
    assert "   ○ ↳ two" in shown(plan_card(replace(view, outline=deep), EN))


def largest(title: str) -> TaskView:
    """As much as there can be on one card."""
    steps = tuple(
        a_line(
            f"{title * 20} {n}",
            NodeStatus.RUNNING if n < 6 else NodeStatus.FAILED if n < 12 else NodeStatus.DONE,
            error=title * 30,
            depth=n % 6,
            branch=title * 8,
            chosen_branches=(title * 8,) * 3,
            round=1000,
            folded_steps=9999,
            rounds=LoopProgress(done=999, failed=999, current=1000, total=1000),
            awaits_person=True,
            awaited_names=(title * 8,) * 3,
            waits_until=NOW + timedelta(days=400),
            persona="reviewer",
        )
        for n in range(22)
    )
    live = tuple(
        LiveStep(
            path=step.path,
            call_count=9999,
            calls=tuple(LiveToolCall(id=str(n), title=title * 30) for n in range(8)),
        )
        for step in steps[:3]
    )
    view = make_view(make_task(status=TaskStatus.RUNNING, title=title * 20), plan=title * 200)
    return replace(view, steps=steps, outline=steps, lines_left_out=(9999, 9999), live_steps=live)


@both
@pytest.mark.parametrize("title", ["A long title ", "很长的标题", "<b>&*_[x](y)`"])
def test_the_largest_plan_fits_one_message_everywhere(title: str, language: Language) -> None:
    words = catalog_for(language)
    view = largest(title)

    card = task_card(view, words, now=NOW, zone=ZONE)
    ended = replace(view, task=replace(view.task, status=TaskStatus.COMPLETED))
    told = task_ended_card(ended, words, now=NOW, zone=ZONE)

    for each in (card, told):
        assert len(telegram.render(each, words).parts) == 1
        assert len(feishu(each, words).parts) == 1
        assert len(text.render(each).text) < 12_000
    assert 'data-depth="5"' in web.render(card, words).html


def test_depth_is_seen_on_every_platform() -> None:
    deep = (a_line("top", NodeStatus.DONE), a_line("below", depth=2))
    view = replace(make_view(make_task(status=TaskStatus.RUNNING), *deep), outline=deep)
    card = task_card(view, EN, now=NOW)

    assert "\u2003\u2003○ below" in "".join(
        getattr(each, "text", "") for each in telegram.render(card, EN).parts
    )
    assert "　　○ below" in json.dumps(feishu(card, EN).parts, ensure_ascii=False)
    assert "      ○ below" in text.render(card).text
    assert '<li data-state="pending" data-depth="2">' in web.render(card, EN).html


@pytest.mark.parametrize("status", [NodeStatus.DONE, NodeStatus.SKIPPED])
def test_a_step_that_failed_and_was_made_up_for_is_no_step_that_is_done(
    status: NodeStatus,
) -> None:
    lines = "\n".join(lines_of(a_line("Fetch", status, error="no such page")))

    assert "❌ Fetch" in lines
    assert EN("graph.made_up_for", why="no such page") in lines


def test_nothing_of_a_failed_task_is_under_way_and_the_loop_around_it_has_failed() -> None:
    steps = (
        a_line("Each", NodeStatus.RUNNING, rounds=LoopProgress(current=1, total=2)),
        replace(
            make_step("Each[0]/read", "Read", NodeStatus.PENDING),
            started_at=NOW,
            error="torn",
            depth=1,
        ),
        a_line("Rest", NodeStatus.WAITING, waits_until=NOW + timedelta(hours=1)),
    )
    view = replace(make_view(make_task(status=TaskStatus.FAILED)), steps=steps, outline=steps)

    checks = next(
        block
        for block in task_card(view, EN, now=NOW, zone=ZONE).blocks
        if isinstance(block, ChecklistBlock)
    ).items

    failed, paused = ChecklistState.FAILED, ChecklistState.PAUSED
    assert [check.state for check in checks] == [failed, failed, paused]
    assert not checks[2].detail


def test_whole_days_say_nothing_of_hours() -> None:
    eta = TaskEta(seconds=86_400, confidence=0.2, steps=3)

    assert "≈1 d " in "\n".join(lines_of(a_line("a"), a_line("b"), eta=eta)) + " "
    assert "0 h" not in "\n".join(lines_of(a_line("a"), a_line("b"), eta=eta))


@both
def test_one_task_in_full_shows_a_graph_as_its_card_does(language: Language) -> None:
    words = catalog_for(language)
    steps = (
        a_line(
            "Letters",
            NodeStatus.WAITING,
            kind="foreach",
            rounds=LoopProgress(done=1, current=2, total=3),
        ),
        replace(a_line("Read b", NodeStatus.RUNNING), depth=1, summary=""),
        a_line(
            "Sign",
            NodeStatus.WAITING,
            kind="human",
            awaits_person=True,
            awaited_names=("Ann", "Bo"),
        ),
    )
    view = replace(make_view(make_task(status=TaskStatus.RUNNING)), steps=steps, outline=steps)

    lines = shown(task_detail_card(view, words, now=NOW, zone=ZONE))

    live = shown(task_card(view, words, now=NOW, zone=ZONE))
    outlined = [line for line in live if any(each.title in line for each in steps)]
    assert len(outlined) >= 3
    assert set(outlined) <= set(lines)
    for raw in NodeStatus:
        assert not any(line.endswith(raw.value) for line in lines)


def test_what_the_steps_of_a_graph_brought_stands_below_them() -> None:
    done = replace(a_line("Read a", NodeStatus.DONE, depth=1), summary="page one")
    view = make_view(
        make_task(status=TaskStatus.COMPLETED), a_line("Letters", kind="foreach"), done
    )

    folded = [
        block
        for block in task_detail_card(view, EN, now=NOW, zone=ZONE).blocks
        if isinstance(block, CollapsibleBlock) and block.title == "Step results"
    ]

    assert "page one" in str(folded)


def test_programs_are_told_of_a_graph_in_the_engines_own_words() -> None:
    waits = a_line(
        "Sign", NodeStatus.WAITING, kind="human", awaits_person=True, awaited_names=("Ann",)
    )
    each = a_line(
        "Letters", NodeStatus.RUNNING, kind="foreach", rounds=LoopProgress(done=1, total=3)
    )

    told = task_view_data(make_view(make_task(), waits, each))["steps"]

    assert (told[0]["status"], told[0]["kind"], told[0]["waits_for"]) == (
        "waiting",
        "human",
        ["Ann"],
    )
    assert told[1]["rounds"] == {"done": 1, "at": 0, "total": 3, "most": None, "failed": 0}


def view_of(status: TaskStatus, *helpers: SubagentLine, reason: str = "") -> TaskView:
    task = replace(make_task(status=status), status_reason=reason)
    return replace(make_view(task), subagents=helpers)


def lines() -> tuple[SubagentLine, ...]:
    return tuple(SubagentLine(label=f"about {each}", status=each) for each in SubagentStatus)


@pytest.mark.parametrize("language", list(Language))
def test_each_is_shown_with_where_it_is(language: Language) -> None:
    words = catalog_for(language)
    view = view_of(TaskStatus.RUNNING, *lines())
    for card in (
        task_card(view, words, now=NOW),
        task_detail_card(view, words, now=NOW, zone=ZoneInfo("UTC")),
    ):
        told = render(card).text
        for status in SubagentStatus:
            assert f"about {status}" in told
            assert words(f"helpers.status.{status}") in told


@pytest.mark.parametrize("language", list(Language))
def test_who_waits_for_helpers_waits_for_no_decision(language: Language) -> None:
    words = catalog_for(language)
    view = view_of(TaskStatus.WAITING, *lines(), reason=SUBAGENTS_RUNNING_REASON)

    told = render(task_card(view, words, now=NOW)).text

    assert words(SUBAGENTS_RUNNING_REASON) in told
    assert SUBAGENTS_RUNNING_REASON not in told
    assert words("task.waiting") not in told


def test_many_are_counted() -> None:
    words = catalog_for(Language.ENGLISH)
    many = [SubagentLine(label=f"number {n}.", status=SubagentStatus.DONE) for n in range(13)]

    told = render(task_card(view_of(TaskStatus.RUNNING, *many), words, now=NOW)).text

    assert "and 3 more" in told
    assert "number 12." in told
    assert "number 2." not in told
