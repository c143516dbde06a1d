"""The state of one task's workflow, built from its graph and runs, and the names that expressions
see."""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from bot.engine.workflow.compensation import Compensations
from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    OnError,
    Workflow,
    WorkflowNode,
    WorkflowTopology,
    may_ask_people,
)
from bot.engine.workflow.expressions.evaluator import NOW_NAME
from bot.engine.workflow.node_runs import (
    ASSIGNMENT_KEY,
    ENDING_PATH,
    EXHAUSTED_EDGE_KEY,
    FAILED_KEY,
    FRESH_START_PATH,
    SUSPENDED_KEY,
    TIMED_OUT_PATH,
    UNDECIDED_KEY,
    UNFINISHED_ROUNDS_KEY,
    ActivationPath,
    StoredRuns,
    attempts_before,
    compensated_path,
    decision_of,
    enclosing_round,
    fresh_limit_path,
    is_claimed,
    is_condition_question,
    is_done,
    is_finished,
    node_output,
    parse_activation,
    questioned_path,
    scope_of,
)
from bot.engine.workflow.nodes.contract import EvaluationContext, NodeRole
from bot.engine.workflow.past_names import names_of_past, variables_path
from bot.engine.workflow.scope import LoopState, OutputsView, ScopeState, StatesView
from storage.records.tasks import NodeRun, NodeStatus, TaskId

TextLookup: TypeAlias = Callable[..., str]
"""A text of the catalogue, by its key and facts."""

ConditionAnswers: TypeAlias = Callable[[str], bool | str | None]

_EARLIEST = datetime.min.replace(tzinfo=UTC)


