"""Which way a workflow goes: edges, branches that meet, ends, and edges that lead back."""

from __future__ import annotations

import pytest

from bot.engine.workflow.model.nodes import Case, Human, Join, OnError, OnLimit, Switch
from bot.engine.workflow.model.shape import Workflow
from storage.records.tasks import NodeStatus
from tests.bot.engine.workflow.routing.made import brings, edge, flow, step
from tests.bot.engine.workflow.routing.sim import START, Sim


def _score(n: int) -> dict[str, object]:
    return {"summary": f"score: {n}"}


def test_every_edge_that_holds_is_taken_and_the_one_without_condition_only_else() -> None:
    workflow = flow(
        "a high mid low",
        edge("a high", "outputs.a.score > 7"),
        edge("a mid", "outputs.a.score > 3"),
        "a low",
    )

    ways = {}
    for score in (9, 5, 1):
        sim = Sim(workflow, work=brings(a=_score(score)))
        assert sim.run() == "done"
        ways[score] = sim.begun[1:]

    assert ways == {9: ["high", "mid"], 5: ["mid"], 1: ["low"]}


def test_behind_a_condition_only_the_first_that_holds_is_taken() -> None:
    workflow = flow(
        ("a", step("c", "condition"), "high", "mid", "low"),
        "a c",
        edge("c high", "outputs.a.score > 7"),
        edge("c mid", "outputs.a.score > 3"),
        "c low",
    )

    sim = Sim(workflow, work=brings(a=_score(9)))

    assert sim.run() == "done"
    assert sim.begun == ["a", "high"]


def test_a_dead_end_stops_it_with_the_reason_and_keeps_what_the_step_brought() -> None:
    sim = Sim(flow("a b", edge("a b", "outputs.a.score > 7")), work=brings(a=_score(1)))

    assert sim.run() == "stuck: workflow.dead_end {'name': 'a'}"
    assert sim.runs["a"].output["summary"] == "score: 1"


def test_a_condition_that_speaks_of_what_nobody_knows_is_false_and_said() -> None:
    sim = Sim(flow("a b c", edge("a b", "outputs.nobody.ok"), "a c"))

    assert sim.run() == "done"
    assert sim.begun == ["a", "c"]
    assert any("nobody" in warning for warning in sim.warnings)


def test_names_with_dashes_are_known_with_underscores() -> None:
    workflow = flow(
        "run-it b",
        edge(
            "run-it b", "outputs.run_it.ok && outputs['run-it'].ok && nodeStates.run_it == 'done'"
        ),
    )

    sim = Sim(workflow, work=brings(**{"run-it": {"ok": True}}))

    assert sim.run() == "done"
    assert sim.begun == ["run-it", "b"]


def test_a_name_that_is_another_s_alias_stays_its_own() -> None:
    workflow = flow("a-b a_b c", "a-b c", edge("a_b c", "outputs.a_b.n == 2"))

    sim = Sim(workflow, work=brings(**{"a-b": {"n": 1}, "a_b": {"n": 2}}))

    assert sim.run() == "done"


def test_a_switch_goes_one_way_and_the_others_are_passed_over() -> None:
    cases = (Case(value=1, target="one"), Case(value=2, target="two"))
    switch = Switch(expression="outputs.a.n", cases=cases, default="other")
    nodes = ("a", step("s", "switch", switch), "one", "two", "other")
    workflow = flow(nodes, "a s", "s one", "s two", "s other")

    for n, way in ((1, "one"), (2, "two"), (3, "other")):
        sim = Sim(workflow, work=brings(a={"n": n}))

        assert sim.run() == "done"
        assert sim.begun == ["a", way]
        skipped = {path for path, run in sim.runs.items() if run.status is NodeStatus.SKIPPED}
        assert skipped == {"one", "two", "other"} - {way}


def test_a_switch_without_a_way_is_a_dead_end() -> None:
    switch = Switch(expression="'x'", cases=(Case(value=1, target="one"),))

    sim = Sim(flow((step("s", "switch", switch), "one"), "s one"))

    assert sim.run() == "stuck: workflow.dead_end {'name': 's'}"


def test_a_switch_that_leads_back_does_so_only_as_often_as_it_may() -> None:
    switch = Switch(expression="'again'", cases=(Case(value="again", target="a"),), default="b")
    workflow = flow(("a", step("s", "switch", switch), "b"), "a s", edge("s a", max_loops=2), "s b")

    sim = Sim(workflow)

    assert sim.run() == "done"
    assert sim.begun == ["a", "a#2", "a#3", "b#3"]


def _meeting(join: Join) -> Workflow:
    nodes = (step("p", "parallel"), "a", "b", "c", step("j", "join", join), "last")
    edges = ("p a", "p b", "p c", "a j", "b j", "c j", "j last")
    return flow(nodes, *edges, parallel=1)


@pytest.mark.parametrize(
    ("join", "before"),
    [(Join(), 3), (Join(mode="any"), 1), (Join(mode="n", n=2), 2), (Join(mode="n", n=3), 3)],
)
def test_a_join_goes_on_when_enough_branches_have_come(join: Join, before: int) -> None:
    sim = Sim(_meeting(join))

    assert sim.run() == "done"
    ended = {path: run.ended_at or START for path, run in sim.runs.items()}
    assert sum(ended[each] <= ended["j"] for each in ("a", "b", "c")) == before
    assert sim.begun.count("last") == 1


def test_a_join_of_more_than_can_come_says_where_it_ends() -> None:
    sim = Sim(_meeting(Join(mode="n", n=4)))

    assert sim.run() == "done"
    assert sim.runs["j"].status is NodeStatus.SKIPPED
    assert "last" not in sim.begun


