"""Edges, branches, joins, ends and back edges."""

from __future__ import annotations

import pytest

from bot.engine.workflow.definition import OnError, Workflow
from bot.engine.workflow.nodes.contract import OnLimit
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.join import JoinConfig
from bot.engine.workflow.nodes.switch import SwitchCase, SwitchConfig
from bot.engine.workflow.run_texts import format_outputs, render_step
from storage.records.tasks import NodeStatus
from tests.bot.engine.workflow.builders import make_edge, make_step, make_workflow, worker_returning
from tests.bot.engine.workflow.scheduler_simulator import START, SchedulerSimulator


def _score(n: int) -> dict[str, object]:
    return {"summary": f"score: {n}"}


def test_every_edge_that_holds_is_taken_and_the_one_without_condition_only_else() -> None:
    workflow = make_workflow(
        "a high mid low",
        make_edge("a high", "outputs.a.score > 7"),
        make_edge("a mid", "outputs.a.score > 3"),
        "a low",
    )

    ways = {}
    for score in (9, 5, 1):
        sim = SchedulerSimulator(workflow, work=worker_returning(a=_score(score)))
        assert sim.run() == "done"
        ways[score] = sim.started[1:]

    assert ways == {9: ["high", "mid"], 5: ["mid"], 1: ["low"]}


def test_behind_a_condition_only_the_first_that_holds_is_taken() -> None:
    workflow = make_workflow(
        ("a", make_step("c", "condition"), "high", "mid", "low"),
        "a c",
        make_edge("c high", "outputs.a.score > 7"),
        make_edge("c mid", "outputs.a.score > 3"),
        "c low",
    )

    sim = SchedulerSimulator(workflow, work=worker_returning(a=_score(9)))

    assert sim.run() == "done"
    assert sim.started == ["a", "high"]


def test_a_dead_end_stops_it_with_the_reason_and_keeps_what_the_step_brought() -> None:
    sim = SchedulerSimulator(
        make_workflow("a b", make_edge("a b", "outputs.a.score > 7")),
        work=worker_returning(a=_score(1)),
    )

    assert sim.run() == "stuck: workflow.dead_end {'name': 'a'}"
    assert sim.runs["a"].output["summary"] == "score: 1"


def test_a_condition_that_speaks_of_what_nobody_knows_is_false_and_said() -> None:
    sim = SchedulerSimulator(make_workflow("a b c", make_edge("a b", "outputs.nobody.ok"), "a c"))

    assert sim.run() == "done"
    assert sim.started == ["a", "c"]
    assert any("nobody" in warning for warning in sim.warnings)


def test_names_with_dashes_are_known_with_underscores() -> None:
    workflow = make_workflow(
        "run-it b",
        make_edge(
            "run-it b", "outputs.run_it.ok && outputs['run-it'].ok && nodeStates.run_it == 'done'"
        ),
    )

    sim = SchedulerSimulator(workflow, work=worker_returning(**{"run-it": {"ok": True}}))

    assert sim.run() == "done"
    assert sim.started == ["run-it", "b"]


def test_a_name_that_is_another_s_alias_stays_its_own() -> None:
    workflow = make_workflow("a-b a_b c", "a-b c", make_edge("a_b c", "outputs.a_b.n == 2"))

    sim = SchedulerSimulator(workflow, work=worker_returning(**{"a-b": {"n": 1}, "a_b": {"n": 2}}))

    assert sim.run() == "done"


def test_a_switch_goes_one_way_and_the_others_are_passed_over() -> None:
    cases = (SwitchCase(value=1, target="one"), SwitchCase(value=2, target="two"))
    switch = SwitchConfig(expression="outputs.a.n", cases=cases, default="other")
    nodes = ("a", make_step("s", "switch", switch), "one", "two", "other")
    workflow = make_workflow(nodes, "a s", "s one", "s two", "s other")

    for n, way in ((1, "one"), (2, "two"), (3, "other")):
        sim = SchedulerSimulator(workflow, work=worker_returning(a={"n": n}))

        assert sim.run() == "done"
        assert sim.started == ["a", way]
        skipped = {path for path, run in sim.runs.items() if run.status is NodeStatus.SKIPPED}
        assert skipped == {"one", "two", "other"} - {way}


def test_a_switch_without_a_way_is_a_dead_end() -> None:
    switch = SwitchConfig(expression="'x'", cases=(SwitchCase(value=1, target="one"),))

    sim = SchedulerSimulator(make_workflow((make_step("s", "switch", switch), "one"), "s one"))

    assert sim.run() == "stuck: workflow.dead_end {'name': 's'}"


def test_a_switch_that_leads_back_does_so_only_as_often_as_it_may() -> None:
    switch = SwitchConfig(
        expression="'again'", cases=(SwitchCase(value="again", target="a"),), default="b"
    )
    workflow = make_workflow(
        ("a", make_step("s", "switch", switch), "b"), "a s", make_edge("s a", max_loops=2), "s b"
    )

    sim = SchedulerSimulator(workflow)

    assert sim.run() == "done"
    assert sim.started == ["a", "a#2", "a#3", "b#3"]


