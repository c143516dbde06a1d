"""A sample workflow with branches, rounds and a person, run up to a given step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from pydantic import JsonValue

from bot.engine.workflow.definition import Workflow, WorkflowEdge, WorkflowNode
from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.foreach import ForeachConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.loop import LoopConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.nodes.switch import SwitchCase, SwitchConfig
from bot.engine.workflow.validation import validate_workflow
from tests.bot.engine.workflow.scheduler_simulator import SchedulerSimulator

LETTERS: list[JsonValue] = ["from Bo", "from Cy", "from Di", "from Eve", "from Flo"]


def sample_step(id: str, title: str, **more: Any) -> WorkflowNode:
    return WorkflowNode(id=id, title=title, **more)


def chain_edges(*ids: str) -> tuple[WorkflowEdge, ...]:
    return tuple(WorkflowEdge(source=a, target=b) for a, b in pairwise(ids))


def report_workflow() -> Workflow:
    """Three parallel branches, one of them a foreach; a review with a back edge; a switch; a
    signature; three rounds of polishing; a delay."""
    nodes = (
        sample_step("start", "Start", type=NodeType.START),
        sample_step("gather", "Gather the figures"),
        sample_step("fan", "Side by side", type=NodeType.PARALLEL),
        sample_step("sales", "Write about sales", persona="writer"),
        sample_step("check", "Check the sales"),
        sample_step("support", "Write about support"),
        sample_step(
            "each",
            "Every letter",
            type=NodeType.FOREACH,
            config=ForeachConfig(
                collection="variables.letters",
                body=("read", "sum"),
                mode="parallel",
                max_parallel=2,
            ),
        ),
        sample_step("read", "Read the letter {{item}}"),
        sample_step("sum", "Sum up the letter {{item}}"),
        sample_step("join", "All there", type=NodeType.JOIN),
        sample_step("review", "Review", persona="reviewer"),
        sample_step("fix", "Fix what is wrong"),
        sample_step(
            "large",
            "Large?",
            type=NodeType.SWITCH,
            config=SwitchConfig(
                expression="len(variables.letters) > 4",
                cases=(SwitchCase(value=True, target="print"),),
                default="mail",
            ),
        ),
        sample_step("print", "Print it"),
        sample_step("bind", "Bind it"),
        sample_step("mail", "Mail it"),
        sample_step("stamp", "Stamp it"),
        sample_step(
            "sign", "Ann signs", type=NodeType.HUMAN, config=HumanConfig(assignee=("Ann",))
        ),
        sample_step(
            "polish",
            "Polish",
            type=NodeType.LOOP,
            config=LoopConfig(mode="for", init="1", end="3", body=("page",)),
        ),
        sample_step("page", "Polish page {{i}}"),
        sample_step("rest", "Let it rest", type=NodeType.DELAY, config=DelayConfig(seconds=600)),
        sample_step("end", "End", type=NodeType.END),
    )
    edges = (
        *chain_edges("start", "gather", "fan", "sales", "check", "join", "review", "large"),
        *chain_edges("fan", "support", "join"),
        *chain_edges("fan", "each", "join"),
        *chain_edges("read", "sum"),
        WorkflowEdge(
            source="review",
            target="fix",
            condition="includes(outputs.review.result, 'REJECTED')",
            label="rejected",
        ),
        WorkflowEdge(source="fix", target="review", max_loops=3),
        *chain_edges("large", "print", "bind", "sign"),
        *chain_edges("large", "mail", "stamp", "sign"),
        *chain_edges("sign", "polish", "rest", "end"),
    )
    return validate_workflow(
        Workflow(
            plan="Write the weekly report",
            nodes=nodes,
            edges=edges,
            parallel=3,
            variables={"letters": LETTERS},
        )
    )


def rejecting_once(node: WorkflowNode, _names: Mapping[str, Any], path: str) -> str:
    if node.id == "review":
        return "REJECTED" if path == "review" else "APPROVED"
    return f"did {node.id}"


class _Reached(Exception):
    """The requested step has started."""


def run_until(workflow: Workflow, moment: str = "", *, seed: int = 1) -> SchedulerSimulator:
    """Run until the step of that path is running, or to the end."""

    def work(node: WorkflowNode, names: Mapping[str, Any], path: str) -> str:
        if path == moment:
            raise _Reached
        return rejecting_once(node, names, path)

    sim = SchedulerSimulator(workflow, work=work, seed=seed)
    with suppress(_Reached):
        assert (sim.run() == "done") is not bool(moment), f"{moment} never comes"
    return sim
