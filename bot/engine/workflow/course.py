"""What is left of a plan: kept up with each run, so that no boundary looks at all of it again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from bot.engine.workflow.graph import Node, Workflow
from storage.records.tasks import NodeRun, NodeStatus


class Course:
    """A plan under way, and what became of its nodes so far."""

    def __init__(self, workflow: Workflow, runs: Mapping[str, NodeRun]) -> None:
        self._workflow = workflow
        self._runs = dict(runs)
        self._before = defaultdict[str, list[str]](list)
        for edge in workflow.edges:
            self._before[edge.target].append(edge.source)
        self._look()

    @property
    def is_complete(self) -> bool:
        return not self._left

    @property
    def failed(self) -> NodeRun | None:
        """The first that failed, if there is one."""
        runs = self._runs.values()
        return next((run for run in runs if run.status is NodeStatus.FAILED), None)

    def note(self, run: NodeRun) -> None:
        """How far this node is now."""
        self._runs[run.path] = run
        if run.status.is_settled:
            self._left.pop(run.path, None)
        elif run.path not in self._left:
            self._look()

    def ready(self) -> Iterator[Node]:
        """The nodes that may start now, in the plan's order: not run yet, and everything before
        them settled."""
        return (node for node in self._left.values() if self._may_start(node))

    def _may_start(self, node: Node) -> bool:
        run = self._runs.get(node.id)
        begun = run is not None and run.status is not NodeStatus.PENDING
        return not begun and not any(each in self._left for each in self._before[node.id])

    def _look(self) -> None:
        """What is not settled, in the plan's order."""
        runs = self._runs
        self._left = {
            node.id: node
            for node in self._workflow.nodes
            if node.id not in runs or not runs[node.id].status.is_settled
        }
