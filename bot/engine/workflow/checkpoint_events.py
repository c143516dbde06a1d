"""The vocabulary of a checkpoint: the events that happen to a task, the next actions of its runner,
and the calls to the store in between."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from bot.engine.agent.model_calls import ModelReply
from bot.engine.llm.answer_schemas import StepAnswer
from bot.engine.llm.backend import ReachedCap
from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.node_runs import (
    REPORTED_ERROR_KEY,
    SOUND_FILES_KEY,
    SUSPENDED_KEY,
    VALUE_FILES_KEY,
)
from bot.engine.workflow.report_delivery import (
    DELIVERED_COUNT_KEY,
    WITHHELD_REPORTS_KEY,
    format_messages,
    messages_for_step,
)
from bot.engine.workflow.step_approvals import ApprovalCall, command_hash
from storage.records.tasks import NodeRun, Task, TaskStatus

if TYPE_CHECKING:
    from bot.engine.agent.requested_values import FileMark

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanRequest:
    """Why the rest of the task needs a new plan. `order_number` is the number of the command that
    asks for it, 0 if the work itself does. `partial_runs` are the results of the finished rounds of
    running loops."""

    reason: str
    order_number: int = 0
    partial_runs: Sequence[NodeRun] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedStep:
    """A step that was marked running, and all that its worker may see.

    `node` is the step as it runs this time: its id is the path of this activation, and its
    placeholders are filled in. `runs` maps every path to its run, and every node id to the run that
    counts for this step. `messages` are those that people have sent to the worker since the task
    was created; `withheld_reports` are the numbers of subagent reports among them that other steps
    receive. With `replan` a new plan is requested before the step is attempted. With `is_resumed`
    the step's session ends with tool calls that people have decided about. `lane` is the session
    that the step shares with others. `sound_files` are the workspace files that could be parsed
    before the first attempt; in `value_files` the step has to change a value.
    """

    task: Task
    workflow: Workflow
    runs: Mapping[str, NodeRun]
    node: WorkflowNode
    run: NodeRun
    messages: Sequence[str]
    replan: ReplanRequest | None = None
    is_resumed: bool = False
    lane: str = ""
    withheld_reports: frozenset[int] = frozenset()
    sound_files: frozenset[str] = frozenset()
    value_files: Mapping[str, FileMark] = field(default_factory=dict)

    @property
    def delivery_output(self) -> dict[str, object]:
        """Output fields that record which messages and reports this step's worker received."""
        output: dict[str, object] = {DELIVERED_COUNT_KEY: len(self.messages)}
        if self.withheld_reports:
            output[WITHHELD_REPORTS_KEY] = sorted(self.withheld_reports)
        return output

    @property
    def suspended_output(self) -> dict[str, object]:
        """The output of this step when it stops at tool calls: the step's hash, and the messages
        that its worker has received."""
        return {
            SUSPENDED_KEY: command_hash(self.node),
            **self.delivery_output,
            **self.unfinished_output,
        }

    @property
    def unfinished_output(self) -> dict[str, object]:
        """Output fields for the next attempt of this step."""
        marks = {name: list(mark) for name, mark in self.value_files.items()}
        return {SOUND_FILES_KEY: sorted(self.sound_files), VALUE_FILES_KEY: marks}

    @property
    def stored_sound_files(self) -> frozenset[str] | None:
        """The `sound_files` of an earlier attempt. None for the first attempt, and after one that
        was cut off.
        """
        run = self.runs.get(self.node.id)
        names = None if run is None else run.output.get(SOUND_FILES_KEY)
        return None if names is None else frozenset(map(str, names))

    @property
    def stored_value_files(self) -> Mapping[str, FileMark]:
        """The `value_files` of an earlier attempt; empty after one that was cut off."""
        run = self.runs.get(self.node.id)
        marks: Mapping[str, Any] = {} if run is None else run.output.get(VALUE_FILES_KEY, {})
        return {name: (int(old), int(new), str(rest)) for name, (old, new, rest) in marks.items()}

    @property
    def last_error(self) -> str:
        """The error of the previous attempt, if the worker can do something about it; empty for the
        first attempt. An outage of the model is left out, because small models report it as their
        own failure.
        """
        run = self.runs.get(self.node.id)
        return "" if run is None else str(run.output.get(REPORTED_ERROR_KEY, run.error))

    @property
    def last_report(self) -> str:
        """The worker's report of its previous attempt, possibly shortened; empty for the first
        attempt.
        """
        run = self.runs.get(self.node.id)
        return "" if run is None else str(run.output.get("summary", ""))

    @property
    def failed_report(self) -> str:
        """The worker's own words if they are the error of its previous attempt; otherwise empty."""
        report = self.last_report
        return self.last_error if report and self.last_error.startswith(report) else ""

    @property
    def prompt_messages(self) -> Sequence[str]:
        """All messages from people, and the subagent reports that are not delivered to another
        step."""
        return messages_for_step(self.messages, self.runs, self.withheld_reports)

    @property
    def new_messages(self) -> str:
        """Messages from people to the worker since the step stopped."""
        run = self.runs.get(self.node.id)
        received = int(run.output.get(DELIVERED_COUNT_KEY, 0)) if run is not None else 0
        new = [
            text
            for n, text in enumerate(self.messages)
            if n >= received and n not in self.withheld_reports
        ]
        return "\n\n".join(format_messages(new))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningStarted:
    """Planning has begun. Holds its run and the messages that people have sent to the worker so
    far.
    """

    run: NodeRun
    messages: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsStarted:
    """The steps that were marked running. Empty while others still run, or when the automatic moves
    did not all fit into one transaction.

    The runner has to commit a `Woken` at `wake_at`, or, with `wakes_on_signal`, as soon as a person
    has decided or ordered something.
    """

    steps: tuple[StartedStep, ...] = ()
    wake_at: datetime | None = None
    wakes_on_signal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePending:
    """All steps are done; the work has to be merged into its project."""

    task: Task


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesUnchecked:
    """All steps of a branching plan are done, but it is not yet known whether they made the files
    that the task asks for.
    """

    task: Task
    files: tuple[str, ...]