class SchedulerState:
    """The state that the scheduler works on. `text` gives the texts of failures; `warn` receives
    unknown names in expressions. `asked_subjects` maps the paths of open questions to the subjects
    of the conditions that they are about.
    """

    def __init__(
        self,
        task_id: TaskId,
        workflow: Workflow,
        runs: Mapping[str, NodeRun],
        *,
        zone: ZoneInfo,
        text: TextLookup,
        warn: Callable[[str], None],
    ) -> None:
        self.task_id = task_id
        self.workflow = workflow
        self.topology = WorkflowTopology(workflow)
        self.may_ask_people = may_ask_people(workflow)
        self.running_paths: set[str] = set()
        self.zone, self._text, self._warn = zone, text, warn
        self._runs: dict[str, NodeRun] = dict(runs)
        self.compensations = Compensations(self.topology, self._runs)
        self._scopes: dict[str, ScopeState] = {}
        self._loops: dict[str, dict[str, LoopState]] = defaultdict(dict)
        self._waiting: dict[str, dict[str, NodeRun]] = defaultdict(dict)
        self._latest_runs: dict[str, NodeRun] = {}
        self._limit_questions: dict[str, dict[str, tuple[ActivationPath, WorkflowNode]]] = (
            defaultdict(dict)
        )
        self._waived_limits: list[NodeRun] = []
        self._assignments = max(
            (run.output.get(ASSIGNMENT_KEY, 0) for run in runs.values()), default=0
        )
        self.asked_subjects: dict[str, str] = {}
        self.asked_choices: dict[str, tuple[str, ...]] = {}
        self._active_scopes: dict[str, None] = {}
        self.has_conditions = any(edge.condition for edge in workflow.edges) or any(
            node.config is not None and any(node.spec.deciding_expressions(node.config))
            for node in workflow.nodes
        )
        limits = ((node.id, node.time_limit) for node in workflow.nodes)
        self._time_limits = {name: limit for name, limit in limits if limit is not None}
        plain = {name.replace("-", "_"): name for name in self.topology.nodes}
        self._aliases = {
            alias: name for alias, name in plain.items() if alias not in self.topology.nodes
        }
        for run in sorted(runs.values(), key=lambda run: run.ended_at or _EARLIEST):
            self._remember_latest(run)
        self._open_scope(ROOT_GRAPH, "", StoredRuns(runs))
        for run in runs.values():
            self._apply_answer(run)
            self._note_compensation(run)

    def node_at(self, path: str) -> WorkflowNode:
        activation = parse_activation(path)
        assert activation is not None
        return self.topology.nodes[activation.node]

    def has_run(self, path: str) -> bool:
        return is_finished(self._runs.get(path))

    def waiting_runs(self, scope: str) -> Mapping[str, NodeRun]:
        return self._waiting[scope]

    def may_wait_for_person(self, path: str) -> bool:
        """Whether a step with this path can be waiting for a person."""
        activation, state = parse_activation(path), self._scopes.get(scope_of(path))
        if compensated_path(path) is not None:
            return any(run.path == path for run in self.compensations.open)
        if activation is None:
            return questioned_path(path) is not None
        return state is not None and not is_finished(state.runs.get(activation.node))

    def tolerates_failure(self, path: str) -> bool:
        """True if the workflow continues after this step has failed for good."""
        if compensated_path(path) is not None:
            return True
        activation = parse_activation(path)
        if activation is None or activation.node not in self.topology.nodes:
            return False
        own = self.topology.nodes[activation.node].on_error is not OnError.FAIL
        return own or self._tolerates_failures_in(activation.scope)

    def started_at(self, claimed_at: datetime | None) -> datetime | None:
        """The start of the time limit: when the first node started after the last timeout, or after
        the task was last tried again. If none has started, when the task was claimed then;
        otherwise `claimed_at`.
        """
        since = self._timed_again_at
        first = self._first_start_after(since)
        return first or (claimed_at if since == _EARLIEST else self._claimed_again_at)

    @property
    def _claimed_again_at(self) -> datetime | None:
        """When the task was claimed after it was last tried again; None before that."""
        again = self._runs.get(FRESH_START_PATH)
        is_current = again is not None and again.ended_at == self._timed_again_at
        return again.ended_at if again is not None and is_current and is_claimed(again) else None

    @property
    def _timed_again_at(self) -> datetime:
        """When all time limits last began anew."""
        notes = (self._runs.get(path) for path in (TIMED_OUT_PATH, FRESH_START_PATH))
        times = (note.ended_at for note in notes if note is not None)
        return max(filter(None, times), default=_EARLIEST)

    def _first_start_after(self, since: datetime, inside: str = "") -> datetime | None:
        """When the first node whose path has this prefix was started after that time."""
        return min(
            (
                run.started_at
                for path, run in self._runs.items()
                if path.startswith(inside)
                and run.started_at is not None
                and run.started_at > since
                and parse_activation(path)
            ),
            default=None,
        )

    def deadlines_inside(
        self, scope: str | None = None
    ) -> Iterator[tuple[datetime, ActivationPath]]:
        """The deadlines of the running nodes with a body and a time limit, in one scope or
        everywhere.
        """
        if not self._time_limits:
            return
        for each in self._waiting if scope is None else (scope,):
            for path, run in self._waiting[each].items():
                place = parse_activation(path)
                limit = self._time_limits.get(place.node) if place is not None else None
                if limit is None or place is None:
                    continue
                begun, since = run.started_at, self._timed_again_at
                if begun is None or begun <= since:
                    begun = self._first_start_after(since, f"{path}[") or self._claimed_again_at
                if begun is not None:
                    yield begun + timedelta(seconds=limit), place

    @property
    def ending(self) -> NodeRun | None:
        """The run that records how the task ends once its compensations have run; None if it is not
        ending like that.
        """
        return self._runs.get(ENDING_PATH)

    def timeout_run(self, now: datetime) -> NodeRun:
        """The run that records that the workflow ran out of time."""
        return self._make_note_run(TIMED_OUT_PATH, {}, now)

    def is_settled_human_step(self, run: NodeRun) -> bool:
        """True for a person's step whose answer is no longer awaited."""
        activation = parse_activation(run.path)
        node = None if activation is None else self.topology.nodes.get(activation.node)
        over = is_finished(run) or run.status is NodeStatus.FAILED
        return node is not None and node.role is NodeRole.HUMAN and over

    def record_run(self, run: NodeRun) -> None:
        before = self._runs.get(run.path)
        self._runs[run.path] = run
        self._remember_latest(run)
        self._update_scope(run)
        if before is not None and before.status is NodeStatus.PENDING:
            self._resume_loop(run)
        self._apply_answer(run)
        self._note_compensation(run)

    def context(self, scope: str, now: datetime) -> EvaluationContext:
        """The names that expressions and templates in that scope may use."""
        states, own = self._enclosing_scopes(scope)
        names = {
            "outputs": OutputsView(states, self._latest_runs, self._aliases),
            "inputs": {
                **{each.name: each.default for each in self.workflow.inputs},
                **self.workflow.values,
            },
            "nodeStates": StatesView(states, self._aliases),
            NOW_NAME: int(now.timestamp() * 1_000),
            "loopCount": sum(states[0].back_edge_counts.values()),
            "variables": self.workflow.variables,
            **own,
        }
        kept = self._runs.get(variables_path(self.topology, scope))
        names["variables"] = {**names["variables"], **(kept.output if kept else {})}
        return EvaluationContext(now=now, zone=self.zone, names=names, warn=self._warn)

    def context_of(self, activation: ActivationPath, now: datetime) -> EvaluationContext:
        """The names that a step may use. A compensation has those of the step that it undoes, even
        of a round that is over.
        """
        of = compensated_path(activation.path)
        if of is None:
            return self.context(activation.scope, now)
        place, seen = parse_activation(of), self._context_of_round(activation.scope, now)
        assert place is not None
        names = names_of_past(self.topology.with_past, self._runs, place, seen.names)
        if (loop := self._loops[place.scope].get(place.path)) is not None:
            so_far = dict.fromkeys(
                {place.node, place.node.replace("-", "_")}, self._loop_output(loop, now)
            )
            names = {**names, "outputs": ChainMap(so_far, names["outputs"])}
        return replace(seen, names=names)

    def _context_of_round(self, scope: str, now: datetime) -> EvaluationContext:
        """Like `context`, but for a round that may be over, and without its outputs."""
        above = enclosing_round(scope)
        loop = None if above is None else parse_activation(above[0])
        if scope in self._scopes or above is None or loop is None:
            return self.context(scope, now)
        topology = self.topology.with_past
        seen, node = self._context_of_round(loop.scope, now), topology.nodes[loop.node]
        own = node.loop.round_names(node, self._runs[loop.iteration_path].output, above[1])
        kept = self._runs.get(variables_path(topology, scope))
        variables = {**seen.names["variables"], **(kept.output if kept else {})}
        return replace(seen, names={**seen.names, **own, "variables": variables})

    def answers_at(self, activation: ActivationPath, rounds: int = 0) -> ConditionAnswers:
        """People's answers to questions about the conditions after an activation or its rounds."""

        def answer(subject: str) -> bool | str | None:
            run = self._runs.get(activation.decision_path(subject, rounds))
            return decision_of(run) if run is not None and is_done(run) else None

        return answer

    def partial_loop_runs(self, now: datetime) -> Sequence[NodeRun]:
        """For each running loop of the outermost scope, a finished run with the results of its
        finished rounds and the outputs of the unfinished ones.
        """
        running = tuple(self._loops[ROOT_GRAPH].values())
        outputs = [(loop, self._loop_output(loop, now)) for loop in running]
        return [
            self._make_run(ActivationPath("", loop.node.id), NodeStatus.DONE, now, output)
            for loop, output in outputs
            if loop.results or UNFINISHED_ROUNDS_KEY in output
        ]

    def latest_round_runs(self) -> Sequence[NodeRun]:
        """For each node of the outermost scope that ran in several rounds, or behind which an edge
        reached its limit: its first run with its last output, for a plan without those edges. If
        the node can be undone, its first run takes the place of the last one.
        """
        state = self._scopes[ROOT_GRAPH]
        made = []
        for name, node in state.graph.nodes.items():
            first, last = self._runs.get(name), state.last_finished_run(name)
            if first is None or last is None:
                continue
            free = without_halt(last)
            if last.path != first.path or free.output != last.output:
                made.append(replace(free, path=name, attempt=first.attempt))
            if last.path != first.path and node.on_cancel and not self.compensations.has(name):
                made.append(replace(without_halt(first), path=last.path, attempt=last.attempt))
        return made

    def _loop_output(self, loop: LoopState, now: datetime) -> Mapping[str, Any]:
        """Its results so far, also those of rounds that are over and were not closed yet."""
        loop = replace(loop, results=dict(loop.results))
        for n in range(loop.opened_rounds):
            state = self._scopes.get(loop.activation.round_scope(n))
            if n not in loop.results and state is not None and state.is_complete:
                loop.close_round(n, state, None, self.context(state.scope, now))
        unfinished = [
            {"round": n + 1, "outputs": outputs}
            for n in range(loop.opened_rounds)
            if n not in loop.results
            and (outputs := self._round_outputs(loop.activation.round_scope(n), now))
        ]
        if not unfinished:
            return loop.partial_output
        return {**loop.partial_output, UNFINISHED_ROUNDS_KEY: loop.truncate(unfinished)}

    def _round_outputs(self, scope: str, now: datetime) -> Mapping[str, Any]:
        """The outputs of an unfinished round so far, by node."""
        state = self._scopes.get(scope)
        if state is None:
            return {}
        last = {name: state.last_finished_run(name) for name in state.graph.nodes}
        outputs = {
            name: dict(node_output(run)) for name, run in last.items() if run and is_done(run)
        }
        for loop in self._loops[scope].values():
            outputs[loop.node.id] = dict(self._loop_output(loop, now))
        return {name: each for name, each in outputs.items() if each}

    def visible_runs(self, scope: str) -> Mapping[str, NodeRun]:
        """The run of each node that counts in that scope."""
        states, _ = self._enclosing_scopes(scope if scope in self._scopes else "")
        seen: dict[str, NodeRun] = {}
        for state in reversed(states):
            seen.update({**state.previous_runs, **state.runs})
        return seen

    def new_run(self, activation: ActivationPath, status: NodeStatus, now: datetime) -> NodeRun:
        return self._make_run(activation, status, now, {})

    def _update_scope(self, run: NodeRun) -> None:
        scope, activation = scope_of(run.path), parse_activation(run.path)
        state = self._scopes.get(scope)
        if state is None or activation is None or activation.node not in state.graph.nodes:
            return
        if state.activation(activation.node) != activation:
            return
        self.running_paths.discard(run.path)
        self._waiting[scope].pop(run.path, None)
        self._loops[scope].pop(run.path, None)
        if run.status is NodeStatus.RUNNING:
            self.running_paths.add(run.path)
        elif run.status is NodeStatus.WAITING:
            self._waiting[scope][run.path] = run
            self._begin_loop(activation, state.graph.nodes[activation.node])
        state.record_run(activation.node, run)
        self._active_scopes[scope] = None

    def _note_compensation(self, run: NodeRun) -> None:
        self.compensations.record(run)
        if compensated_path(run.path) is not None:
            self.running_paths.discard(run.path)
            if run.status is NodeStatus.RUNNING:
                self.running_paths.add(run.path)

    def _apply_answer(self, run: NodeRun) -> None:
        """Continue after a loop that has used up its rounds if a person has allowed it."""
        path = questioned_path(run.path)
        if path is None or run.status is not NodeStatus.DONE:
            return
        scope, activation = scope_of(path), parse_activation(path)
        self._active_scopes[scope] = None
        if is_condition_question(run.path):
            return
        loop = self._loops[scope].get(path)
        if loop is not None:
            loop.ended_by_person = True
        state = self._scopes.get(scope)
        if state is not None and activation is not None:
            halted = state.exhausted_runs.get(activation.node)
            if halted is not None and halted.path == path:
                self._waived_limits.append(without_halt(halted))

    def _begin_loop(self, activation: ActivationPath, node: WorkflowNode) -> None:
        of = self._runs.get(activation.iteration_path)
        if node.body and of is not None:
            loop = LoopState(
                node,
                activation,
                of.output,
                ended_by_person=is_done(self._runs.get(activation.question_path)),
                used_limit=self._used_limit(activation),
            )
            self._loops[activation.scope][activation.path] = loop

    def _used_limit(self, activation: ActivationPath) -> int:
        name = activation.path.removeprefix(activation.scope)
        run = self._runs.get(fresh_limit_path(activation.scope, name))
        return 0 if run is None else int(run.output.get("used", 0))

    def _resume_loop(self, run: NodeRun) -> None:
        """Continue a loop that is retried; its rounds are kept."""
        scope = scope_of(run.path)
        loop = self._loops[scope].get(run.path)
        if loop is not None and run.status is NodeStatus.WAITING and not loop.opened_rounds:
            stored = StoredRuns(self._runs)
            for _ in range(stored.opened_rounds(run.path)):
                self._open_round(loop, stored)

    def _open_scope(self, graph_name: str, scope: str, stored: StoredRuns) -> ScopeState:
        """Load a scope from the stored runs, with the rounds of the loops inside it."""
        graph = self.topology.scope_graphs[graph_name]
        used = {name: stored.used_limit(scope, name) for name in graph.limited_edges}
        state = ScopeState(graph, scope, stored.back_edge_counts(scope), used)
        self._scopes[scope] = state
        for name in state.graph.nodes:
            state.previous_runs.update(stored.previous_run(state.activation(name)))
            if state.graph.bounded_edges:
                for earlier in stored.earlier_runs(state.activation(name)):
                    state.count_bounded_edges(earlier)
            run = stored.runs.get(state.activation(name).path)
            if run is not None:
                self._update_scope(run)
        for loop in tuple(self._loops[scope].values()):
            for _ in range(stored.opened_rounds(loop.activation.path)):
                self._open_round(loop, stored)
        return state

    def _open_round(self, loop: LoopState, stored: StoredRuns) -> None:
        scope = loop.activation.round_scope(loop.opened_rounds)
        loop.opened_rounds += 1
        self._open_scope(loop.node.id, scope, stored)
        self._active_scopes[scope] = None

    def _enclosing_scopes(self, scope: str) -> tuple[Sequence[ScopeState], Mapping[str, Any]]:
        """The enclosing scopes from the inside out, and the names that their rounds define."""
        states: list[ScopeState] = []
        names: dict[str, Any] = {}
        while (above := enclosing_round(scope)) is not None:
            states.append(self._scopes[scope])
            path, n = above
            loop = self._loops[scope_of(path)][path]
            own = loop.node.loop.round_names(loop.node, loop.iteration, n)
            names = {**own, **names}
            scope = scope_of(path)
        return [*states, self._scopes[scope]], names

    def _tolerates_failures_in(self, scope: str) -> bool:
        """Whether a loop around this scope tolerates what fails in it."""
        while (above := enclosing_round(scope)) is not None:
            loop = self._loops[scope_of(above[0])].get(above[0])
            if loop is not None and loop.tolerates_failure:
                return True
            scope = scope_of(above[0])
        return False

    def _remember_latest(self, run: NodeRun) -> None:
        activation = parse_activation(run.path)
        if activation is not None and is_finished(run) and activation.node in self.topology.nodes:
            self._latest_runs.pop(activation.node, None)
            self._latest_runs[activation.node] = run

    def is_closed(self, path: str) -> bool:
        """Whether a step, or the subject of a question, is in a branch where nothing continues."""
        place = parse_activation(questioned_path(path) or path)
        while place is not None:
            state = self._scopes.get(place.scope)
            if state is not None and state.is_closed(place.node):
                return True
            above = enclosing_round(place.scope)
            around = None if above is None else self._runs.get(above[0])
            if around is not None and around.ended_at is not None:
                return True
            place = None if above is None else parse_activation(above[0])
        return False

    def late_reason(self, place: ActivationPath) -> str:
        return self._text("workflow.timed_out_inside", name=self.node_at(place.path).title)

    def _cancelled_run(self, activation: ActivationPath, why: str, now: datetime) -> NodeRun:
        begun = self._runs.get(activation.path)
        kept = {FAILED_KEY, SUSPENDED_KEY} & begun.output.keys() if begun else ()
        output = {key: begun.output[key] for key in kept} if begun else {}
        output |= self._lost_output(activation, now)
        run = self._make_run(activation, NodeStatus.CANCELLED, now, output)
        return replace(run, error=why, started_at=begun.started_at if begun else None)

    def _lost_output(self, activation: ActivationPath, now: datetime) -> dict[str, Any]:
        """The results so far of a loop that ends without one, for the node that undoes it."""
        loop = self._loops[activation.scope].get(activation.path)
        is_undone = loop is not None and loop.node.on_cancel
        return dict(self._loop_output(loop, now)) if loop is not None and is_undone else {}

    def _make_note_run(self, path: str, output: Mapping[str, Any], now: datetime) -> NodeRun:
        """A run that stores a fact beside the runs of nodes."""
        activation = ActivationPath("", path)
        return replace(self._make_run(activation, NodeStatus.DONE, now, output), path=path)

    def _make_run(
        self,
        activation: ActivationPath,
        status: NodeStatus,
        now: datetime,
        output: Mapping[str, Any],
    ) -> NodeRun:
        before = self._runs.get(activation.path)
        return NodeRun(
            task_id=self.task_id,
            path=activation.path,
            status=status,
            attempt=before.attempt if before else 1 + attempts_before(self._runs),
            output=output,
            error="",
            started_at=(before.started_at if before else None) or now,
            ended_at=None if status is NodeStatus.WAITING else now,
        )


def without_halt(run: NodeRun) -> NodeRun:
    """The run without the marks that prevent its edges from being taken."""
    halts = {EXHAUSTED_EDGE_KEY, UNDECIDED_KEY}
    output = {key: value for key, value in run.output.items() if key not in halts}
    return replace(run, output=output)
