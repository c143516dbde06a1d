"""Defines the actions of buttons and forms. Platforms see only opaque tokens for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal, TypeAlias

from cards.action_base import CardAction, ReusableAction
from cards.memory_actions import ChooseMemory, MemoryAction
from storage.records.autonomy import ReportPeriod
from storage.records.people import PersonRole
from storage.records.tasks import TaskPriority


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowWorkflow(ReusableAction):
    name: str
    typed: ClassVar[str] = "/workflow show {self.name}"
    kind: Literal["show_workflow"] = "show_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWorkflow(ReusableAction):
    """Run a named workflow, or show the form for its missing inputs."""

    name: str
    typed: ClassVar[str] = "/workflow run {self.name}"
    kind: Literal["run_workflow"] = "run_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitWorkflowInputs(ReusableAction):
    """Submit a workflow's input form: the press carries inputs by name, in addition to `known`. The
    form stays until all inputs are valid and creates one task."""

    name: str
    known: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    model: str = ""
    backend: str = ""
    priority: TaskPriority = TaskPriority.IMPORTANT
    folder: str = ""
    kind: Literal["fill_workflow"] = "fill_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowWorkflowNameForm(ReusableAction):
    """Show the form for saving a finished task's plan as a workflow."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    task_id: str
    typed: ClassVar[str] = "/workflow save NAME {self.task_id}"
    kind: Literal["ask_workflow_name"] = "ask_workflow_name"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTaskAsWorkflow(ReusableAction):
    """Submit that form; the press carries `name`."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    task_id: str
    kind: Literal["keep_workflow"] = "keep_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWorkflow(CardAction):
    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    name: str
    typed: ClassVar[str] = "/workflow delete {self.name} yes"
    kind: Literal["delete_workflow"] = "delete_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowWorkflowDiff(ReusableAction):
    """Show what a version of a workflow changes."""

    name: str
    number: int
    typed: ClassVar[str] = "/workflow diff {self.name} {self.number}"
    kind: Literal["show_workflow_diff"] = "show_workflow_diff"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBackWorkflow(CardAction):
    """Make the text of an earlier version the newest."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    name: str
    number: int
    typed: ClassVar[str] = "/workflow rollback {self.name} {self.number}"
    kind: Literal["roll_back_workflow"] = "roll_back_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportWorkflow(CardAction):
    """Import the document that was shown: `file` with this `hash`. `replace` overwrites workflows
    that have other texts."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    file: str
    hash: str
    as_name: str = ""
    replace: bool = False
    kind: Literal["import_workflow"] = "import_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallWorkflow(ReusableAction):
    """Save a workflow of the gallery."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    name: str
    typed: ClassVar[str] = "/workflow gallery install {self.name}"
    kind: Literal["install_workflow"] = "install_workflow"


