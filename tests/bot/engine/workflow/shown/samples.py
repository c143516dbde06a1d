"""A workflow with branches, rounds and a person, and how far it may be."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from pydantic import JsonValue

from bot.engine.workflow.model.nodes import (
    Case,
    Delay,
    Foreach,
    Human,
    Loop,
    NodeType,
    Switch,
)
from bot.engine.workflow.model.shape import Edge, Node, Workflow
from bot.engine.workflow.model.validate import validated
from tests.bot.engine.workflow.routing.sim import Sim

LETTERS: list[JsonValue] = ["from Bo", "from Cy", "from Di", "from Eve", "from Flo"]


def step(id: str, title: str, **more: Any) -> Node:
    return Node(id=id, title=title, **more)


def chained(*ids: str) -> tuple[Edge, ...]:
    return tuple(Edge(source=a, target=b) for a, b in pairwise(ids))


def report() -> Workflow:
    """Three branches side by side, one of them a foreach; a review that may lead back; a choice
    of two ways; a signature; three rounds of polish; a rest."""
    nodes = (
        step("start", "Start", type=NodeType.START),
        step("gather", "Gather the figures"),
        step("fan", "Side by side", type=NodeType.PARALLEL),
        step("sales", "Write about sales", persona="writer"),
        step("check", "Check the sales"),
        step("support", "Write about support"),
        step(
            "each",
            "Every letter",
            type=NodeType.FOREACH,
            config=Foreach(
                collection="variables.letters",
                body=("read", "sum"),
                mode="parallel",
                max_parallel=2,
            ),
        ),
        step("read", "Read the letter {{item}}"),
        step("sum", "Sum up the letter {{item}}"),
        step("join", "All there", type=NodeType.JOIN),
        step("review", "Review", persona="reviewer"),
        step("fix", "Fix what is wrong"),
        step(
            "large",
            "Large?",
            type=NodeType.SWITCH,
            config=Switch(
                expression="len(variables.letters) > 4",
                cases=(Case(value=True, target="print"),),
                default="mail",
            ),
        ),
        step("print", "Print it"),
        step("bind", "Bind it"),
        step("mail", "Mail it"),
        step("stamp", "Stamp it"),
        step("sign", "Ann signs", type=NodeType.HUMAN, config=Human(assignee=("Ann",))),
        step(
            "polish",
            "Polish",
            type=NodeType.LOOP,
            config=Loop(mode="for", init="1", end="3", body=("page",)),
        ),
        step("page", "Polish page {{i}}"),
        step("rest", "Let it rest", type=NodeType.DELAY, config=Delay(seconds=600)),
        step("end", "End", type=NodeType.END),
    )
    edges = (
        *chained("start", "gather", "fan", "sales", "check", "join", "review", "large"),
        *chained("fan", "support", "join"),
        *chained("fan", "each", "join"),
        *chained("read", "sum"),
        Edge(
            source="review",
            target="fix",
            condition="includes(outputs.review.result, 'REJECTED')",
            label="rejected",
        ),
        Edge(source="fix", target="review", max_loops=3),
        *chained("large", "print", "bind", "sign"),
        *chained("large", "mail", "stamp", "sign"),
        *chained("sign", "polish", "rest", "end"),
    )
    return validated(
        Workflow(
            plan="Write the weekly report",
            nodes=nodes,
            edges=edges,
            parallel=3,
            variables={"letters": LETTERS},
        )
    )


def rejecting_once(node: Node, _names: Mapping[str, Any], path: str) -> str:
    if node.id == "review":
        return "REJECTED" if path == "review" else "APPROVED"
    return f"did {node.id}"


class _Reached(Exception):
    """The moment has come."""


def until(workflow: Workflow, moment: str = "", *, seed: int = 1) -> Sim:
    """Run up to where the step of that path is under way, or to the end."""

    def work(node: Node, names: Mapping[str, Any], path: str) -> str:
        if path == moment:
            raise _Reached
        return rejecting_once(node, names, path)

    sim = Sim(workflow, work=work, seed=seed)
    with suppress(_Reached):
        assert (sim.run() == "done") is not bool(moment), f"{moment} never comes"
    return sim
