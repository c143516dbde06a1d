"""Loops and foreach: what runs again, what it sees, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bot.engine.workflow.model.nodes import Assign, Assignment, Foreach, Loop, OnError, OnLimit
from bot.engine.workflow.model.shape import Node, Workflow
from bot.engine.workflow.routing.seen import as_done
from storage.records.tasks import NodeStatus
from tests.bot.engine.workflow.routing.made import brings, edge, flow, step
from tests.bot.engine.workflow.routing.sim import Sim


def _looped(loop: Loop, **told: Any) -> Workflow:
    return flow((step("loop", "loop", loop), "a", "after"), "loop after", **told)


def _each(collection: str, *, on_error: OnError = OnError.FAIL, **told: Any) -> Workflow:
    config = Foreach(collection=collection, body=("a",), **told)
    return flow(
        (step("each", "foreach", config, on_error=on_error), "a", "after"),
        "each after",
        parallel=3,
    )


def _noting(name: str, seen: list[Any]) -> Any:
    def work(_node: Node, names: Mapping[str, Any], _path: str) -> str:
        seen.append(names.get(name))
        return "ok"

    return work


def test_a_loop_counts_from_its_beginning_to_its_end_in_strides() -> None:
    seen: list[Any] = []
    loop = Loop(mode="for", body=("a",), init="1", end="7", step="3", var="k")

    sim = Sim(_looped(loop), work=_noting("k", seen))

    assert sim.run() == "done"
    assert seen == [1, 4, 7, None]
    assert sim.begun == ["loop[0]/a", "loop[1]/a", "loop[2]/a", "after"]


@pytest.mark.parametrize(
    ("init", "end", "stride", "rounds"),
    [("3", "1", "-1", 3), ("1", "0", "1", 0), ("0", "1", "0.5", 3), ("'1'", "'2'", "1", 2)],
)
def test_a_loop_counts_down_and_in_fractions(init: str, end: str, stride: str, rounds: int) -> None:
    sim = Sim(_looped(Loop(mode="for", body=("a",), init=init, end=end, step=stride)))

    assert sim.run() == "done"
    assert sim.runs["loop"].output["rounds"] == rounds


@pytest.mark.parametrize(
    ("loop", "key"),
    [
        (Loop(mode="for", body=("a",), step="0"), "workflow.no_step"),
        (Loop(mode="for", body=("a",), end="nobody"), "workflow.no_value"),
        (Loop(mode="for", body=("a",), end="[1]"), "workflow.no_value"),
        (Loop(mode="for", body=("a",), end="variables.huge"), "workflow.no_value"),
    ],
)
def test_a_loop_that_cannot_count_fails(loop: Loop, key: str) -> None:
    sim = Sim(_looped(loop, variables={"huge": 10**400}))

    assert sim.run().startswith(f"failed: loop: {key}")


def test_while_asks_before_a_round_and_until_behind_it() -> None:
    quit_at_once = Sim(_looped(Loop(mode="while", body=("a",), condition="false")))
    once = Sim(_looped(Loop(mode="until", body=("a",), condition="true")))
    thrice = Sim(_looped(Loop(mode="while", body=("a",), condition="loopCount < 3")))

    assert quit_at_once.run() == once.run() == thrice.run() == "done"
    assert quit_at_once.begun == ["after"]
    assert once.begun == ["loop[0]/a", "after"]
    assert len(thrice.begun) == 4


def test_a_loop_sees_what_its_last_round_brought() -> None:
    loop = Loop(mode="until", body=("a",), condition="outputs.a.ok")
    work = brings(a={"ok": False}, **{"loop[2]/a": {"ok": True}})

    sim = Sim(_looped(loop), work=work)

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
    loop = Loop(mode="while", body=("a",), condition="true", max_iterations=2, on_limit=on_limit)

    sim = Sim(_looped(loop))

    assert sim.run() == end
    assert [path for path in sim.begun if path.endswith("/a")] == ["loop[0]/a", "loop[1]/a"]
    assert ("@ask:loop" in sim.begun) == (on_limit is OnLimit.ASK)


def test_a_variable_is_kept_from_round_to_round() -> None:
    count = Assignment(variable="n", value="variables.n * 2", is_expression=True)
    loop = Loop(mode="while", body=("count",), condition="variables.n < 50")
    nodes = (step("loop", "loop", loop), step("count", "assign", Assign(assignments=(count,))))

    sim = Sim(flow(nodes, variables={"n": 1}), crashes=0.5)

    assert sim.run() == "done"
    assert sim.runs["@variables"].output == {"n": 64}


def test_foreach_does_its_body_for_each_item_in_order() -> None:
    seen: list[Any] = []

    sim = Sim(_each("['x', 'y', 'z']"), work=_noting("item", seen))

    assert sim.run() == "done"
    assert seen == ["x", "y", "z", None]
    assert sim.most_at_once == 1
    assert [each["summary"] for each in sim.runs["each"].output["results"]] == ["ok"] * 3


def test_rounds_at_once_are_no_more_than_may_and_results_stand_in_the_order_of_the_items() -> None:
    def work(node: Node, names: Mapping[str, Any], _path: str) -> Mapping[str, Any]:
        return {"n": names["item"] * 10, "of": names["total"]} if node.id == "a" else {}

    sim = Sim(_each("[1, 2, 3, 4, 5]", mode="parallel", max_parallel=2), work=work, seed=3)

    assert sim.run() == "done"
    assert sim.most_at_once == 2
    results = sim.runs["each"].output["results"]
    assert [each["n"] for each in results] == [10, 20, 30, 40, 50]
    assert all(each["of"] == 5 for each in results)


def test_the_entries_of_a_group_are_its_items() -> None:
    seen: list[Any] = []
    workflow = replace(_each("variables.group"), variables={"group": {"k": 1, "l": 2}})

    assert Sim(workflow, work=_noting("item", seen)).run() == "done"
    assert seen[:2] == [{"key": "k", "value": 1}, {"key": "l", "value": 2}]


def test_nothing_to_go_through_is_done_at_once() -> None:
    sim = Sim(_each("[]"))

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
    workflow = replace(_each(collection), variables={"million": [0] * 1_000_000})

    sim = Sim(workflow)

    assert sim.run().startswith(f"failed: each: {key}")
    assert sim.begun == []


def test_a_round_that_fails_is_noted_where_that_is_forgiven() -> None:
    work = brings(**{"each[1]/a": "!no way"})
    for on_error in (OnError.SKIP, OnError.CONTINUE):
        sim = Sim(_each("[1, 2, 3]", on_error=on_error), work=work)

        assert sim.run() == "done"
        results = sim.runs["each"].output["results"]
        assert results[1] == {"error": "no way"}
        assert [set(each) for each in results[::2]] == [{"summary", "result", "_raw"}] * 2

    strict = Sim(_each("[1, 2, 3]"), work=work)
    assert strict.run() == "failed: each[1]/a: no way"
    assert "each[2]/a" not in strict.begun


def _nested(inner: OnError) -> Workflow:
    loop = Loop(mode="for", body=("each",), end="1")
    each = Foreach(collection="[1, 2]", body=("a",))
    outer = Foreach(collection="['x', 'y']", body=("loop",))
    nodes = (
        step("outer", "foreach", outer, on_error=OnError.CONTINUE),
        step("loop", "loop", loop),
        step("each", "foreach", each, on_error=inner),
        "a",
    )
    return flow(nodes)


def test_rounds_within_rounds_within_rounds() -> None:
    sim = Sim(_nested(OnError.FAIL), crashes=0.3)

    assert sim.run() == "done"
    done = [path for path in sim.done() if path.endswith("/a")]
    assert len(done) == 8
    assert "outer[1]/loop[1]/each[1]/a" in done


def test_only_the_round_of_who_forgives_is_lost_and_those_inside_it_stop() -> None:
    work = brings(**{"outer[0]/loop[0]/each[0]/a": "!no way"})

    sim = Sim(_nested(OnError.FAIL), work=work, crashes=0.3, seed=5)

    assert sim.run() == "done"
    assert sim.runs["outer"].output["results"][0] == {"error": "no way"}
    assert not any(path.startswith("outer[0]/loop[0]/each[1]") for path in sim.runs)
    assert "outer[1]/loop[1]/each[1]/a" in sim.done()


def test_a_dead_end_in_a_body_stops_it_unless_that_is_forgiven() -> None:
    for on_error, end in ((OnError.CONTINUE, "done"), (OnError.FAIL, "stuck: workflow.dead_end")):
        config = Foreach(collection="[1, 2]", body=("a", "b"))
        nodes = (step("each", "foreach", config, on_error=on_error), "a", "b")

        sim = Sim(flow(nodes, edge("a b", "item == 2")))

        assert sim.run().startswith(end)
        assert ("each[1]/b" in sim.begun) == (on_error is OnError.CONTINUE)


def test_results_stay_of_fair_size_and_depth_whatever_rounds_bring() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    work = brings(a={"text": "x" * 300_000, "more": ["y" * 100_000] * 20, "deep": deep})

    sim = Sim(_each("[" + ",".join("1" * 50) + "]"), work=work)

    assert sim.run() == "done"
    assert len(json.dumps(sim.runs["each"].output)) < 2_000_000


def test_a_loop_that_is_tried_again_keeps_the_rounds_it_has_had() -> None:
    loop = Loop(mode="while", body=("a",), condition="true", max_iterations=2)
    sim = Sim(_looped(loop))
    assert sim.run().startswith("failed: loop: workflow.loop_limit")

    again = replace(sim.runs["loop"], status=NodeStatus.PENDING)
    sim.flow.note(again)
    sim.runs["loop"] = again
    kept = len(sim.begun)

    assert sim.run().startswith("failed: loop: workflow.loop_limit")
    assert len(sim.begun) == kept


def test_a_step_that_is_tried_again_goes_on_from_there() -> None:
    tries: list[str] = []

    def work(_node: Node, _names: Mapping[str, Any], path: str) -> str:
        tries.append(path)
        return "!not yet" if tries.count(path) == 1 and path == "each[1]/a" else "ok"

    sim = Sim(_each("[1, 2, 3]"), work=work)
    assert sim.run() == "failed: each[1]/a: not yet"

    again = replace(sim.runs["each[1]/a"], status=NodeStatus.PENDING)
    sim.flow.note(again)
    sim.runs["each[1]/a"] = again

    assert sim.run() == "done"
    assert tries == ["each[0]/a", "each[1]/a", "each[1]/a", "each[2]/a", "after"]


def test_the_filled_text_of_a_step_has_a_bound_and_says_what_is_left_out() -> None:
    giant = Node(id="a", detail="{{variables.x}}" * 10, title="{{variables.x}}")
    sim = Sim(flow((giant,), variables={"x": "y" * 10_000}))
    place, node = next(iter(sim.flow.steps()))

    done = as_done(sim.flow, place, node, sim.now)

    assert len(done.title) <= 500
    assert len(done.detail) < 60_100
    assert done.detail.endswith("[40000 more characters of this text are left out.]")