def _join_workflow(join: JoinConfig) -> Workflow:
    nodes = (make_step("p", "parallel"), "a", "b", "c", make_step("j", "join", join), "last")
    edges = ("p a", "p b", "p c", "a j", "b j", "c j", "j last")
    return make_workflow(nodes, *edges, parallel=1)


@pytest.mark.parametrize(
    ("join", "before"),
    [
        (JoinConfig(), 3),
        (JoinConfig(mode="any"), 1),
        (JoinConfig(mode="n", n=2), 2),
        (JoinConfig(mode="n", n=3), 3),
    ],
)
def test_a_join_goes_on_when_enough_branches_have_come(join: JoinConfig, before: int) -> None:
    sim = SchedulerSimulator(_join_workflow(join))

    assert sim.run() == "done"
    ended = {path: run.ended_at or START for path, run in sim.runs.items()}
    assert sum(ended[each] <= ended["j"] for each in ("a", "b", "c")) == before
    assert sim.started.count("last") == 1


def test_a_join_of_more_than_can_come_says_where_it_ends() -> None:
    sim = SchedulerSimulator(_join_workflow(JoinConfig(mode="n", n=4)))

    assert sim.run() == "done"
    assert sim.runs["j"].status is NodeStatus.SKIPPED
    assert "last" not in sim.started


def test_an_end_that_a_join_keeps_out_of_reach_is_told() -> None:
    nodes = (
        make_step("p", "parallel"),
        "a",
        make_step("j", "join", JoinConfig(mode="n", n=2)),
        make_step("e", "end"),
    )

    sim = SchedulerSimulator(make_workflow(nodes, "p a", "a j", "j e"))

    assert sim.run() == "stuck: workflow.dead_end {'name': 'a'}"


def test_a_join_of_all_does_not_wait_for_branches_that_cannot_come() -> None:
    nodes = ("a", "b", "c", make_step("j", "join"), "last")

    sim = SchedulerSimulator(
        make_workflow(nodes, "a b", make_edge("a c", "false"), "b j", "c j", "j last")
    )

    assert sim.run() == "done"
    assert sim.started == ["a", "b", "last"]


def test_branches_run_at_once_and_have_lanes_no_more_than_may() -> None:
    workflow = make_workflow(
        (make_step("p", "parallel"), "a", "b", "c", "d"), "p a", "p b", "p c", "p d", parallel=3
    )

    sim = SchedulerSimulator(workflow)

    assert sim.run() == "done"
    assert sim.max_parallel == 3


def test_it_is_complete_when_every_end_is_settled_and_one_is_done() -> None:
    nodes = ("a", "b", make_step("e1", "end"), make_step("e2", "end"))

    both = SchedulerSimulator(make_workflow(nodes, "a e1", "a b", "b e2"))
    one = SchedulerSimulator(make_workflow(nodes, "a e1", make_edge("a b", "false"), "b e2"))

    assert both.run() == "done"
    assert both.done() == {"a", "b", "e1", "e2"}
    assert one.run() == "done"
    assert one.done() == {"a", "e1"}


def test_an_end_that_is_reached_does_not_wait_for_people_elsewhere() -> None:
    nodes = (
        make_step("p", "parallel"),
        "a",
        make_step("h", "human", HumanConfig(timeout=3_600)),
        make_step("e", "end"),
    )

    sim = SchedulerSimulator(make_workflow(nodes, "p a", "p h", "a e", parallel=2))

    assert sim.run() == "done"
    assert sim.runs["h"].status is NodeStatus.WAITING


_FIX = ("write", "review", "ship")


def _review_workflow(on_limit: OnLimit = OnLimit.CONTINUE, most: int = 2) -> Workflow:
    return make_workflow(
        _FIX,
        "write review",
        make_edge("review write", "!outputs.review.ok", max_loops=most, on_limit=on_limit),
        "review ship",
    )


def test_an_edge_back_starts_all_behind_it_anew_until_it_is_not_wanted() -> None:
    work = worker_returning(review={"ok": False}, **{"review#2": {"ok": True}})

    sim = SchedulerSimulator(_review_workflow(), work=work)

    assert sim.run() == "done"
    assert sim.started == ["write", "review", "write#2", "review#2", "ship#2"]


@pytest.mark.parametrize(
    ("on_limit", "end"),
    [
        (OnLimit.CONTINUE, "done"),
        (OnLimit.FAIL, "stuck: workflow.edge_limit {'name': 'review'}"),
        (OnLimit.ASK, "done"),
    ],
)
def test_an_edge_back_that_is_used_up_goes_on_fails_or_asks(on_limit: OnLimit, end: str) -> None:
    sim = SchedulerSimulator(
        _review_workflow(on_limit), work=worker_returning(review={"ok": False})
    )

    assert sim.run() == end
    assert sim.started.count("@ask:review#3") == (on_limit is OnLimit.ASK)
    assert ("ship#3" in sim.started) == (on_limit is not OnLimit.FAIL)
    assert sum(path.startswith("write") for path in sim.started) == 3


