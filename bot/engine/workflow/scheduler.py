"""Schedules one task's workflow: the moves that cost nothing, the edges taken behind a finished
node, and the steps that are ready.

All of it follows from the graph and the stored runs. Whoever holds the task's lease stores each run
that is returned here, in the same transaction."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeAlias, assert_never

from bot.engine.workflow.definition import OnError, WorkflowNode
from bot.engine.workflow.edge_choice import choose_edges
from bot.engine.workflow.expressions.evaluator import (
    escape_placeholders,
    references,
)
from bot.engine.workflow.expressions.operations import ExpressionError
from bot.engine.workflow.node_runs import (
    ASSIGNMENT_KEY,
    CHOICE_FIELD,
    EXHAUSTED_EDGE_KEY,
    NO_STORED_RUNS,
    TAKEN_EDGES_KEY,
    UNDECIDED_KEY,
    ActivationPath,
    back_edge_path,
    enclosing_round,
    is_done,
    is_finished,
    node_output,
    parse_activation,
    scope_of,
    unreached_output,
)
from bot.engine.workflow.nodes.contract import (
    EvaluationContext,
    NodeDone,
    NodeEffect,
    NodeFailure,
    NodeQuestion,
    NodeRole,
    NodeWait,
    OnLimit,
    UndecidedCondition,
)
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.nodes.registry import NodeType
from bot.engine.workflow.past_names import variables_path
from bot.engine.workflow.scheduler_state import (
    SchedulerState,
    without_halt,
)
from bot.engine.workflow.scope import LoopState, ScopeState
from bot.engine.workflow.session_lanes import SessionLanes
from storage.records.tasks import NodeRun, NodeStatus

_Runs: TypeAlias = Sequence[NodeRun]
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class WorkflowScheduler(SchedulerState):
    """Schedules one workflow from its graph and stored runs. A scheduler that was kept current with
    `record_run` equals one that is rebuilt after a crash.
    """

    @cached_property
    def session_lanes(self) -> SessionLanes:
        """Which steps share a session."""
        return SessionLanes(self.topology)

    @property
    def is_complete(self) -> bool:
        """True if nothing is running or has to be undone, and every reachable end was reached.
        Without an end, every node must be settled.
        """
        if self.running_paths or self.compensations.open:
            return False
        state = self._scopes[""]
        return self._has_reached_end if state.graph.end_nodes else state.is_complete

    @property
    def dead_end_run(self) -> NodeRun | None:
        """A run after which nothing can continue: it has outgoing edges but none could be taken, or
        no path leads from it to an end.
        """
        for _, state in sorted(self._scopes.items()):
            if (run := _find_halt(state) or _find_missed_end(state)) is not None:
                return run
        return None

    @property
    def failed_run(self) -> NodeRun | None:
        """A permanent failure that no loop around it tolerates."""
        return next(self.failed_runs(), None)

    def failed_runs(self) -> Iterator[NodeRun]:
        """All permanent failures that no loop around them tolerates."""
        for scope, state in self._scopes.items():
            if state.failed_runs and not self._tolerates_failures_in(scope):
                yield from state.failed_runs.values()

    @property
    def is_waiting(self) -> bool:
        """Whether a node waits for its time or a person, rather than for its rounds."""
        return any(not self.node_at(path).body for each in self._waiting.values() for path in each)

    @property
    def next_wake_at(self) -> datetime | None:
        """The time at which the first waiting node continues."""
        if self._is_finished:
            return None
        all_waiting = (run for each in self._waiting.values() for run in each.values())
        times = [run.wake_at for run in all_waiting if run.wake_at is not None]
        times += [at for at, place in self.deadlines_inside() if self.tolerates_failure(place.path)]
        return min(times, default=None)

    @property
    def has_pending_moves(self) -> bool:
        """Whether the scheduler can move without a step and without waiting."""
        return bool(self._active_scopes) and not self._is_finished

    @property
    def can_go_on(self) -> bool:
        """Whether the run has ended, or anything is left to run or to wait for."""
        ended = self.is_complete or self.failed_run is not None
        return (
            ended
            or self.has_pending_moves
            or self.is_waiting
            or self.is_asking
            or bool(self.running_paths)
            or next(self.ready_steps(), None) is not None
        )

    def stuck_reason(self) -> str:
        """The reason why nothing can continue, as a text for people."""
        run = self.dead_end_run
        return self._text("workflow.stuck") if run is None else self._halt_reason(run)

    def _halt_reason(self, halt: NodeRun) -> str:
        key = "workflow.edge_limit" if EXHAUSTED_EDGE_KEY in halt.output else "workflow.dead_end"
        return self._text(key, name=self.node_at(halt.path).title)

    def ready_steps(self) -> Iterator[tuple[ActivationPath, WorkflowNode]]:
        """Steps that may start now, and steps that people are asked about, which may have been
        decided by now; in the order of the plan and of the rounds. Compensations come first. Empty
        once an end has been reached.
        """
        if (undoing := self.compensations.next_step) is not None:
            yield undoing
        if self._has_reached_end or self.ending is not None:
            return
        for scope, state in tuple(self._scopes.items()):
            yield from self._limit_question_steps(scope, state)
            for path in tuple(self._waiting[scope]):
                if self.node_at(path).role is NodeRole.HUMAN and (
                    activation := parse_activation(path)
                ):
                    yield activation, self.node_at(path)
            for name in state.ready_steps():
                yield state.activation(name), state.graph.nodes[name]

    def complete_run(self, run: NodeRun, now: datetime) -> NodeRun:
        """The run as it is to be stored: with the edges taken behind it and, after a permanent
        failure, with its node's `on_error` applied.
        """
        activation, state = parse_activation(run.path), self._scopes.get(scope_of(run.path))
        if activation is None or state is None or activation.node not in state.graph.nodes:
            return run
        run = _apply_on_error(run, state.graph.nodes[activation.node])
        if not is_finished(run) or not state.graph.needs_choice_record(activation.node):
            return run
        noted = choose_edges(state, activation.node, self._context_after(run, now))
        return replace(run, output={**run.output, **noted})

    def advance(self, now: datetime, limit: int) -> _Runs:
        """Make the moves that need no worker and no waiting, until about `limit` runs were made.
        Each is recorded here and has to be stored by the caller. If none is left, only steps and
        time can continue the workflow.
        """
        rows: dict[str, NodeRun] = {}
        self._active_scopes.update(dict.fromkeys(self._scopes))
        while self._active_scopes and len(rows) < limit and not self._is_finished:
            scope = next(iter(self._active_scopes))
            made = self._advance_scope(scope, now)
            if made is None:
                self._active_scopes.pop(scope, None)
            else:
                rows.update({row.path: row for row in made})
        return tuple(rows.values())

    @property
    def _is_finished(self) -> bool:
        """True if an end was reached or the workflow failed; then the scheduler makes no more
        moves.
        """
        return self.ending is not None or self._has_reached_end or self.failed_run is not None

    @property
    def _has_reached_end(self) -> bool:
        state = self._scopes[""]
        ends = [state.runs.get(end) for end in state.graph.end_nodes]
        return any(map(is_done, ends)) and all(map(is_finished, ends))

    def _limit_question_steps(
        self, scope: str, state: ScopeState
    ) -> Iterator[tuple[ActivationPath, WorkflowNode]]:
        """Questions whether to continue after loops that have used up their rounds."""
        yield from self._limit_questions[scope].values()
        for name, run in state.exhausted_runs.items():
            edge = state.graph.bounded_edge(run.output[EXHAUSTED_EDGE_KEY])
            if edge.on_limit is OnLimit.ASK:
                facts = {"name": state.graph.nodes[name].title, "n": edge.max_loops}
                question = NodeQuestion(key="workflow.ask_limit", facts=facts)
                yield self._make_question(state.activation(name), question)
        for name, run in state.undecided_runs.items():
            title, output = self._vague_answer(state.graph.nodes[name], run)
            subject, node = run.output[UNDECIDED_KEY], state.graph.nodes[name]
            choices = node.spec.choices_of(node.settings, subject)
            question = NodeQuestion.about_condition(title, subject, output, choices)
            yield self._make_question(state.activation(name), question)

    def _vague_answer(self, node: WorkflowNode, run: NodeRun) -> tuple[str, Mapping[str, Any]]:
        """The title and the output of the node whose result leaves a condition open. For a node
        that only chooses, the first node that its condition refers to.
        """
        if node.role is NodeRole.CHOICE:
            outputs = self.context(scope_of(run.path), _EARLIEST).names["outputs"]
            with suppress(ExpressionError):
                for name, part in sorted(references(run.output[UNDECIDED_KEY]), key=str):
                    source = self.topology.nodes.get(self._aliases.get(part or "", part or ""))
                    if name == "outputs" and source is not None and source.id in outputs:
                        return source.title, outputs[source.id]
        return node.title, node_output(run)

    def _make_question(
        self, activation: ActivationPath, question: NodeQuestion, rounds: int = 0
    ) -> tuple[ActivationPath, WorkflowNode]:
        path = activation.question_path
        if question.subject:
            path = activation.decision_path(question.subject, rounds)
            self.asked_subjects[path] = question.subject
            self.asked_choices[path] = question.choices
        title = self._text(question.key, **question.facts)
        form = HumanConfig.to_choose(CHOICE_FIELD, question.choices) if question.choices else None
        detail = escape_placeholders(question.detail)
        return ActivationPath("", path), WorkflowNode(
            id=path, title=title, detail=detail, type=NodeType.HUMAN, config=form
        )

    @property
    def is_asking(self) -> bool:
        """Whether a question about a limit or a condition is open."""
        return any(self._limit_questions.values()) or any(
            state.undecided_runs or state.exhausted_runs for state in self._scopes.values()
        )

    def _advance_scope(self, scope: str, now: datetime) -> _Runs | None:
        state = self._scopes.get(scope)
        if state is None:
            return None
        if (dead := state.next_unreached_node()) is not None:
            run = self._make_run(
                state.activation(dead), NodeStatus.SKIPPED, now, unreached_output()
            )
            return self._record_runs(run)
        freed = self._waived_limits.pop() if self._waived_limits else self._decided_run(state, now)
        if freed is not None:
            return self._record_runs(freed)
        if (edge := state.next_back_edge()) is not None:
            state.start_new_round(edge)
            path = back_edge_path(scope, edge.name)
            times = {"times": state.back_edge_counts[edge.name]}
            return self._record_runs(self._make_note_run(path, times, now))
        if (name := state.next_ready_node()) is not None:
            return self._enter_node(state, name, now)
        # A round that was opened makes no row, and is a move all the same.
        moves = (
            act(scope, now)
            for act in (
                self._end_late_node,
                self._wake_due_node,
                self._advance_loop,
                self._close_round,
            )
        )
        return next((made for made in moves if made is not None), None)

    def _decided_run(self, state: ScopeState, now: datetime) -> NodeRun | None:
        """A run whose open condition a person has decided, with the edges taken now."""
        for name, run in state.undecided_runs.items():
            activation = state.activation(name)
            if self.answers_at(activation)(run.output[UNDECIDED_KEY]) is not None:
                free = without_halt(run)
                if state.graph.chooses_target(name):
                    return self._choose_again(state, name, free, now)
                noted = choose_edges(state, name, self._context_after(free, now))
                return replace(free, output={**free.output, **noted})
        return None

    def _enter_node(self, state: ScopeState, name: str, now: datetime) -> _Runs:
        activation, node = state.activation(name), state.graph.nodes[name]
        seen = replace(self.context(state.scope, now), answer=self.answers_at(activation))
        try:
            effect = node.spec.enter(node, seen)
        except UndecidedCondition as error:
            halted = {TAKEN_EDGES_KEY: [], UNDECIDED_KEY: error.subject}
            return self._record_runs(self._make_run(activation, NodeStatus.DONE, now, halted))
        return self._apply_effect(activation, node, effect, now)

    def _choose_again(self, state: ScopeState, name: str, run: NodeRun, now: datetime) -> NodeRun:
        """The run of a node that chooses its target, with what people have answered by now."""
        node, seen = state.graph.nodes[name], self._context_after(run, now)
        try:
            effect = node.spec.enter(node, seen)
        except UndecidedCondition as error:
            return replace(run, output={TAKEN_EDGES_KEY: [], UNDECIDED_KEY: error.subject})
        if not isinstance(effect, NodeDone):
            return run
        noted = choose_edges(state, name, seen, next_node=effect.next_node)
        return replace(run, output={**run.output, **effect.output, **noted})

    def _wake_due_node(self, scope: str, now: datetime) -> _Runs | None:
        """Continue a node whose wait is over."""
        for path, run in self._waiting[scope].items():
            if (
                run.wake_at is not None
                and run.wake_at <= now
                and (activation := parse_activation(path))
            ):
                node = self.node_at(path)
                effect = node.spec.wake(node, self.context(scope, now))
                return self._apply_effect(activation, node, effect, now)
        return None

    def _end_late_node(self, scope: str, now: datetime) -> _Runs | None:
        """Fail a node with a body that is out of time, if the workflow tolerates that, and cancel
        what runs inside it.
        """
        for at, place in self.deadlines_inside(scope):
            if at <= now and self.tolerates_failure(place.path):
                why = self.late_reason(place)
                left = self._lost_output(place, now)
                ended = tuple(self._cancel_rounds(place, why, now))
                failed = replace(self._make_run(place, NodeStatus.FAILED, now, left), error=why)
                return (*ended, *self._record_runs(self.complete_run(failed, now)))
        return None

    def _advance_loop(self, scope: str, now: datetime) -> _Runs | None:
        """Open a round of a loop in this scope, or finish the loop."""
        for loop in self._loops[scope].values():
            seen = self.context(scope, now)
            seen = replace(
                seen,
                names={**seen.names, "loopCount": loop.opened_rounds},
                answer=self.answers_at(loop.activation, loop.opened_rounds),
            )
            self._limit_questions[scope].pop(loop.activation.path, None)
            effect = loop.node.loop.next_action(loop.node, loop.progress, seen)
            match effect:
                case NodeWait():
                    self._open_round(loop, NO_STORED_RUNS)
                    return ()
                case NodeQuestion():
                    self._limit_questions[scope][loop.activation.path] = self._make_question(
                        loop.activation, effect, loop.opened_rounds
                    )
                case NodeDone() | NodeFailure():
                    return self._apply_effect(loop.activation, loop.node, effect, now)
                case None:
                    pass
                case never:
                    assert_never(never)
        return None

    def _close_round(self, scope: str, now: datetime) -> _Runs | None:
        """Close a round that is over, or that has failed where failures are tolerated."""
        state, above = self._scopes[scope], enclosing_round(scope)
        if above is None:
            return None
        path, n = above
        loop = self._loops[scope_of(path)].get(path)
        if loop is None:
            del self._scopes[scope]
            return ()
        lost = self._round_failure(state)
        if lost is not None and not loop.tolerates_failure:
            return self._fail_loop(loop, lost, now)
        if lost is None and not state.is_complete:
            return None
        seen = self.context(scope, now)
        loop.close_round(n, state, lost, seen)
        del self._scopes[scope]
        self._active_scopes[scope_of(path)] = None
        return ()

    def _round_failure(self, state: ScopeState) -> str | None:
        """Why a round can have no result any more."""
        if state.failed_runs:
            return (
                next(iter(state.failed_runs.values())).error if state.has_nothing_active else None
            )
        halt = (_find_halt(state) or _find_missed_end(state)) if state.is_idle else None
        if halt is None:
            return None
        edge = halt.output.get(EXHAUSTED_EDGE_KEY)
        is_asked = edge is not None and state.graph.bounded_edge(edge).on_limit is OnLimit.ASK
        return None if is_asked else self._halt_reason(halt)

    def _fail_loop(self, loop: LoopState, why: str, now: datetime) -> _Runs | None:
        """Fail a loop together with its round if something further out tolerates that and nothing
        inside the loop is running any more.
        """
        inside = [scope for scope in self._scopes if scope.startswith(f"{loop.activation.path}[")]
        still = all(self._scopes[scope].has_nothing_active for scope in inside)
        if not (still and self._tolerates_failures_in(loop.activation.scope)):
            return None
        left = self._lost_output(loop.activation, now)
        for scope in inside:
            del self._scopes[scope]
        failed = self._make_run(loop.activation, NodeStatus.FAILED, now, left)
        return self._record_runs(self.complete_run(replace(failed, error=why), now))

    def _apply_effect(
        self, activation: ActivationPath, node: WorkflowNode, effect: NodeEffect, now: datetime
    ) -> _Runs:
        match effect:
            case NodeWait(until=until, output=output, iteration=of):
                run = self._make_run(activation, NodeStatus.WAITING, now, output)
                if of is None:
                    return self._record_runs(replace(run, wake_at=until))
                return self._record_runs(
                    self._make_note_run(activation.iteration_path, of, now), run
                )
            case NodeFailure(key=key, facts=facts):
                failed = self._make_run(activation, NodeStatus.FAILED, now, {})
                told = {
                    name: fact.in_words(self._text) if isinstance(fact, ExpressionError) else fact
                    for name, fact in facts.items()
                }
                return self._record_runs(
                    self.complete_run(replace(failed, error=self._text(key, **told)), now)
                )
            case NodeDone(output=output, variables=variables, next_node=to):
                notes: _Runs = ()
                if variables:
                    # First: the edges behind an assignment depend on what it has assigned.
                    scope = activation.scope
                    known = {**self.context(scope, now).names["variables"], **variables}
                    path = variables_path(self.topology, scope)
                    notes = self._record_runs(self._make_note_run(path, known, now))
                    self._assignments += 1
                    output = {**output, ASSIGNMENT_KEY: self._assignments}
                done = self._make_run(activation, NodeStatus.DONE, now, output)
                noted = choose_edges(
                    self._scopes[activation.scope],
                    activation.node,
                    self._context_after(done, now),
                    next_node=to,
                )
                done = replace(done, output={**output, **noted})
                if node.role is NodeRole.JOIN:
                    return (*self._record_runs(done), *self._cancel_branches(activation, now))
                return (*self._record_runs(done), *notes)

    def _cancel_branches(self, join: ActivationPath, now: datetime) -> Iterator[NodeRun]:
        """Cancel the branches that have not arrived at a join that cancels the others."""
        state = self._scopes[join.scope]
        if names := state.unfinished_branch_nodes(join.node):
            why = self._text("workflow.cancelled_for", name=state.graph.nodes[join.node].title)
            lost = [
                state.activation(each).path for each in state.lost_branch_nodes(join.node, names)
            ]
            inside = tuple(f"{path}[" for path in lost)
            undone = [path for path in self._runs if path in lost or path.startswith(inside)]
            due = tuple(self.compensations.due(self.task_id, among=undone))
            for name in names:
                yield from self._cancel(state.activation(name), why, now)
            yield from self._record_runs(*due)

    def _cancel(self, activation: ActivationPath, why: str, now: datetime) -> Iterator[NodeRun]:
        """Cancel an activation; what has begun in its rounds is cancelled first."""
        ended = self._cancelled_run(activation, why, now)
        yield from self._cancel_rounds(activation, why, now)
        self._limit_questions[activation.scope].pop(activation.path, None)
        yield from self._record_runs(ended)

    def _cancel_rounds(
        self, activation: ActivationPath, why: str, now: datetime
    ) -> Iterator[NodeRun]:
        has_rounds = bool(self.topology.nodes[activation.node].body)
        inside = f"{activation.path}["
        for scope in [each for each in self._scopes if has_rounds and each.startswith(inside)]:
            for name, run in tuple(self._scopes[scope].runs.items()):
                if not is_finished(run):
                    place = self._scopes[scope].activation(name)
                    yield from self._record_runs(self._cancelled_run(place, why, now))
            del self._scopes[scope]
            self._loops.pop(scope, None)
            self._waiting.pop(scope, None)
            self._limit_questions.pop(scope, None)

    def _record_runs(self, *runs: NodeRun) -> _Runs:
        for run in runs:
            self.record_run(run)
        return runs

    def _context_after(self, run: NodeRun, now: datetime) -> EvaluationContext:
        """The names that the edges after a run may use, including its own output."""
        seen = self.context(scope_of(run.path), now)
        name = self.node_at(run.path).id
        alias = name.replace("-", "_")
        known = {name, alias} if self._aliases.get(alias) == name else {name}
        outputs = ChainMap(dict.fromkeys(known, node_output(run)), seen.names["outputs"])
        states = ChainMap(dict.fromkeys(known, run.status.value), seen.names["nodeStates"])
        activation = parse_activation(run.path)
        assert activation is not None
        return replace(
            seen,
            names={**seen.names, "outputs": outputs, "nodeStates": states},
            answer=self.answers_at(activation),
        )


def _find_halt(state: ScopeState) -> NodeRun | None:
    """The first run, in the order of the plan, after which nothing can continue."""
    halts = {**state.dead_end_runs, **state.exhausted_runs}
    return halts[min(halts, key=state.graph.node_order.__getitem__)] if halts else None


def _find_missed_end(state: ScopeState) -> NodeRun | None:
    """The run after which no path leads to an end; None while an end can still be reached."""
    ends = [state.runs.get(end) for end in state.graph.end_nodes]
    is_missed = ends and all(map(is_finished, ends)) and not any(map(is_done, ends))
    return state.last_reached_run() if is_missed else None


def _apply_on_error(run: NodeRun, node: WorkflowNode) -> NodeRun:
    """Apply the node's `on_error` to a run that failed for good."""
    if run.status is not NodeStatus.FAILED or node.on_error is OnError.FAIL:
        return run
    skips = node.on_error is OnError.SKIP
    status = NodeStatus.SKIPPED if skips else NodeStatus.DONE
    return replace(run, status=status, output={**run.output, "error": run.error})