NextAction: TypeAlias = PlanningStarted | StepsStarted | MergePending | FilesUnchecked | None
"""The runner's action after a checkpoint; None if the slot was given back."""


@dataclass(frozen=True, slots=True)
class PlanningBegun:
    """The task was claimed without a plan, or its planning is tried again."""


@dataclass(frozen=True, slots=True)
class PlanAdopted:
    """The planner has made the first plan. Without a reply the model gave none."""

    run: NodeRun
    reply: ModelReply | None
    plan: Workflow


@dataclass(frozen=True, slots=True)
class RunStopped:
    """The task's run ends with this status and reason, and so does the current attempt: as failed,
    or, with `may_retry`, as if it had not been made."""

    run: NodeRun
    status: TaskStatus
    reason: str
    may_retry: bool = False


@dataclass(frozen=True, slots=True)
class PlanReplaced:
    """A new plan for the unfinished part. `step` of the old plan was marked running but not
    attempted."""

    step: StartedStep
    reply: ModelReply
    plan: Workflow


@dataclass(frozen=True, slots=True)
class Started:
    """The task was claimed and has a plan. Nothing of it ran between its last checkpoint and
    `since`, if that is later."""

    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Woken:
    """A wait may be over, or a person may have decided something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded:
    """How an attempt at a step ended.

    `notes` is what the worker wants remembered. With `may_retry` the step may run again. `stop`
    ends the task's run with that status and reason instead; `is_permanent` does so even where the
    workflow tolerates a failure of the step. `replan_reason` asks for a new plan of the rest, which
    is made once the steps that still run have ended and before the next one starts. `is_call` marks
    a step that calls a tool itself.
    """

    run: NodeRun
    title: str
    reply: ModelReply | None
    notes: StepAnswer | None = None
    may_retry: bool = False
    stop: tuple[TaskStatus, str] | None = None
    is_permanent: bool = False
    replan_reason: str = ""
    is_call: bool = False


@dataclass(frozen=True, slots=True)
class StepSuspended:
    """A step has stopped at tool calls that a person has to decide about. A step that calls a tool
    itself has no reply; it stops at the call with this session and id.
    """

    step: StartedStep
    reply: ModelReply | None
    reason: str
    call: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class BudgetReached:
    """The next model call of this run would exceed a spending cap."""

    run: NodeRun
    hit: ReachedCap
    reason: str


@dataclass(frozen=True, slots=True)
class ReasonChanged:
    """Show a new reason on the card why the task does not continue. It is dropped if the card no
    longer shows the reason in `replaces`.
    """

    reason: str
    text: str
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class FilesChecked:
    """The files that the task asks for were looked up; `missing` are those that do not exist."""

    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """The work was merged into its project; otherwise `note` says why not."""

    note: str


CheckpointEvent: TypeAlias = (
    PlanningBegun
    | PlanAdopted
    | RunStopped
    | PlanReplaced
    | Started
    | Woken
    | StepEnded
    | StepSuspended
    | BudgetReached
    | ReasonChanged
    | FilesChecked
    | Merged
)


def reply_of(event: CheckpointEvent) -> ModelReply | None:
    """The model's reply that has to be stored with this event."""
    match event:
        case PlanAdopted() | PlanReplaced() | StepEnded() | StepSuspended():
            return event.reply
        case _:
            return None


def attempt_of(event: CheckpointEvent) -> NodeRun | None:
    """The run of the attempt that the event ends or suspends; None for all other events."""
    match event:
        case StepEnded(run=run) | BudgetReached(run=run):
            return run
        case StepSuspended(step=step):
            return step.run
        case _:
            return None


@dataclass(frozen=True, slots=True)
class RequestBudget:
    """Asks people to extend a cap: Approval."""

    hit: ReachedCap


@dataclass(frozen=True, slots=True)
class RequestToolCall:
    """Asks people about the first undecided tool call at which the step has stopped: Approval |
    None if there is none."""

    path: str


@dataclass(frozen=True, slots=True)
class HasSuspendedCalls:
    """Asks whether the step's session ends with tool calls that wait: bool."""

    path: str


@dataclass(frozen=True, slots=True)
class CountSubagents:
    """Asks how many of the task's subagents have not reported: int."""


StoreCall: TypeAlias = (
    ApprovalCall | RequestBudget | RequestToolCall | HasSuspendedCalls | CountSubagents
)
"""A request of a transition to the store; each names the type of its answer."""

Deciding: TypeAlias = Generator[StoreCall, Any, _T]
