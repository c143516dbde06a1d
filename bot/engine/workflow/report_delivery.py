"""Decides which messages of people and reports of subagents a step receives, and formats them. A
report goes to one step, behind the one that started the subagent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from types import MappingProxyType

from bot.engine.agent.subagents.spawning import render_reports
from bot.engine.workflow.definition import ROOT_GRAPH, ScopeGraph, WorkflowTopology
from bot.engine.workflow.node_runs import (
    PLANNING_PATH,
    ActivationPath,
    enclosing_round,
    parse_activation,
)
from bot.engine.workflow.nodes.contract import NodeRole
from storage.records.tasks import NodeRun, NodeStatus
from storage.tasks import SubagentReport

DELIVERED_COUNT_KEY = "heard"
"""In the output of a step: the number of messages that its worker received."""

WITHHELD_REPORTS_KEY = "deaf"
"""In the output of a step: the numbers of the reports among these that it did not receive."""


def is_report_delivered(n: int, runs: Mapping[str, NodeRun]) -> bool:
    """Whether a finished step received the report with this number."""
    return any(
        run.status is NodeStatus.DONE
        and int(run.output.get(DELIVERED_COUNT_KEY, 0)) > n
        and n not in run.output.get(WITHHELD_REPORTS_KEY, ())
        for path, run in runs.items()
        if not path.startswith("@")
    )


def undelivered_messages(messages: Sequence[str], runs: Mapping[str, NodeRun]) -> Sequence[str]:
    """Messages of people, and reports of subagents, that no finished step has received."""
    counts = (
        int(run.output[DELIVERED_COUNT_KEY])
        for run in runs.values()
        if DELIVERED_COUNT_KEY in run.output
    )
    delivered = max(counts, default=0)
    return [
        text
        for n, text in enumerate(messages)
        if (
            not is_report_delivered(n, runs) if isinstance(text, SubagentReport) else n >= delivered
        )
    ]


def reports_to_withhold(
    topology: WorkflowTopology,
    activation: ActivationPath,
    messages: Sequence[str],
    runs: Mapping[str, NodeRun],
    *,
    running_paths: AbstractSet[str],
    delivered: Mapping[str, Container[int]] = MappingProxyType({}),
) -> frozenset[int]:
    """Return the numbers of the reports that other steps receive rather than this one, which
    starts: another running step received it (`delivered`, by its path), or a later step is still to
    come behind the one that started the subagent, as this one is not."""
    reports = report_numbers(messages)
    if topology.workflow.parallel == 1 or not reports or activation.node not in topology.nodes:
        return frozenset()
    others = [delivered.get(path, ()) for path in running_paths - {activation.path}]
    return frozenset(
        n
        for n, report in reports.items()
        if any(n in told for told in others)
        or _belongs_to_other_step(activation, parse_activation(report.path), runs, topology)
    )


def report_numbers(messages: Sequence[str]) -> Mapping[int, SubagentReport]:
    """The numbers of the reports among the messages."""
    return {n: text for n, text in enumerate(messages) if isinstance(text, SubagentReport)}


def _belongs_to_other_step(
    place: ActivationPath,
    sender: ActivationPath | None,
    runs: Mapping[str, NodeRun],
    topology: WorkflowTopology,
) -> bool:
    if sender is None or sender.node not in topology.nodes or _comes_after(place, sender, topology):
        return False
    return any(_is_pending(each, runs) for each in _later_steps(sender, topology))


def _comes_after(place: ActivationPath, sender: ActivationPath, topology: WorkflowTopology) -> bool:
    """Whether `place` can only run after `sender`, or is a later activation of it."""
    for here, there in zip_longest(_enclosing_path(place), _enclosing_path(sender)):
        if here is None or there is None:
            return True
        (at, n), (other, m) = here, there
        if at.node != other.node:
            scope_graph = topology.scope_graphs[topology.container_of.get(other.node, ROOT_GRAPH)]
            again = at.round > other.round and other.node in _reachable_nodes(scope_graph, at.node)
            return again or at.node in _reachable_nodes(scope_graph, other.node)
        is_beside = topology.nodes[at.node].has_parallel_rounds
        if at.round != other.round or (n != m and not is_beside):
            return True
        if n != m:
            return False
    return True


def _enclosing_path(place: ActivationPath) -> Sequence[tuple[ActivationPath, int | None]]:
    """The loops around the node from the outside in, each with its round, and the node itself."""
    path: list[tuple[ActivationPath, int | None]] = [(place, None)]
    scope = place.scope
    while (above := enclosing_round(scope)) is not None:
        around = parse_activation(above[0])
        assert around is not None
        path.append((around, above[1]))
        scope = around.scope
    return path[::-1]


def _later_steps(sender: ActivationPath, topology: WorkflowTopology) -> Iterator[ActivationPath]:
    """The step itself, because it may be retried, and all steps after it: in its rounds and behind
    them.
    """
    yield sender
    for at, _ in reversed(_enclosing_path(sender)):
        scope_graph = topology.scope_graphs[topology.container_of.get(at.node, ROOT_GRAPH)]
        for node in _reachable_nodes(scope_graph, at.node):
            if scope_graph.nodes[node].role is NodeRole.TASK or scope_graph.nodes[node].body:
                yield ActivationPath(at.scope, node)


def _is_pending(place: ActivationPath, runs: Mapping[str, NodeRun]) -> bool:
    run = runs.get(place.path)
    return run is None or run.status is NodeStatus.PENDING


def _reachable_nodes(scope_graph: ScopeGraph, node: str) -> Iterable[str]:
    """All nodes that forward edges lead to from here."""
    found = dict.fromkeys(edge.target for edge in scope_graph.outgoing.get(node, ()))
    left = list(found)
    while left:
        for edge in scope_graph.outgoing.get(left.pop(), ()):
            if edge.target not in found:
                found[edge.target] = None
                left.append(edge.target)
    return found


def messages_for_step(
    messages: Sequence[str], runs: Mapping[str, NodeRun], withheld_reports: Container[int] = ()
) -> Sequence[str]:
    """All messages of people, and the reports that no finished step received and that are not
    withheld."""
    return [
        text
        for n, text in enumerate(messages)
        if not isinstance(text, SubagentReport)
        or not (n in withheld_reports or is_report_delivered(n, runs))
    ]


def delivered_message_count(runs: Mapping[str, NodeRun]) -> int:
    """The number of messages that finished steps have received."""
    done = (
        run for path, run in runs.items() if path != PLANNING_PATH and run.status is NodeStatus.DONE
    )
    return max((int(run.output.get(DELIVERED_COUNT_KEY, 0)) for run in done), default=0)


class TaskSteering:
    """Messages of people to a task while its step runs; satisfies `llm.backend.SteeringQueue`.

    `messages` begins with those that the step's prompt contains. `may_hear` decides on a message
    after those before it. One that it refuses, or a subagent's report, waits for the next step
    with all that follow."""

    def __init__(
        self,
        messages: Sequence[str],
        fetch_messages: Callable[[], Awaitable[Sequence[str]]],
        may_hear: Callable[[str, Sequence[str]], bool],
    ) -> None:
        self._messages = messages
        self._fetch_messages = fetch_messages
        self._may_hear = may_hear
        self.delivered_count = len(messages)

    @property
    def delivered(self) -> Sequence[str]:
        """The messages that the run contains."""
        return self._messages[: self.delivered_count]

    async def take_new(self) -> str:
        self._messages = await self._fetch_messages()
        new: list[str] = []
        for text in self._messages[self.delivered_count :]:
            if isinstance(text, SubagentReport) or not self._may_hear(text, self.delivered):
                break
            new.append(text)
            self.delivered_count += 1
        return "\n\n".join(format_messages(new))

    def rewind(self, delivered_count: int) -> None:
        self.delivered_count = delivered_count


def format_messages(messages: Sequence[str]) -> list[str]:
    """People's messages and sub-agents' reports, each with its own heading."""
    people = [text for text in messages if not isinstance(text, SubagentReport)]
    helpers = [text for text in messages if isinstance(text, SubagentReport)]
    parts = ["New messages from the Boss: " + "\n".join(people)] if people else []
    return [*parts, render_reports(helpers)] if helpers else parts


_MAX_TITLE = 200


def reports_title(messages: Sequence[str]) -> str:
    """The title of the step that uses the subagents' reports."""
    labels = [text.label for text in messages if isinstance(text, SubagentReport)]
    return f"🤝 {', '.join(labels)}"[:_MAX_TITLE]
