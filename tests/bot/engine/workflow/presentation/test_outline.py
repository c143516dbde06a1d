"""A plan with branches as lines: selection, indentation, progress and folding."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.workflow.definition import OnError, Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.loop import LoopConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.plan import linear_workflow
from bot.engine.workflow.presentation.outline import WorkflowOutline
from bot.engine.workflow.presentation.task_view import MAX_LINES, select_window
from bot.engine.workflow.validation import validate_workflow
from storage.records.tasks import LoopProgress, NodeStatus, TaskStep
from tests.bot.engine.workflow.presentation.sample_workflow import (
    chain_edges,
    report_workflow,
    run_until,
    sample_step,
)
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator

LOUD = {NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.FAILED}


def outline(moment: str = "", workflow: Workflow | None = None) -> WorkflowOutline:
    known = workflow or report_workflow()
    return WorkflowOutline(known, run_until(known, moment).runs)


def as_text(lines: WorkflowOutline) -> list[str]:
    return [f"{'  ' * line.depth}{line.title}" for line in lines.lines()]


def line(lines: WorkflowOutline, title: str) -> TaskStep:
    return next(each for each in lines.lines() if each.title == title)


def test_before_the_start_the_plan_stands_with_its_branches() -> None:
    assert as_text(WorkflowOutline(report_workflow(), {})) == [
        "Gather the figures",
        "  Write about sales",
        "  Check the sales",
        "  Write about support",
        "  Every letter",
        "    Read the letter ‹item›",
        "    Sum up the letter ‹item›",
        "Review",
        "  Fix what is wrong",
        "Large?",
        "  Print it",
        "  Bind it",
        "  Mail it",
        "  Stamp it",
        "Ann signs",
        "Polish",
        "  Polish page ‹i›",
        "Let it rest",
    ]


def test_a_branch_is_marked_where_it_begins_with_what_leads_into_it() -> None:
    lines = WorkflowOutline(report_workflow(), {})

    assert line(lines, "Fix what is wrong").branch == "rejected"
    assert line(lines, "Write about support").branch == ""
    assert line(lines, "Check the sales").branch is None
    assert line(lines, "Ann signs").branch is None


def test_of_a_foreach_the_rounds_that_run_now_are_shown_by_their_items() -> None:
    lines = outline("each[3]/read")

    assert line(lines, "Every letter").rounds == LoopProgress(done=3, current=5, total=5)
    assert line(lines, "Every letter").status is NodeStatus.RUNNING
    shown = [text.strip() for text in as_text(lines) if "letter from" in text]
    assert shown == [
        "Read the letter from Eve",
        "Sum up the letter from Eve",
        "Read the letter from Flo",
        "Sum up the letter from Flo",
    ]


def test_a_loop_that_is_through_is_one_line() -> None:
    lines = outline("review")

    assert line(lines, "Every letter").rounds == LoopProgress(done=5, current=5, total=5)
    assert not any("the letter from" in text for text in as_text(lines))


def test_a_counting_loop_says_which_round_it_is_in() -> None:
    lines = outline("polish#2[1]/page")

    assert line(lines, "Polish").rounds == LoopProgress(done=1, current=2, total=3, max_total=100)
    assert line(lines, "Polish page 2").status is NodeStatus.RUNNING


def test_a_loop_with_a_condition_says_how_many_rounds_it_may_have() -> None:
    body = LoopConfig(mode="until", condition="false", body=("a",), max_iterations=4)
    nodes = (sample_step("loop", "Again", type=NodeType.LOOP, config=body), sample_step("a", "Try"))
    lines = outline("loop[1]/a", validate_workflow(Workflow(plan="", nodes=nodes)))

    assert line(lines, "Again").rounds == LoopProgress(done=1, current=2, max_total=4)


def test_what_was_come_back_to_says_how_often() -> None:
    lines = outline("bind#2")

    assert line(lines, "Review").round == 2
    assert line(lines, "Bind it").round == 1


def test_a_choice_names_the_way_that_was_taken_and_the_others_are_folded() -> None:
    lines = outline("bind#2")

    assert line(lines, "Large?").chosen_branches == ("Print it",)
    assert line(lines, "Mail it").status is NodeStatus.SKIPPED
    assert line(lines, "Mail it").folded_steps == 1
    assert "    Stamp it" not in as_text(lines)


def test_what_a_way_back_will_come_to_again_is_still_to_be_done() -> None:
    """While the fix runs, everything behind the review is stored as unreached."""
    lines = outline("fix")

    assert line(lines, "Ann signs").status is NodeStatus.PENDING
    assert lines.step_count.done < lines.step_count.total - 5


def test_who_is_waited_for_is_said_at_the_step() -> None:
    asked = WorkflowOutline(
        report_workflow(),
        run_until(report_workflow(), "bind#2").runs,
        {"sign#2": ("Bo",), "bind#2": ()},
    )

    # Those who are asked, where nobody has the name that the step says.
    assert line(asked, "Ann signs").awaited_names == ("Bo",)
    assert line(asked, "Ann signs").status is NodeStatus.WAITING
    assert line(asked, "Bind it").awaits_person
    assert line(asked, "Bind it").awaited_names == ()


def test_a_question_whether_to_go_on_behind_a_loop_stands_at_the_loop() -> None:
    runs = run_until(report_workflow(), "polish#2[1]/page").runs
    asked = WorkflowOutline(report_workflow(), runs, {"@ask:polish#2": ("Cy",)})

    assert line(asked, "Polish").awaited_names == ("Cy",)


def test_rounds_that_failed_where_that_does_not_matter_are_counted() -> None:
    body = ForeachConfig(collection="[1, 2, 3]", body=("a",))
    each = sample_step(
        "each", "Each", type=NodeType.FOREACH, config=body, on_error=OnError.CONTINUE
    )
    workflow = validate_workflow(Workflow(plan="", nodes=(each, sample_step("a", "Try {{item}}"))))
    sim = SchedulerSimulator(
        workflow, work=lambda node, names, path: "!no" if names["item"] == 2 else "yes"
    )

    assert sim.run() == "done"
    assert line(WorkflowOutline(workflow, sim.runs), "Each").rounds == LoopProgress(
        done=3, failed=1, current=3, total=3
    )


def test_start_and_end_and_what_joins_branches_do_not_count() -> None:
    lines = WorkflowOutline(report_workflow(), {})

    assert (lines.step_count.done, lines.step_count.total) == (0, 15)


def test_rounds_count_as_soon_as_it_is_known_how_many_they_are() -> None:
    assert outline("each[0]/read").step_count.total == 15 + 4 * 2


def test_a_plan_without_steps_counts_nothing() -> None:
    assert WorkflowOutline(Workflow(plan=""), {}).step_count.total == 0


@settings(max_examples=40, deadline=None)
@given(turns=st.integers(0, 80), seed=st.integers(0, 50))
def test_at_any_moment_the_lines_and_the_counts_are_sound(turns: int, seed: int) -> None:
    sim = SchedulerSimulator(report_workflow(), seed=seed, crashes=0.1)
    ended = False
    for _ in range(turns):
        ended = ended or sim.turn() is not None
    lines = WorkflowOutline(report_workflow(), sim.runs)
    shown = select_window(tuple(lines.lines()))

    assert 0 <= lines.step_count.done <= lines.step_count.total
    assert (lines.step_count.done == lines.step_count.total) is ended
    assert bool([*lines.remaining_steps()]) is not ended
    assert len({each.path for each in lines.all_steps()}) == len([*lines.all_steps()])
    assert {each.path for each in shown.lines} <= {each.path for each in lines.lines()}
    assert not any("{{" in each.title for each in lines.lines())


@given(
    statuses=st.lists(st.sampled_from(list(NodeStatus)), min_size=1, max_size=300),
    depths=st.lists(st.integers(0, 4), min_size=300, max_size=300),
)
def test_of_a_long_plan_a_card_shows_what_goes_on_and_counts_the_rest(
    statuses: list[NodeStatus], depths: list[int]
) -> None:
    lines = [
        TaskStep(path=str(n), title=str(n), status=status, depth=depths[n])
        for n, status in enumerate(statuses)
    ]
    shown = select_window(lines)

    assert len(shown.lines) <= MAX_LINES
    assert len(shown.lines) + shown.hidden_before + shown.hidden_after == len(lines)
    assert len(shown.lines) == min(MAX_LINES, len(lines))
    if any(each.status in LOUD for each in lines):
        assert any(each.status in LOUD for each in shown.lines)


def test_what_runs_deep_in_a_long_plan_is_shown_under_what_holds_it() -> None:
    lines = [TaskStep(path=str(n), title=str(n), status=NodeStatus.PENDING) for n in range(100)]
    lines[40] = replace(lines[40], title="loop", status=NodeStatus.RUNNING)
    for n in range(41, 90):
        lines[n] = replace(lines[n], depth=1, status=NodeStatus.DONE)
    lines[88] = replace(lines[88], title="deep", status=NodeStatus.RUNNING)

    titles = [each.title for each in select_window(lines).lines]

    assert "loop" in titles
    assert "deep" in titles


def test_steps_of_a_list_keep_the_order_they_are_written_in() -> None:
    workflow = linear_workflow("", [WorkflowNode(id=f"n{n}", title=f"Step {n}") for n in range(5)])
    cut_off = replace(workflow, edges=workflow.edges[2:])

    assert [each.title for each in WorkflowOutline(cut_off, {}).all_steps()] == [
        f"Step {n}" for n in range(5)
    ]
    assert all(not each.depth for each in WorkflowOutline(cut_off, {}).lines())


@pytest.mark.parametrize("wide", [True, False])
def test_a_very_large_plan_is_read_in_one_go(wide: bool) -> None:
    nodes = tuple(WorkflowNode(id=f"n{n}", title=f"Step {n}") for n in range(3_000))
    if wide:
        edges = tuple(WorkflowEdge(source="n0", target=f"n{n}") for n in range(1, 3_000))
    else:
        edges = chain_edges(*(node.id for node in nodes))
    lines = WorkflowOutline(Workflow(plan="", nodes=nodes, edges=edges), {})

    shown = select_window(tuple(lines.lines()))

    assert len(shown.lines) == MAX_LINES
    assert shown.hidden_before + shown.hidden_after == 3_000 - MAX_LINES