WorkflowAction: TypeAlias = (
    ShowWorkflow
    | RunWorkflow
    | SubmitWorkflowInputs
    | ShowWorkflowNameForm
    | SaveTaskAsWorkflow
    | DeleteWorkflow
    | ShowWorkflowDiff
    | RollBackWorkflow
    | ImportWorkflow
    | InstallWorkflow
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(CardAction):
    """Accept a proposed task. A press may carry another priority as its value."""

    text: str
    priority: TaskPriority = TaskPriority.IMPORTANT
    model: str = ""
    backend: str = ""
    title: str = ""
    files: tuple[str, ...] = ()
    message_id: str = ""
    kind: Literal["start_task"] = "start_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWithoutTask(CardAction):
    """Decline a proposed task and answer the text in the chat instead."""

    text: str
    model: str = ""
    backend: str = ""
    files: tuple[str, ...] = ()
    kind: Literal["just_talk"] = "just_talk"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitTaskForm(CardAction):
    """Submit the form for a new task; the press carries `text` and `priority`."""

    kind: Literal["new_task"] = "new_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTask(ReusableAction):
    task_id: str
    typed: ClassVar[str] = "/get {self.task_id}"
    kind: Literal["show_task"] = "show_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLogs(ReusableAction):
    task_id: str
    typed: ClassVar[str] = "/logs {self.task_id}"
    kind: Literal["show_logs"] = "show_logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseTask(CardAction):
    task_id: str
    typed: ClassVar[str] = "/pause {self.task_id}"
    kind: Literal["pause_task"] = "pause_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTask(CardAction):
    task_id: str
    typed: ClassVar[str] = "/resume {self.task_id}"
    kind: Literal["resume_task"] = "resume_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask(CardAction):
    task_id: str
    typed: ClassVar[str] = "/stop {self.task_id}"
    kind: Literal["stop_task"] = "stop_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTask(CardAction):
    """Retry a task, and those of `also` that still can be."""

    task_id: str
    also: tuple[str, ...] = ()
    kind: Literal["retry_task"] = "retry_task"

    @property
    def command(self) -> str:
        return " ".join(("/retry", self.task_id, *self.also))


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPriority(ReusableAction):
    """The token covers the whole select, so choosing the current value must not use it up."""

    task_id: str
    priority: TaskPriority
    typed: ClassVar[str] = "/priority {self.task_id} {self.priority}"
    kind: Literal["set_priority"] = "set_priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTaskAnyway(CardAction):
    """Start a task in a directory that another task holds."""

    task_id: str
    typed: ClassVar[str] = "/letin {self.task_id}"
    kind: Literal["let_in"] = "let_in"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowMessageForm(ReusableAction):
    """Show the form for a message to a task's worker."""

    task_id: str
    typed: ClassVar[str] = "/msg {self.task_id}"
    kind: Literal["ask_message"] = "ask_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitMessageForm(CardAction):
    """Submit that form; the press carries `text`, and `as` = message or step."""

    task_id: str
    kind: Literal["send_message"] = "send_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestApprovalAgain(CardAction):
    """Request an expired approval again."""

    approval_id: str
    kind: Literal["ask_again"] = "ask_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks(ReusableAction):
    """Show a page of the task list in place. `page` counts from 1."""

    page: int = 1
    status: str = ""
    typed: ClassVar[str] = "/list {self.status}"
    kind: Literal["list_tasks"] = "list_tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideHeldMessages(CardAction):
    """Have the chat's held messages handled or, if not `handle`, leave them unanswered."""

    handle: bool
    kind: Literal["decide_held"] = "decide_held"

    @property
    def command(self) -> str:
        return f"/queue {'handle' if self.handle else 'drop'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideApproval(CardAction):
    """Decide one approval request. `scope` is how far an approval of a tool call reaches: empty for
    once, else `task`, `chat` or `always`."""

    approval_id: str
    approve: bool
    scope: str = ""
    kind: Literal["decide"] = "decide"

    @property
    def command(self) -> str:
        word = "approve" if self.approve else "reject"
        return f"/{word} {self.approval_id} {self.scope}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListApprovals(ReusableAction):
    typed: ClassVar[str] = "/approvals"
    kind: Literal["list_approvals"] = "list_approvals"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowReport(ReusableAction):
    period: ReportPeriod
    typed: ClassVar[str] = "/report {self.period}"
    kind: Literal["show_report"] = "show_report"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseModel(ReusableAction):
    """Choose the chat's model; the press carries its name or `auto`."""

    kind: Literal["pick_model"] = "pick_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoosePersona(ReusableAction):
    """Choose the chat's persona: `name`, or what the press carries; `auto` clears it."""

    name: str = ""
    typed: ClassVar[str] = "/persona {self.name}"
    kind: Literal["pick_persona"] = "pick_persona"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerQuestion(CardAction):
    """Answer a worker's question by the id of its request. A form's press carries `text`, a button
    has `value`."""

    question_id: str
    value: str = ""
    typed: ClassVar[str] = "/approve {self.question_id} {self.value}"
    kind: Literal["answer"] = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitApprovalForm(ReusableAction):
    """Approve a request with the values of its form, which the press carries by name, or with
    `value` for its field `name`. The form stays until all are valid; the first one counts."""

    approval_id: str
    name: str = ""
    value: str = ""
    kind: Literal["fill_approval"] = "fill_approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSkill(ReusableAction):
    name: str
    typed: ClassVar[str] = "/skill show {self.name}"
    kind: Literal["show_skill"] = "show_skill"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMcpSignIn(ReusableAction):
    """Show the page where an owner signs in to an MCP server."""

    server: str
    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    typed: ClassVar[str] = "/mcp login {self.server}"
    kind: Literal["mcp_sign_in"] = "mcp_sign_in"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableSkill(CardAction):
    """Enable the skill whose folder has exactly this hash or, if not `enable`, postpone it."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    name: str
    hash: str
    enable: bool = True
    kind: Literal["enable_skill"] = "enable_skill"

    @property
    def command(self) -> str:
        if not self.enable:
            return f"/skill disable {self.name}"
        return f"/skill enable {self.name} {self.hash[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UseSkill(CardAction):
    """Accept a skill proposed for this text."""

    name: str
    text: str
    model: str = ""
    backend: str = ""
    files: tuple[str, ...] = ()
    kind: Literal["use_skill"] = "use_skill"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSkill(CardAction):
    """Save a draft exactly as its card shows it or, if not `save`, discard it."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    name: str
    text: str
    save: bool = True
    kind: Literal["save_skill"] = "save_skill"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmPersonChange(ReusableAction):
    """Ask for confirmation before a person becomes a member or, with `remove`, loses access."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    person_id: str
    remove: bool
    kind: Literal["ask_about_person"] = "ask_about_person"

    @property
    def command(self) -> str:
        return f"/people {'remove' if self.remove else 'demote'} {self.person_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPersonChange(CardAction):
    """Apply the confirmed change."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    person_id: str
    remove: bool
    kind: Literal["move_person"] = "move_person"

    @property
    def command(self) -> str:
        return f"/people {'remove' if self.remove else 'demote'} {self.person_id} yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlinkAccount(CardAction):
    """Make a joined account a person of its own again."""

    account: str
    typed: ClassVar[str] = "/unlink {self.account}"
    kind: Literal["unlink_account"] = "unlink_account"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWebSession(CardAction):
    """Sign a browser out of the web chat or, by default, all but the one that this comes from."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    session_id: str = "others"
    typed: ClassVar[str] = "/sessions end {self.session_id}"
    kind: Literal["end_web_session"] = "end_web_session"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideSchedule(CardAction):
    """Activate a proposed schedule or, if not `confirm`, discard it."""

    schedule_id: str
    confirm: bool
    kind: Literal["decide_schedule"] = "decide_schedule"

    @property
    def command(self) -> str:
        return f"/schedule {'confirm' if self.confirm else 'delete'} {self.schedule_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSchedule(ReusableAction):
    """`listed`: the button is on the list, which is shown again. `due_at`: the firing to skip."""

    schedule_id: str
    change: Literal["pause", "resume", "run", "skip", "delete", "log"]
    listed: bool = False
    due_at: datetime | None = None
    typed: ClassVar[str] = "/schedule {self.change} {self.schedule_id}"
    kind: Literal["control_schedule"] = "control_schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReminder(CardAction):
    """Mark a reminder as done or, with `snooze_minutes`, postpone it."""

    firing_id: int
    snooze_minutes: int = 0
    kind: Literal["answer_reminder"] = "answer_reminder"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideMissedFiring(CardAction):
    """Run or skip a firing that was missed while Shiftboss was not running."""

    firing_id: int
    run: bool
    kind: Literal["decide_missed_firing"] = "decide_missed_firing"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRepairTask(CardAction):
    """Create the task in which a worker examines a problem found by the self-check."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    incident_id: int
    typed: ClassVar[str] = "/self repair {self.incident_id}"
    kind: Literal["start_repair_task"] = "start_repair_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveButtons(CardAction):
    """Prove, by being pressed, that button presses from this chat arrive."""

    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    kind: Literal["prove_buttons"] = "prove_buttons"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPage(ReusableAction):
    """Open a page of the dashboard. The web chat shows a link instead of a button."""

    page: Literal["setup", "costs"]
    required_role: ClassVar[PersonRole] = PersonRole.OWNER
    typed: ClassVar[str] = "/dashboard {self.page}"
    kind: Literal["open_page"] = "open_page"

    @property
    def path(self) -> str:
        return f"/dashboard/{self.page}"


ScheduleAction: TypeAlias = DecideSchedule | ControlSchedule | AnswerReminder | DecideMissedFiring
TaskAction: TypeAlias = (
    PauseTask | ResumeTask | StopTask | RetryTask | SetPriority | StartTaskAnyway
)
SkillAction: TypeAlias = ShowSkill | EnableSkill | UseSkill | SaveSkill

Action: TypeAlias = (
    TaskAction
    | SkillAction
    | WorkflowAction
    | MemoryAction
    | ScheduleAction
    | StartTask
    | AnswerWithoutTask
    | SubmitTaskForm
    | ShowTask
    | ShowLogs
    | ShowMessageForm
    | SubmitMessageForm
    | RequestApprovalAgain
    | ListTasks
    | DecideHeldMessages
    | DecideApproval
    | ChooseModel
    | ChoosePersona
    | AnswerQuestion
    | SubmitApprovalForm
    | ConfirmPersonChange
    | ApplyPersonChange
    | UnlinkAccount
    | ChooseMemory
    | EndWebSession
    | ListApprovals
    | ShowReport
    | StartRepairTask
    | ProveButtons
    | StartMcpSignIn
    | OpenPage
)