def test_a_last_step_that_only_leads_back_is_an_end_when_that_is_not_wanted() -> None:
    workflow = make_workflow(
        "write review", "write review", make_edge("review write", "false", max_loops=2)
    )

    assert SchedulerSimulator(workflow).run() == "done"


@pytest.mark.parametrize("both", [False, True])
def test_a_bound_on_the_way_forward_bounds_the_circle(both: bool) -> None:
    workflow = make_workflow(
        "write review fix ship",
        "write review",
        make_edge("review fix", "!outputs.review.ok", max_loops=2),
        make_edge("fix review", max_loops=5 if both else None),
        "review ship",
    )

    sim = SchedulerSimulator(workflow, work=worker_returning(review={"ok": False}), crashes=0.3)

    assert sim.run() == "done"
    kept = list(dict.fromkeys(sim.started))
    assert kept == ["write", "review", "fix", "review#2", "fix#2", "review#3", "ship#3"]


def test_it_leads_back_only_when_all_that_it_starts_anew_has_come_to_rest() -> None:
    workflow = make_workflow(
        ("a", make_step("p", "parallel"), "slow", "quick"),
        "a p",
        "p slow",
        "p quick",
        make_edge("quick a", "loopCount < 1", max_loops=1),
        parallel=2,
    )
    sim = SchedulerSimulator(workflow, work=worker_returning(quick={"n": 1}))
    while "quick" not in sim.done():
        assert sim.turn() is None

    while "slow" not in sim.done():
        assert "a#2" not in sim.runs
        assert sim.turn() is None

    assert sim.run() == "done"
    assert {"a#2", "slow#2", "quick#2"} <= sim.done()


def test_what_is_left_out_or_forgiven_is_gone_on_behind() -> None:
    for on_error, status in (
        (OnError.SKIP, NodeStatus.SKIPPED),
        (OnError.CONTINUE, NodeStatus.DONE),
    ):
        workflow = make_workflow(
            (make_step("a", on_error=on_error), "b", "c"),
            make_edge("a b", "has(outputs.a, 'error') && outputs.a.error == 'no way'"),
            "a c",
        )

        sim = SchedulerSimulator(workflow, work=worker_returning(a="!no way"))

        assert sim.run() == "done"
        assert sim.runs["a"].status is status
        assert sim.started == ["a", "b"]


def test_what_fails_for_good_stops_it_once_the_others_have_ended() -> None:
    workflow = make_workflow(
        (make_step("p", "parallel"), "a", "b", "c"), "p a", "p b", "b c", parallel=2
    )

    # By this seed the one that fails is the first to end.
    sim = SchedulerSimulator(workflow, work=worker_returning(a="!no way"), seed=1)

    assert sim.run() == "failed: a: no way"
    assert "c" not in sim.started
    assert not sim.scheduler.running_paths


def test_a_no_that_somebody_gave_leads_the_other_way() -> None:
    nodes = ("a", make_step("h", "human"), "go", "stop")

    sim = SchedulerSimulator(
        make_workflow(nodes, "a h", make_edge("h go", "outputs.h.approved"), "h stop"),
        approves=False,
    )

    assert sim.run() == "done"
    assert sim.started == ["a", "h", "stop"]


def test_templates_are_filled_with_what_is_seen_from_that_round() -> None:
    told = "{{item}} of {{total}} by {{inputs.who}}: {{outputs.plan.score}}{{outputs.nobody}}"
    nodes = (
        "plan",
        make_step("each", "foreach", ForeachConfig(collection="['x', 'y']", body=("do",))),
        make_step("do", detail=told),
    )
    sim = SchedulerSimulator(
        make_workflow(nodes, "plan each", values={"who": "Ann"}),
        work=worker_returning(plan="score: 7"),
    )

    while "each[1]/do" not in {place.path for place, _ in sim.scheduler.ready_steps()}:
        assert sim.turn() is None
        sim.scheduler.advance(sim.now, 10)
    place, node = next(iter(sim.scheduler.ready_steps()))
    done = render_step(sim.scheduler, place, node, sim.now)

    assert done.id == "each[1]/do"
    assert done.detail == "y of 2 by Ann: 7"
    assert any("nobody" in warning for warning in sim.warnings)


def test_a_finished_workflow_gives_back_its_outputs_a_line_each() -> None:
    outputs = {"score": "outputs.a.score + 1", "missing": "outputs.nobody"}
    sim = SchedulerSimulator(
        make_workflow("a", outputs=outputs), work=worker_returning(a="score: 7")
    )

    assert sim.run() == "done"
    assert format_outputs(sim.scheduler, sim.now).splitlines() == ["score: 8", "missing: "]
