"""Loops and foreach: rounds, names and results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bot.engine.workflow.definition import OnError, Workflow, WorkflowNode
from bot.engine.workflow.nodes.assign import AssignConfig
from bot.engine.workflow.nodes.contract import OnLimit
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.loop import LoopConfig
from bot.engine.workflow.nodes.shared_settings import VariableAssignment
from bot.engine.workflow.run_texts import render_step
from storage.records.tasks import NodeStatus
from tests.bot.engine.workflow.builders import make_edge, make_step, make_workflow, worker_returning
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator


def _loop_workflow(loop: LoopConfig, **told: Any) -> Workflow:
    return make_workflow((make_step("loop", "loop", loop), "a", "after"), "loop after", **told)


def _foreach_workflow(
    collection: str, *, on_error: OnError = OnError.FAIL, **told: Any
) -> Workflow:
    config = ForeachConfig(collection=collection, body=("a",), **told)
    return make_workflow(
        (make_step("each", "foreach", config, on_error=on_error), "a", "after"),
        "each after",
        parallel=3,
    )


def _recording(name: str, seen: list[Any]) -> Any:
    def work(_node: WorkflowNode, names: Mapping[str, Any], _path: str) -> str:
        seen.append(names.get(name))
        return "ok"

    return work


def test_a_loop_counts_from_its_beginning_to_its_end_in_strides() -> None:
    seen: list[Any] = []
    loop = LoopConfig(mode="for", body=("a",), init="1", end="7", step="3", var="k")

    sim = SchedulerSimulator(_loop_workflow(loop), work=_recording("k", seen))

    assert sim.run() == "done"
    assert seen == [1, 4, 7, None]
    assert sim.started == ["loop[0]/a", "loop[1]/a", "loop[2]/a", "after"]


@pytest.mark.parametrize(
    ("init", "end", "stride", "rounds"),
    [("3", "1", "-1", 3), ("1", "0", "1", 0), ("0", "1", "0.5", 3), ("'1'", "'2'", "1", 2)],
)
def test_a_loop_counts_down_and_in_fractions(init: str, end: str, stride: str, rounds: int) -> None:
    sim = SchedulerSimulator(
        _loop_workflow(LoopConfig(mode="for", body=("a",), init=init, end=end, step=stride))
    )

    assert sim.run() == "done"
    assert sim.runs["loop"].output["rounds"] == rounds


@pytest.mark.parametrize(
    ("loop", "key"),
    [
        (LoopConfig(mode="for", body=("a",), step="0"), "workflow.no_step"),
        (LoopConfig(mode="for", body=("a",), end="nobody"), "workflow.no_value"),
        (LoopConfig(mode="for", body=("a",), end="[1]"), "workflow.no_value"),
        (LoopConfig(mode="for", body=("a",), end="variables.huge"), "workflow.no_value"),
    ],
)
def test_a_loop_that_cannot_count_fails(loop: LoopConfig, key: str) -> None:
    sim = SchedulerSimulator(_loop_workflow(loop, variables={"huge": 10**400}))

    assert sim.run().startswith(f"failed: loop: {key}")


def test_while_asks_before_a_round_and_until_behind_it() -> None:
    quit_at_once = SchedulerSimulator(
        _loop_workflow(LoopConfig(mode="while", body=("a",), condition="false"))
    )
    once = SchedulerSimulator(
        _loop_workflow(LoopConfig(mode="until", body=("a",), condition="true"))
    )
    thrice = SchedulerSimulator(
        _loop_workflow(LoopConfig(mode="while", body=("a",), condition="loopCount < 3"))
    )

    assert quit_at_once.run() == once.run() == thrice.run() == "done"
    assert quit_at_once.started == ["after"]
    assert once.started == ["loop[0]/a", "after"]
    assert len(thrice.started) == 4


def test_a_loop_sees_what_its_last_round_brought() -> None:
    loop = LoopConfig(mode="until", body=("a",), condition="outputs.a.ok")
    work = worker_returning(a={"ok": False}, **{"loop[2]/a": {"ok": True}})

    sim = SchedulerSimulator(_loop_workflow(loop), work=work)

    assert sim.run() == "done"
    assert sim.runs["loop"].output == {"rounds": 3, "last": {"ok": True}}


@pytest.mark.parametrize(
    ("on_limit", "end"),
    [
        (OnLimit.FAIL, "failed: loop: workflow.loop_limit {'name': 'loop', 'n': 2}"),
        (OnLimit.CONTINUE, "done"),
        (OnLimit.ASK, "done"),
    ],
)
def test_a_loop_that_has_used_up_its_rounds_fails_goes_on_or_asks(
    on_limit: OnLimit, end: str
) -> None:
    loop = LoopConfig(
        mode="while", body=("a",), condition="true", max_iterations=2, on_limit=on_limit
    )

    sim = SchedulerSimulator(_loop_workflow(loop))

    assert sim.run() == end
    assert [path for path in sim.started if path.endswith("/a")] == ["loop[0]/a", "loop[1]/a"]
    assert ("@ask:loop" in sim.started) == (on_limit is OnLimit.ASK)


def test_a_variable_is_kept_from_round_to_round() -> None:
    count = VariableAssignment(variable="n", value="variables.n * 2", is_expression=True)
    loop = LoopConfig(mode="while", body=("count",), condition="variables.n < 50")
    nodes = (
        make_step("loop", "loop", loop),
        make_step("count", "assign", AssignConfig(assignments=(count,))),
    )

    sim = SchedulerSimulator(make_workflow(nodes, variables={"n": 1}), crashes=0.5)

    assert sim.run() == "done"
    assert sim.runs["@variables"].output == {"n": 64}


def test_foreach_does_its_body_for_each_item_in_order() -> None:
    seen: list[Any] = []

    sim = SchedulerSimulator(_foreach_workflow("['x', 'y', 'z']"), work=_recording("item", seen))

    assert sim.run() == "done"
    assert seen == ["x", "y", "z", None]
    assert sim.max_parallel == 1
    assert [each["summary"] for each in sim.runs["each"].output["results"]] == ["ok"] * 3


def test_rounds_at_once_are_no_more_than_may_and_results_stand_in_the_order_of_the_items() -> None:
    def work(node: WorkflowNode, names: Mapping[str, Any], _path: str) -> Mapping[str, Any]:
        return {"n": names["item"] * 10, "of": names["total"]} if node.id == "a" else {}

    sim = SchedulerSimulator(
        _foreach_workflow("[1, 2, 3, 4, 5]", mode="parallel", max_parallel=2), work=work, seed=3
    )

    assert sim.run() == "done"
    assert sim.max_parallel == 2
    results = sim.runs["each"].output["results"]
    assert [each["n"] for each in results] == [10, 20, 30, 40, 50]
    assert all(each["of"] == 5 for each in results)


def test_the_entries_of_a_group_are_its_items() -> None:
    seen: list[Any] = []
    workflow = replace(_foreach_workflow("variables.group"), variables={"group": {"k": 1, "l": 2}})

    assert SchedulerSimulator(workflow, work=_recording("item", seen)).run() == "done"
    assert seen[:2] == [{"key": "k", "value": 1}, {"key": "l", "value": 2}]


def test_nothing_to_go_through_is_done_at_once() -> None:
    sim = SchedulerSimulator(_foreach_workflow("[]"))

    assert sim.run() == "done"
    assert sim.runs["each"].output == {"results": [], "total": 0}


@pytest.mark.parametrize(
    ("collection", "key"),
    [
        ("5", "workflow.no_list"),
        ("'text'", "workflow.no_list"),
        ("nobody", "workflow.no_value"),
        ("variables.million", "workflow.too_many_items"),
    ],
)
def test_what_is_no_list_or_too_long_a_one_fails_before_anything_is_begun(
    collection: str, key: str
) -> None:
    workflow = replace(_foreach_workflow(collection), variables={"million": [0] * 1_000_000})

    sim = SchedulerSimulator(workflow)

    assert sim.run().startswith(f"failed: each: {key}")
    assert sim.started == []


def test_a_round_that_fails_is_noted_where_that_is_forgiven() -> None:
    work = worker_returning(**{"each[1]/a": "!no way"})
    for on_error in (OnError.SKIP, OnError.CONTINUE):
        sim = SchedulerSimulator(_foreach_workflow("[1, 2, 3]", on_error=on_error), work=work)

        assert sim.run() == "done"
        results = sim.runs["each"].output["results"]
        assert results[1] == {"error": "no way"}
        assert [set(each) for each in results[::2]] == [{"summary", "result", "_raw"}] * 2

    strict = SchedulerSimulator(_foreach_workflow("[1, 2, 3]"), work=work)
    assert strict.run() == "failed: each[1]/a: no way"
    assert "each[2]/a" not in strict.started


def _nested_workflow(inner: OnError) -> Workflow:
    loop = LoopConfig(mode="for", body=("each",), end="1")
    each = ForeachConfig(collection="[1, 2]", body=("a",))
    outer = ForeachConfig(collection="['x', 'y']", body=("loop",))
    nodes = (
        make_step("outer", "foreach", outer, on_error=OnError.CONTINUE),
        make_step("loop", "loop", loop),
        make_step("each", "foreach", each, on_error=inner),
        "a",
    )
    return make_workflow(nodes)


def test_rounds_within_rounds_within_rounds() -> None:
    sim = SchedulerSimulator(_nested_workflow(OnError.FAIL), crashes=0.3)

    assert sim.run() == "done"
    done = [path for path in sim.done() if path.endswith("/a")]
    assert len(done) == 8
    assert "outer[1]/loop[1]/each[1]/a" in done


def test_only_the_round_of_who_forgives_is_lost_and_those_inside_it_stop() -> None:
    work = worker_returning(**{"outer[0]/loop[0]/each[0]/a": "!no way"})

    sim = SchedulerSimulator(_nested_workflow(OnError.FAIL), work=work, crashes=0.3, seed=5)

    assert sim.run() == "done"
    assert sim.runs["outer"].output["results"][0] == {"error": "no way"}
    assert not any(path.startswith("outer[0]/loop[0]/each[1]") for path in sim.runs)
    assert "outer[1]/loop[1]/each[1]/a" in sim.done()


def test_a_dead_end_in_a_body_stops_it_unless_that_is_forgiven() -> None:
    for on_error, end in ((OnError.CONTINUE, "done"), (OnError.FAIL, "stuck: workflow.dead_end")):
        config = ForeachConfig(collection="[1, 2]", body=("a", "b"))
        nodes = (make_step("each", "foreach", config, on_error=on_error), "a", "b")

        sim = SchedulerSimulator(make_workflow(nodes, make_edge("a b", "item == 2")))

        assert sim.run().startswith(end)
        assert ("each[1]/b" in sim.started) == (on_error is OnError.CONTINUE)


def test_results_stay_of_fair_size_and_depth_whatever_rounds_bring() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    work = worker_returning(a={"text": "x" * 300_000, "more": ["y" * 100_000] * 20, "deep": deep})

    sim = SchedulerSimulator(_foreach_workflow("[" + ",".join("1" * 50) + "]"), work=work)

    assert sim.run() == "done"
    assert len(json.dumps(sim.runs["each"].output)) < 2_000_000


def test_a_loop_that_is_tried_again_keeps_the_rounds_it_has_had() -> None:
    loop = LoopConfig(mode="while", body=("a",), condition="true", max_iterations=2)
    sim = SchedulerSimulator(_loop_workflow(loop))
    assert sim.run().startswith("failed: loop: workflow.loop_limit")

    again = replace(sim.runs["loop"], status=NodeStatus.PENDING)
    sim.scheduler.record_run(again)
    sim.runs["loop"] = again
    kept = len(sim.started)

    assert sim.run().startswith("failed: loop: workflow.loop_limit")
    assert len(sim.started) == kept


def test_a_step_that_is_tried_again_goes_on_from_there() -> None:
    tries: list[str] = []

    def work(_node: WorkflowNode, _names: Mapping[str, Any], path: str) -> str:
        tries.append(path)
        return "!not yet" if tries.count(path) == 1 and path == "each[1]/a" else "ok"

    sim = SchedulerSimulator(_foreach_workflow("[1, 2, 3]"), work=work)
    assert sim.run() == "failed: each[1]/a: not yet"

    again = replace(sim.runs["each[1]/a"], status=NodeStatus.PENDING)
    sim.scheduler.record_run(again)
    sim.runs["each[1]/a"] = again

    assert sim.run() == "done"
    assert tries == ["each[0]/a", "each[1]/a", "each[1]/a", "each[2]/a", "after"]


def test_the_filled_text_of_a_step_has_a_bound_and_says_what_is_left_out() -> None:
    giant = WorkflowNode(id="a", detail="{{variables.x}}" * 10, title="{{variables.x}}")
    sim = SchedulerSimulator(make_workflow((giant,), variables={"x": "y" * 10_000}))
    place, node = next(iter(sim.scheduler.ready_steps()))

    done = render_step(sim.scheduler, place, node, sim.now)

    assert len(done.title) <= 500
    assert len(done.detail) < 60_100
    assert done.detail.endswith("[40000 more characters of this text are left out.]")


def test_an_edge_behind_an_assignment_sees_what_it_has_assigned() -> None:
    counts_up = VariableAssignment(variable="n", value="variables.n + 1", is_expression=True)
    nodes = ("a", make_step("count", "assign", AssignConfig(assignments=(counts_up,))), "last")
    back = make_edge("count a", "variables.n < 2", max_loops=9)

    sim = SchedulerSimulator(
        make_workflow(nodes, "a count", back, "count last", variables={"n": 0})
    )

    assert sim.run() == "done"
    assert sim.started == ["a", "a#2", "last#2"]
