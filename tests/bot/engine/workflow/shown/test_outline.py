"""A plan with branches as lines: what is shown, how deep, how far, and what is folded."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.engine.workflow.graph import Edge, Node, Workflow, linear
from bot.engine.workflow.model.nodes import Foreach, Loop, NodeType, OnError
from bot.engine.workflow.model.validate import validated
from bot.engine.workflow.shown.outline import Outline
from bot.engine.workflow.shown.window import MOST_LINES, window
from storage.records.tasks import NodeStatus, Rounds, Step
from tests.bot.engine.workflow.routing.sim import Sim
from tests.bot.engine.workflow.shown.samples import chained, report, step, until

LOUD = {NodeStatus.RUNNING, NodeStatus.WAITING, NodeStatus.FAILED}


def outline(moment: str = "", workflow: Workflow | None = None) -> Outline:
    known = workflow or report()
    return Outline(known, until(known, moment).runs)


def drawn(lines: Outline) -> list[str]:
    return [f"{'  ' * line.depth}{line.title}" for line in lines.lines()]


def line(lines: Outline, title: str) -> Step:
    return next(each for each in lines.lines() if each.title == title)


def test_before_the_start_the_plan_stands_with_its_branches() -> None:
    assert drawn(Outline(report(), {})) == [
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
    lines = Outline(report(), {})

    assert line(lines, "Fix what is wrong").branch == "rejected"
    assert line(lines, "Write about support").branch == ""
    assert line(lines, "Check the sales").branch is None
    assert line(lines, "Ann signs").branch is None


def test_of_a_foreach_the_rounds_that_run_now_are_shown_by_their_items() -> None:
    lines = outline("each[3]/read")

    assert line(lines, "Every letter").rounds == Rounds(done=3, at=5, total=5)
    assert line(lines, "Every letter").status is NodeStatus.RUNNING
    shown = [text.strip() for text in drawn(lines) if "letter from" in text]
    assert shown == [
        "Read the letter from Eve",
        "Sum up the letter from Eve",
        "Read the letter from Flo",
        "Sum up the letter from Flo",
    ]


def test_a_loop_that_is_through_is_one_line() -> None:
    lines = outline("review")

    assert line(lines, "Every letter").rounds == Rounds(done=5, at=5, total=5)
    assert not any("the letter from" in text for text in drawn(lines))


def test_a_counting_loop_says_which_round_it_is_in() -> None:
    lines = outline("polish#2[1]/page")

    assert line(lines, "Polish").rounds == Rounds(done=1, at=2, total=3, most=100)
    assert line(lines, "Polish page 2").status is NodeStatus.RUNNING


def test_a_loop_with_a_condition_says_how_many_rounds_it_may_have() -> None:
    body = Loop(mode="until", condition="false", body=("a",), max_iterations=4)
    nodes = (step("loop", "Again", type=NodeType.LOOP, config=body), step("a", "Try"))
    lines = outline("loop[1]/a", validated(Workflow(plan="", nodes=nodes)))

    assert line(lines, "Again").rounds == Rounds(done=1, at=2, most=4)


def test_what_was_come_back_to_says_how_often() -> None:
    lines = outline("bind#2")

    assert line(lines, "Review").round == 2
    assert line(lines, "Bind it").round == 1


def test_a_choice_names_the_way_that_was_taken_and_the_others_are_folded() -> None:
    lines = outline("bind#2")

    assert line(lines, "Large?").way == ("Print it",)
    assert line(lines, "Mail it").status is NodeStatus.SKIPPED
    assert line(lines, "Mail it").folded == 1
    assert "    Stamp it" not in drawn(lines)


def test_what_a_way_back_will_come_to_again_is_still_to_be_done() -> None:
    """While it is being mended, all behind the review is dead in the store."""
    lines = outline("fix")

    assert line(lines, "Ann signs").status is NodeStatus.PENDING
    assert lines.counted.done < lines.counted.total - 5


def test_who_is_waited_for_is_said_at_the_step() -> None:
    asked = Outline(report(), until(report(), "bind#2").runs, {"sign#2": ("Bo",), "bind#2": ()})

    # Those who are asked, where nobody has the name that the step says.
    assert line(asked, "Ann signs").waits_for == ("Bo",)
    assert line(asked, "Ann signs").status is NodeStatus.WAITING
    assert line(asked, "Bind it").asked
    assert line(asked, "Bind it").waits_for == ()


def test_a_question_whether_to_go_on_behind_a_loop_stands_at_the_loop() -> None:
    runs = until(report(), "polish#2[1]/page").runs
    asked = Outline(report(), runs, {"@ask:polish#2": ("Cy",)})

    assert line(asked, "Polish").waits_for == ("Cy",)


def test_rounds_that_failed_where_that_does_not_matter_are_counted() -> None:
    body = Foreach(collection="[1, 2, 3]", body=("a",))
    each = step("each", "Each", type=NodeType.FOREACH, config=body, on_error=OnError.CONTINUE)
    workflow = validated(Workflow(plan="", nodes=(each, step("a", "Try {{item}}"))))
    sim = Sim(workflow, work=lambda node, names, path: "!no" if names["item"] == 2 else "yes")

    assert sim.run() == "done"
    assert line(Outline(workflow, sim.runs), "Each").rounds == Rounds(
        done=3, failed=1, at=3, total=3
    )


def test_start_and_end_and_what_joins_branches_do_not_count() -> None:
    lines = Outline(report(), {})

    assert (lines.counted.done, lines.counted.total) == (0, 15)


def test_rounds_count_as_soon_as_it_is_known_how_many_they_are() -> None:
    assert outline("each[0]/read").counted.total == 15 + 4 * 2


def test_a_plan_without_steps_counts_nothing() -> None:
    assert Outline(Workflow(plan=""), {}).counted.total == 0


@settings(max_examples=40, deadline=None)
@given(turns=st.integers(0, 80), seed=st.integers(0, 50))
def test_at_any_moment_the_lines_and_the_counts_are_sound(turns: int, seed: int) -> None:
    sim = Sim(report(), seed=seed, crashes=0.1)
    ended = False
    for _ in range(turns):
        ended = ended or sim.turn() is not None
    lines = Outline(report(), sim.runs)
    shown = window(tuple(lines.lines()))

    assert 0 <= lines.counted.done <= lines.counted.total
    assert (lines.counted.done == lines.counted.total) is ended
    assert bool([*lines.left()]) is not ended
    assert len({each.path for each in lines.steps()}) == len([*lines.steps()])
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
        Step(path=str(n), title=str(n), status=status, depth=depths[n])
        for n, status in enumerate(statuses)
    ]
    shown = window(lines)

    assert len(shown.lines) <= MOST_LINES
    assert len(shown.lines) + shown.before + shown.behind == len(lines)
    assert len(shown.lines) == min(MOST_LINES, len(lines))
    if any(each.status in LOUD for each in lines):
        assert any(each.status in LOUD for each in shown.lines)


def test_what_runs_deep_in_a_long_plan_is_shown_under_what_holds_it() -> None:
    lines = [Step(path=str(n), title=str(n), status=NodeStatus.PENDING) for n in range(100)]
    lines[40] = replace(lines[40], title="loop", status=NodeStatus.RUNNING)
    for n in range(41, 90):
        lines[n] = replace(lines[n], depth=1, status=NodeStatus.DONE)
    lines[88] = replace(lines[88], title="deep", status=NodeStatus.RUNNING)

    titles = [each.title for each in window(lines).lines]

    assert "loop" in titles
    assert "deep" in titles


def test_steps_of_a_list_keep_the_order_they_are_written_in() -> None:
    workflow = linear("", [Node(id=f"n{n}", title=f"Step {n}") for n in range(5)])
    cut_off = replace(workflow, edges=workflow.edges[2:])

    assert [each.title for each in Outline(cut_off, {}).steps()] == [f"Step {n}" for n in range(5)]
    assert all(not each.depth for each in Outline(cut_off, {}).lines())


@pytest.mark.parametrize("wide", [True, False])
def test_a_very_large_plan_is_read_in_one_go(wide: bool) -> None:
    nodes = tuple(Node(id=f"n{n}", title=f"Step {n}") for n in range(3_000))
    if wide:
        edges = tuple(Edge(source="n0", target=f"n{n}") for n in range(1, 3_000))
    else:
        edges = chained(*(node.id for node in nodes))
    lines = Outline(Workflow(plan="", nodes=nodes, edges=edges), {})

    shown = window(tuple(lines.lines()))

    assert len(shown.lines) == MOST_LINES
    assert shown.before + shown.behind == 3_000 - MOST_LINES
