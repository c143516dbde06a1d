"""Steps that stop at a call of a tool until somebody has decided about it."""

from __future__ import annotations

from collections.abc import Mapping

from bot.engine.agent.leave.asking import Asker
from bot.engine.workflow.asking import command_hash
from bot.engine.workflow.graph import Node
from bot.engine.workflow.prompts import said_since
from bot.engine.workflow.routing.hearing import HEARD
from bot.engine.workflow.steps import Next
from storage.db import Transaction
from storage.records.approvals import Approval
from storage.records.tasks import NodeRun, Task

_ASKED = "asked"


class Suspensions:
    """Used within the transaction of a boundary. Without an `asker` no step ever stops so."""

    def __init__(self, asker: Asker | None) -> None:
        self._asker = asker

    async def waits_for(
        self, tx: Transaction, task: Task, node: Node, runs: Mapping[str, NodeRun]
    ) -> Approval | None:
        """The request that keeps this step from going on; None if there is none."""
        if self._asker is None or not _stopped(node, runs):
            return None
        return await self._asker.next_at(tx, task, node.id)

    async def resumes(
        self, tx: Transaction, task: Task, node: Node, runs: Mapping[str, NodeRun]
    ) -> bool:
        """Whether it goes on from where it stopped. A step that was changed since begins anew."""
        if self._asker is None or not _stopped(node, runs):
            return False
        return await self._asker.stopped_at(tx, task, node.id)

    async def ask(self, tx: Transaction, task: Task, node: Node) -> Approval | None:
        """Ask for what the step has just stopped at; None if that is decided already."""
        return None if self._asker is None else await self._asker.next_at(tx, task, node.id)


def stopped_output(step: Next) -> Mapping[str, object]:
    """What is kept of a step that stops: which step exactly, and how much of what people said
    its worker has been told."""
    return {_ASKED: command_hash(step.node), **step.hears}


def news(step: Next) -> str:
    """What people have said since the step stopped, for its worker."""
    run = step.runs.get(step.node.id)
    heard = int(run.output.get(HEARD, 0)) if run is not None else 0
    new = [text for n, text in enumerate(step.said) if n >= heard and n not in step.deaf]
    return "\n\n".join(said_since(new))


def _stopped(node: Node, runs: Mapping[str, NodeRun]) -> bool:
    run = runs.get(node.id)
    return run is not None and run.output.get(_ASKED) == command_hash(node)
