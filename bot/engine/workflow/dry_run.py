"""Dry runs: a workflow runs to its end without a model, a person or a store. The transitions are
those of a real run; the outputs are given.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast
from zoneinfo import ZoneInfo

from bot.engine.llm.backend import RunLimits
from bot.engine.memory.token_budget import estimate_tokens
from bot.engine.workers.personas import BUILT_IN_PERSONAS, Persona
from bot.engine.workflow import checkpoint_events as events
from bot.engine.workflow import prompts
from bot.engine.workflow.compensation import ending_by_stop
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.expressions.operations import ExpressionError
from bot.engine.workflow.node_runs import (
    CHOICE_FIELD,
    compensated_path,
    is_unreached,
    parse_activation,
    public_value,
    scope_of,
    taken_edges,
)
from bot.engine.workflow.nodes.contract import CallTypeSpec, NodeRole
from bot.engine.workflow.run_state import LeaseMemory, TaskRunState
from bot.engine.workflow.sample_scope import sample_output
from bot.engine.workflow.step_approvals import (
    AddFacts,
    CreateRequest,
    FindNewest,
    StepApprovalRules,
    WithdrawRequests,
    command_hash,
)
from bot.engine.workflow.transitions import Outcome, transition
from cards.catalog import TextCatalog
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.dry_runs import CostBounds, DryRunEnd, DryRunNode, WorkflowDryRun
from storage.records.people import ChatId, PersonId
from storage.records.tasks import (
    NodeRun,
    NodeStatus,
    Task,
    TaskControl,
    TaskId,
    TaskPhase,
    TaskPriority,
    TaskStatus,
)
from storage.records.workflows import PreparedWorkflow

MAX_ACTIVATIONS = 5_000
"""Activations of nodes in one dry run."""

_TASK = TaskId("dry-run")
_APPROVED_BY = PersonId("dry-run")


class OutputMisfit(ValueError):
    """A given output does not fit what the step at `path` can return."""

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenResults:
    """The given results of a dry run.

    `outputs` is keyed by the id of a node or by the label of one activation. A text is a worker's
    answer, a mapping holds the answer's values, `{error: …}` is a failure, and a list has one of
    these for each activation (the last one repeats). For people's steps, `false` or `{approved:
    false}` rejects. `decisions` answers conditions that an output leaves open. `stop` is the label
    of the activation during which the Boss stops the run.
    """

    stop: str = ""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    decisions: Mapping[str, bool | str] = field(default_factory=dict)

    def find_decision(self, subject: str, choices: Sequence[str]) -> bool | str | None:
        """Find the given answer of a person: yes, no, or one of the choices; None without one. A
        choice may also be given as `subject == "choice": true`.
        """
        for each in choices:
            if self.decisions.get(f"{subject} == {json.dumps(each, ensure_ascii=False)}"):
                return each
        given = self.decisions.get(subject)
        return given if given is None or not choices or given in choices else False

    def find(self, node: str, label: str, times: int) -> Any:
        """Find the given output of an activation; None if there is none. `times` is the number of
        earlier activations of the node.
        """
        if label in self.outputs and label != node:
            return self.outputs[label]
        given = self.outputs.get(node, self.outputs.get(node.replace("-", "_")))
        if isinstance(given, list):
            return given[min(times, len(given) - 1)] if given else None
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunConditions:
    """The conditions of the dry run. `price` returns the maximum cost of that many input and output
    tokens; without it, only tokens are reported. `risk_words` make a step ask first.
    `max_context_tokens` is the length at which a worker's session is replaced.
    """

    words: TextCatalog
    now: datetime
    zone: ZoneInfo
    max_context_tokens: int
    approval_lifetime: timedelta
    limits: RunLimits = field(default_factory=RunLimits)
    personas: Mapping[str, Persona] = field(default_factory=lambda: BUILT_IN_PERSONAS)
    risk_words: Sequence[str] = ()
    model: str = ""
    price: Callable[[int, int], Decimal | None] = lambda _input, _output: None
    project: str = ""


def dry_run(
    name: str,
    workflow: Workflow,
    prepared: PreparedWorkflow,
    given: GivenResults,
    conditions: DryRunConditions,
) -> WorkflowDryRun:
    """Run the workflow to its end. `workflow` has its input values; `prepared` holds the words of
    the task. Blocking. Raises OutputMisfit.
    """
    return DryRun(workflow, _make_task(prepared, conditions), given, conditions).run(name)


@dataclass(kw_only=True, eq=False)
class RequestsInMemory:
    """Replaces the store for the requests that the transitions of one task send to people."""

    task: Task
    lifetime: timedelta
    by_id: dict[str, Approval] = field(default_factory=dict)

    def decide(
        self, deciding: events.Deciding[Outcome], answer: Callable[[events.StoreCall], object]
    ) -> Outcome:
        given: object = None
        while True:
            try:
                call = deciding.send(given)
            except StopIteration as ended:
                return cast("Outcome", ended.value)
            given = answer(call)

    def answer(self, call: events.StoreCall, now: datetime) -> Any:
        """No tool call is ever suspended here, no budget reached, no subagent started."""
        match call:
            case FindNewest(kind=kind, path=path):
                asked = [a for a in self.by_id.values() if (a.kind, a.path) == (kind, path)]
                return asked[-1] if asked else None
            case AddFacts(approval=approval, facts=facts):
                payload = {**approval.payload, **facts}
                self.by_id[approval.id] = replace(approval, payload=payload)
            case WithdrawRequests(is_over=is_over):
                for each in self.list_waiting():
                    if is_over(each.path):
                        self.settle(each, ApprovalState.EXPIRED)
            case CreateRequest(node=node, kind=kind):
                return self._create(kind, node, now)
            case events.CountSubagents():
                return 0
        return None

    def list_waiting(self) -> list[Approval]:
        return [a for a in self.by_id.values() if a.state is ApprovalState.WAITING]

    def settle(
        self,
        asked: Approval,
        state: ApprovalState,
        *,
        by: PersonId | None = None,
        reason: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> None:
        payload = asked.payload if values is None else {**asked.payload, "values": values}
        self.by_id[asked.id] = replace(
            asked, state=state, decided_by=by, reason=reason, payload=payload
        )

    def _create(self, kind: ApprovalKind, node: WorkflowNode, now: datetime) -> Approval:
        approval = Approval(
            id=f"a{len(self.by_id)}",
            kind=kind,
            task_id=self.task.id,
            path=node.id,
            subject="",
            chat_id=self.task.chat_id,
            title=node.title,
            detail=f"{node.title}\n{node.detail}".strip(),
            command_hash=command_hash(node),
            approvers=(),
            state=ApprovalState.WAITING,
            decided_by=None,
            decided_at=None,
            reason="",
            created_at=now,
            expires_at=now + self.lifetime,
        )
        self.by_id[approval.id] = approval
        return approval


class DryRun:
    """Replaces the store, the people and the workers for the transitions."""

    def __init__(
        self, workflow: Workflow, task: Task, given: GivenResults, conditions: DryRunConditions
    ) -> None:
        self._given = given
        self._conditions = conditions
        self._now = conditions.now
        self._rules = StepApprovalRules(conditions.risk_words)
        self._memory = LeaseMemory()
        self.state = TaskRunState(
            task=task,
            runs={},
            zone=conditions.zone,
            text=conditions.words,
            workflow=workflow,
            plan_version=1,
            # Whoever asks sees which outputs have no value; the log is for real runs.
            warn=lambda _text: None,
        )
        self._running: dict[str, events.StartedStep] = {}
        self._requests = RequestsInMemory(task=task, lifetime=conditions.approval_lifetime)
        self._nodes: dict[str, DryRunNode] = {}
        self._times: Counter[str] = Counter()
        self._labels: dict[str, str] = {}
        self._label_counts: Counter[tuple[str, str]] = Counter()
        self._delivered: dict[str, prompts.DeliveredContext] = {}
        self._undecided = ""

    def run(self, name: str) -> WorkflowDryRun:
        action = self._commit(events.Started())
        end: DryRunEnd | None = None
        while end is None:
            if len(self._nodes) > MAX_ACTIVATIONS:
                end = DryRunEnd.TOO_LONG
            elif action is not None:
                action = self._go_on(action)
            elif self.state.task.status is TaskStatus.WAITING:
                if not self._decide_or_wait():
                    end = DryRunEnd.UNDECIDED
                else:
                    action = self._commit(events.Started())
            else:
                end = _ENDS.get(self.state.task.status, DryRunEnd.FAILED)
        return self._result(name, end)

    # --- one transition

    def _commit(self, event: events.CheckpointEvent) -> events.NextAction:
        outcome = self._decide(event)
        self._memory = outcome.memory
        for run in outcome.changes.runs.values():
            self._note(run)
        for run in outcome.changes.cancelled:
            del self._running[run.path]
        if isinstance(outcome.next, events.StepsStarted):
            for step in outcome.next.steps:
                self._begin(step)
        return outcome.next

    def _decide(self, event: events.CheckpointEvent) -> Outcome:
        deciding = transition(
            self.state, self._memory, event, rules=self._rules, session_id="", now=self._now
        )
        return self._requests.decide(deciding, self._answer)

    def _answer(self, call: events.StoreCall) -> object:
        answer = self._requests.answer(call, self._now)
        if isinstance(call, CreateRequest) and call.kind is ApprovalKind.HUMAN:
            self._show_person_step(call.node)
        return answer

    def _show_person_step(self, node: WorkflowNode) -> None:
        activation = parse_activation(node.id)
        if activation is not None and node.id not in self._nodes:
            run = self.state.scheduler.new_run(activation, NodeStatus.WAITING, self._now)
            self._nodes[node.id] = replace(self._describe(node.id, run), title=node.title)

    # --- workers, people and time

    def _go_on(self, action: events.NextAction) -> events.NextAction:
        match action:
            case events.FilesUnchecked():
                return self._commit(events.FilesChecked(missing=()))
            case events.MergePending():
                return self._commit(events.Merged(note=""))
            case events.StepsStarted(wake_at=wake_at) if not self._running:
                self._now = max(self._now, wake_at or self._now)
                return self._commit(events.Woken())
            case _:
                return self._end_step(next(iter(self._running)))

    def _begin(self, step: events.StartedStep) -> None:
        self._running[step.node.id] = step
        asked = [a for a in self._requests.by_id.values() if a.path == step.node.id]
        described = replace(
            self._describe(step.node.id, step.run), title=step.node.title, asks=bool(asked)
        )
        if step.node.role is NodeRole.TASK:
            prompt = self._prompt(step)
            persona = self._persona(step.node)
            rules = prompts.step_system(self._conditions.words.language)
            system = "\n\n".join(filter(None, (persona.system_text, rules)))
            cost = self._cost(step.node, f"{system}\n{prompt}", persona)
            described = replace(described, prompt=prompt, system=system, cost=cost)
        elif isinstance(step.node.spec, CallTypeSpec):
            described = replace(described, prompt=step.node.spec.describe(step.node.config))
        self._nodes[step.node.id] = described

    def _prompt(self, step: events.StartedStep) -> str:
        return prompts.step_prompt(
            step.task,
            step.workflow,
            step.runs,
            step.node,
            last_error="",
            messages=(),
            delivered=self._delivered.get(step.lane, prompts.NOTHING_DELIVERED),
        )

    def _end_step(self, path: str) -> events.NextAction:
        if self._given.stop and self._label(path) == self._given.stop:
            return self._stop()
        step = self._running.pop(path)
        node = self._node_at(path) if _is_of_node(path) else step.node
        given = self._find_given(node.id, path)
        self._now += timedelta(seconds=1)
        if isinstance(given, Mapping) and set(given) == {"error"}:
            run = replace(step.run, status=NodeStatus.FAILED, error=str(given["error"]))
        else:
            output = self._output(node, path, given)
            run = replace(step.run, status=NodeStatus.DONE, output={**step.run.output, **output})
            before = self._delivered.get(step.lane, prompts.NOTHING_DELIVERED)
            self._delivered[step.lane] = prompts.DeliveredContext(
                task=True, steps=before.steps | {path}
            )
        self._nodes[path] = replace(self._nodes[path], is_given=given is not None)
        run = replace(run, ended_at=self._now)
        return self._commit(events.StepEnded(run=run, title=step.node.title, reply=None))

    def _stop(self) -> events.NextAction:
        """End the run as if the Boss stopped it now."""
        self._given, state = replace(self._given, stop=""), self.state
        rows = ending_by_stop(_TASK, state.workflow, state.runs, self._now)
        for path in self._running:
            cut_off = replace(state.runs[path], status=NodeStatus.PENDING, ended_at=self._now)
            state.record_run(cut_off)
            ended = replace(self._nodes[path], status=NodeStatus.CANCELLED, is_given=True)
            self._nodes[path] = ended
        for row in rows:
            state.record_run(row)
        self._running.clear()
        self._memory = LeaseMemory()
        if rows:
            return self._commit(events.Started())
        state.task = replace(state.task, status=TaskStatus.CANCELLED)
        return None

    def _find_given(self, node: str, path: str) -> Any:
        times = self._times[node]
        self._times[node] += 1
        return self._given.find(node, self._label(path), times)

    def _label(self, path: str) -> str:
        """The scope, the node's id and, from its second time in this scope on, a count such as
        `#2`.
        """
        if path not in self._labels and _is_of_node(path):
            key = (scope_of(path), self._node_at(path).id)
            self._label_counts[key] += 1
            again = f"#{self._label_counts[key]}" if self._label_counts[key] > 1 else ""
            self._labels[path] = f"{key[0]}{key[1]}{again}"
        return self._labels.get(path, path)

    def _node_at(self, path: str) -> WorkflowNode:
        flow = self.state.scheduler
        undoes = compensated_path(path) is not None
        return flow.compensations.node_of(path) if undoes else flow.node_at(path)

    def _output(self, node: WorkflowNode, path: str, given: Any) -> Mapping[str, Any]:
        if given is None:
            return {"summary": f"⟨{node.id}⟩"}
        try:
            return sample_output(node, given)
        except ValueError as error:
            raise OutputMisfit(path, str(error)) from error

    def _decide_or_wait(self) -> bool:
        """Answer what waits for people, or let time pass. False if a condition has no answer."""
        open_ = self._requests.list_waiting()
        for each in open_:
            self._answer_request(each)
        if self._undecided and len(self._requests.list_waiting()) == len(open_):
            return False
        if not open_:
            self._now = max(self._now, self.state.task.wake_at or self._now)
        self.state.task = replace(self.state.task, status=TaskStatus.RUNNING, wake_at=None, epoch=1)
        self._memory = LeaseMemory()
        return True

    def _answer_request(self, asked: Approval) -> None:
        approve, reason, is_given = True, "", True
        values: Mapping[str, Any] | None = None
        if asked.kind is ApprovalKind.CONDITION:
            subject = self._subject_at(asked.path)
            choices = self.state.scheduler.asked_choices.get(asked.path, ())
            decision = self._given.find_decision(subject, choices)
            if decision is None:
                self._undecided = self._undecided or subject
                return
            approve = decision is not False
            values = {CHOICE_FIELD: decision} if isinstance(decision, str) else None
        elif asked.kind is ApprovalKind.HUMAN and _is_of_node(asked.path):
            given = self._find_given(self._node_at(asked.path).id, asked.path)
            is_given = given is not None
            if isinstance(given, Mapping):
                approve, reason = bool(given.get("approved", True)), str(given.get("reason", ""))
            elif isinstance(given, str):
                reason = given
            else:
                approve = given is not False
        state = ApprovalState.APPROVED if approve else ApprovalState.REJECTED
        self._requests.settle(asked, state, by=_APPROVED_BY, reason=reason, values=values)
        if (before := self._nodes.get(asked.path)) is not None:
            status = before.status if approve else NodeStatus.FAILED
            self._nodes[asked.path] = replace(before, is_given=is_given, status=status)

    def _subject_at(self, path: str) -> str:
        """The subject of the condition that is asked about at this path."""
        return self.state.scheduler.asked_subjects.get(path, path)

    # --- what is told

    def _persona(self, node: WorkflowNode) -> Persona:
        name = node.persona.strip().casefold()
        default = next(iter(BUILT_IN_PERSONAS.values()))
        return self._conditions.personas.get(name, default)

    def _cost(self, node: WorkflowNode, told: str, persona: Persona) -> CostBounds:
        limits = node.limits.apply(persona.limits.apply(self._conditions.limits))
        least = estimate_tokens(told)
        most = max(least, limits.turns * self._conditions.max_context_tokens)
        return CostBounds(
            least_input=least,
            most_input=most,
            most_output=limits.output_tokens,
            least=self._conditions.price(least, 0),
            most=self._conditions.price(most, limits.output_tokens),
        )

    def _note(self, run: NodeRun) -> None:
        """Record a node that has begun, or that was skipped because its author says so."""
        activation = parse_activation(compensated_path(run.path) or run.path)
        if activation is None or activation.node not in self.state.scheduler.topology.nodes:
            return
        if run.status is NodeStatus.PENDING and run.error:
            run = replace(run, status=NodeStatus.FAILED)
        if run.status is NodeStatus.PENDING or is_unreached(run):
            return
        before = self._nodes.get(run.path)
        described = self._describe(run.path, run)
        if before is None:
            self._nodes[run.path] = described
            return
        self._nodes[run.path] = replace(
            before,
            status=run.status,
            output=described.output,
            error=run.error,
            taken=described.taken,
            waits_until=run.wake_at or before.waits_until,
        )

    def _describe(self, path: str, run: NodeRun) -> DryRunNode:
        node = self._node_at(path)
        asks = node.role is NodeRole.HUMAN
        return DryRunNode(
            path=path,
            label=self._label(path),
            id=node.id,
            type=str(node.type),
            title=node.title,
            persona=node.persona,
            is_step=node.role.is_counted,
            status=run.status,
            taken=self._taken(node.id, run),
            output={key: value for key, value in run.output.items() if not key.startswith("@")},
            error=run.error,
            has_begun=run.status is not NodeStatus.CANCELLED or run.started_at is not None,
            asks=asks,
            waits_until=run.wake_at,
            time_limit=node.time_limit,
        )

    def _taken(self, node: str, run: NodeRun) -> tuple[str, ...]:
        if not run.status.is_settled:
            return ()
        chosen = taken_edges(run)
        edges = [edge for edge in self.state.workflow.edges if edge.source == node]
        return tuple(
            edge.target
            for edge in edges
            if (edge.name in chosen if chosen is not None else not edge.condition)
        )

    def _result(self, name: str, end: DryRunEnd) -> WorkflowDryRun:
        task, flow = self.state.task, self.state.scheduler
        begun = {each.id for each in self._nodes.values()}
        skipped = tuple(
            node.id
            for node in self.state.workflow.nodes
            if node.id not in begun and not node.role.is_terminal
        )
        outputs: dict[str, Any] = {}
        missing: dict[str, str] = {}
        seen = flow.context("", self._now)
        for key, expression in self.state.workflow.outputs.items():
            try:
                outputs[key] = public_value(seen.evaluate(expression))
            except ExpressionError as error:
                missing[key] = error.in_words(self.state.text)
        costs = [each.cost for each in self._nodes.values() if each.cost is not None]
        reason = task.status_reason if end is not DryRunEnd.COMPLETED else ""
        return WorkflowDryRun(
            name=name,
            end=end,
            reason=reason,
            undecided=self._undecided if end is DryRunEnd.UNDECIDED else "",
            nodes=tuple(self._nodes.values()),
            skipped=skipped,
            outputs=outputs,
            missing_outputs=missing,
            cost=sum(costs[1:], costs[0]) if costs else None,
            model=self._conditions.model,
        )


def _is_of_node(path: str) -> bool:
    """Whether the path is an activation of the node, or of its compensation."""
    return parse_activation(compensated_path(path) or path) is not None


_ENDS = {
    TaskStatus.COMPLETED: DryRunEnd.COMPLETED,
    TaskStatus.BLOCKED: DryRunEnd.BLOCKED,
    TaskStatus.CANCELLED: DryRunEnd.CANCELLED,
}


def _make_task(prepared: PreparedWorkflow, conditions: DryRunConditions) -> Task:
    return Task(
        id=_TASK,
        title=prepared.title,
        instruction=prepared.instruction,
        priority=TaskPriority.IMPORTANT,
        status=TaskStatus.RUNNING,
        status_reason="",
        phase=TaskPhase.DOING,
        control=TaskControl.RUN,
        chat_id=ChatId(""),
        reply_to="",
        created_by=_APPROVED_BY,
        project_dir=conditions.project,
        model="",
        backend="",
        files=(),
        graph_version=1,
        epoch=1,
        failures_in_row=0,
        replans=0,
        summary="",
        created_at=conditions.now,
        started_at=conditions.now,
        ended_at=None,
    )