def test_an_end_that_a_join_keeps_out_of_reach_is_told() -> None:
    nodes = (step("p", "parallel"), "a", step("j", "join", Join(mode="n", n=2)), step("e", "end"))

    sim = Sim(flow(nodes, "p a", "a j", "j e"))

    assert sim.run() == "stuck: workflow.dead_end {'name': 'a'}"


def test_a_join_of_all_does_not_wait_for_branches_that_cannot_come() -> None:
    nodes = ("a", "b", "c", step("j", "join"), "last")

    sim = Sim(flow(nodes, "a b", edge("a c", "false"), "b j", "c j", "j last"))

    assert sim.run() == "done"
    assert sim.begun == ["a", "b", "last"]


def test_branches_run_at_once_and_have_lanes_no_more_than_may() -> None:
    workflow = flow(
        (step("p", "parallel"), "a", "b", "c", "d"), "p a", "p b", "p c", "p d", parallel=3
    )

    sim = Sim(workflow)

    assert sim.run() == "done"
    assert sim.most_at_once == 3


def test_it_is_complete_when_every_end_is_settled_and_one_is_done() -> None:
    nodes = ("a", "b", step("e1", "end"), step("e2", "end"))

    both = Sim(flow(nodes, "a e1", "a b", "b e2"))
    one = Sim(flow(nodes, "a e1", edge("a b", "false"), "b e2"))

    assert both.run() == "done"
    assert both.done() == {"a", "b", "e1", "e2"}
    assert one.run() == "done"
    assert one.done() == {"a", "e1"}


def test_an_end_that_is_reached_does_not_wait_for_people_elsewhere() -> None:
    nodes = (step("p", "parallel"), "a", step("h", "human", Human(timeout=3_600)), step("e", "end"))

    sim = Sim(flow(nodes, "p a", "p h", "a e", parallel=2))

    assert sim.run() == "done"
    assert sim.runs["h"].status is NodeStatus.WAITING


_FIX = ("write", "review", "ship")


def _reviewed(on_limit: OnLimit = OnLimit.CONTINUE, most: int = 2) -> Workflow:
    return flow(
        _FIX,
        "write review",
        edge("review write", "!outputs.review.ok", max_loops=most, on_limit=on_limit),
        "review ship",
    )


def test_an_edge_back_starts_all_behind_it_anew_until_it_is_not_wanted() -> None:
    work = brings(review={"ok": False}, **{"review#2": {"ok": True}})

    sim = Sim(_reviewed(), work=work)

    assert sim.run() == "done"
    assert sim.begun == ["write", "review", "write#2", "review#2", "ship#2"]


@pytest.mark.parametrize(
    ("on_limit", "end"),
    [
        (OnLimit.CONTINUE, "done"),
        (OnLimit.FAIL, "stuck: workflow.edge_limit {'name': 'review'}"),
        (OnLimit.ASK, "done"),
    ],
)
def test_an_edge_back_that_is_used_up_goes_on_fails_or_asks(on_limit: OnLimit, end: str) -> None:
    sim = Sim(_reviewed(on_limit), work=brings(review={"ok": False}))

    assert sim.run() == end
    assert sim.begun.count("@ask:review#3") == (on_limit is OnLimit.ASK)
    assert ("ship#3" in sim.begun) == (on_limit is not OnLimit.FAIL)
    assert sum(path.startswith("write") for path in sim.begun) == 3


def test_a_last_step_that_only_leads_back_is_an_end_when_that_is_not_wanted() -> None:
    workflow = flow("write review", "write review", edge("review write", "false", max_loops=2))

    assert Sim(workflow).run() == "done"


@pytest.mark.parametrize("both", [False, True])
def test_a_bound_on_the_way_forward_bounds_the_circle(both: bool) -> None:
    workflow = flow(
        "write review fix ship",
        "write review",
        edge("review fix", "!outputs.review.ok", max_loops=2),
        edge("fix review", max_loops=5 if both else None),
        "review ship",
    )

    sim = Sim(workflow, work=brings(review={"ok": False}), crashes=0.3)

    assert sim.run() == "done"
    kept = list(dict.fromkeys(sim.begun))
    assert kept == ["write", "review", "fix", "review#2", "fix#2", "review#3", "ship#3"]


def test_it_leads_back_only_when_all_that_it_starts_anew_has_come_to_rest() -> None:
    workflow = flow(
        ("a", step("p", "parallel"), "slow", "quick"),
        "a p",
        "p slow",
        "p quick",
        edge("quick a", "loopCount < 1", max_loops=1),
        parallel=2,
    )
    sim = Sim(workflow, work=brings(quick={"n": 1}))
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
        workflow = flow(
            (step("a", on_error=on_error), "b", "c"),
            edge("a b", "has(outputs.a, 'error') && outputs.a.error == 'no way'"),
            "a c",
        )

        sim = Sim(workflow, work=brings(a="!no way"))

        assert sim.run() == "done"
        assert sim.runs["a"].status is status
        assert sim.begun == ["a", "b"]


def test_what_fails_for_good_stops_it_once_the_others_have_ended() -> None:
    workflow = flow((step("p", "parallel"), "a", "b", "c"), "p a", "p b", "b c", parallel=2)

    # By this seed the one that fails is the first to end.
    sim = Sim(workflow, work=brings(a="!no way"), seed=1)

    assert sim.run() == "failed: a: no way"
    assert "c" not in sim.begun
    assert not sim.flow.running


def test_a_no_that_somebody_gave_leads_the_other_way() -> None:
    nodes = ("a", step("h", "human"), "go", "stop")

    sim = Sim(flow(nodes, "a h", edge("h go", "outputs.h.approved"), "h stop"), yes=False)

    assert sim.run() == "done"
    assert sim.begun == ["a", "h", "stop"]
