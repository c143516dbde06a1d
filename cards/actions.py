"""What a button means. The platform only ever sees the opaque token it is stored under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from cards.action_rules import ActionRules as _Action
from cards.memory_actions import (
    CleanMemory,
    DecideMemory,
    EditMemory,
    ForgetMemory,
    ListMemories,
    MemoriesHelped,
    PinMemory,
    ShowMemory,
)
from cards.workflow_actions import (
    AskWorkflowName,
    DeleteWorkflow,
    FillWorkflow,
    KeepWorkflow,
    RunWorkflow,
    ShowWorkflow,
)
from storage.records.people import Role
from storage.records.tasks import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask(_Action):
    """Consent to work that was proposed. A press may carry another priority as its value."""

    text: str
    priority: Priority = Priority.IMPORTANT
    model: str = ""
    backend: str = ""
    title: str = ""
    files: tuple[str, ...] = ()
    message_id: str = ""
    kind: Literal["start_task"] = "start_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class JustTalk(_Action):
    """Decline a proposal: answer the text as talk instead."""

    text: str
    model: str = ""
    backend: str = ""
    files: tuple[str, ...] = ()
    kind: Literal["just_talk"] = "just_talk"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask(_Action):
    """A form that asks what to do; the press carries `text` and `priority`."""

    kind: Literal["new_task"] = "new_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowTask(_Action):
    single_use: ClassVar[bool] = False
    task_id: str
    kind: Literal["show_task"] = "show_task"

    @property
    def command(self) -> str:
        return f"/get {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLogs(_Action):
    single_use: ClassVar[bool] = False
    task_id: str
    kind: Literal["show_logs"] = "show_logs"

    @property
    def command(self) -> str:
        return f"/logs {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseTask(_Action):
    task_id: str
    kind: Literal["pause_task"] = "pause_task"

    @property
    def command(self) -> str:
        return f"/pause {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTask(_Action):
    task_id: str
    kind: Literal["resume_task"] = "resume_task"

    @property
    def command(self) -> str:
        return f"/resume {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask(_Action):
    task_id: str
    kind: Literal["stop_task"] = "stop_task"

    @property
    def command(self) -> str:
        return f"/stop {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTask(_Action):
    task_id: str
    kind: Literal["retry_task"] = "retry_task"

    @property
    def command(self) -> str:
        return f"/retry {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPriority(_Action):
    """The token is the whole select's: picking what is set already must not use it up."""

    single_use: ClassVar[bool] = False
    task_id: str
    priority: Priority
    kind: Literal["set_priority"] = "set_priority"

    @property
    def command(self) -> str:
        return f"/priority {self.task_id} {self.priority}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetIn(_Action):
    """Let a task work in the directory that another one holds."""

    task_id: str
    kind: Literal["let_in"] = "let_in"

    @property
    def command(self) -> str:
        return f"/letin {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskMessage(_Action):
    """Show the form by which a task's worker is told something."""

    single_use: ClassVar[bool] = False
    task_id: str
    kind: Literal["ask_message"] = "ask_message"

    @property
    def command(self) -> str:
        return f"/msg {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage(_Action):
    """That form was sent; the press carries `text`, and `as` = message or step."""

    task_id: str
    kind: Literal["send_message"] = "send_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAgain(_Action):
    """Ask anew for a decision that nobody took in time."""

    approval_id: str
    kind: Literal["ask_again"] = "ask_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTasks(_Action):
    """A page of the task list, turned in place. `page` counts from 1."""

    single_use: ClassVar[bool] = False
    page: int = 1
    status: str = ""
    kind: Literal["list_tasks"] = "list_tasks"

    @property
    def command(self) -> str:
        return f"/list {self.status}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide(_Action):
    """Settle one approval request, and no other. `scope` is how far a yes to the use of a tool
    reaches: empty for this once, else `task`, `chat` or `always`."""

    approval_id: str
    approve: bool
    scope: str = ""
    kind: Literal["decide"] = "decide"

    @property
    def command(self) -> str:
        word = "approve" if self.approve else "reject"
        return f"/{word} {self.approval_id} {self.scope}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class PickModel(_Action):
    """Choose the chat's model; the press carries the model's name, or `auto`."""

    single_use: ClassVar[bool] = False
    kind: Literal["pick_model"] = "pick_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class PickPersona(_Action):
    """Choose who works in this chat: `name`, or what the press carries; `auto` clears it."""

    single_use: ClassVar[bool] = False
    name: str = ""
    kind: Literal["pick_persona"] = "pick_persona"

    @property
    def command(self) -> str:
        return f"/persona {self.name}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(_Action):
    """Answer a question the worker asked, by the id of its request; a form's press carries
    `text`, a button has `value`."""

    question_id: str
    value: str = ""
    kind: Literal["answer"] = "answer"

    @property
    def command(self) -> str:
        return f"/approve {self.question_id} {self.value}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSkill(_Action):
    single_use: ClassVar[bool] = False
    name: str
    kind: Literal["show_skill"] = "show_skill"

    @property
    def command(self) -> str:
        return f"/skill show {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableSkill(_Action):
    """Let in the skill whose folder has exactly this hash, or, with `enable` False, leave it."""

    needs: ClassVar[Role] = Role.OWNER
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
class UseSkill(_Action):
    """Consent to the use of a skill that was proposed for these words."""

    name: str
    text: str
    model: str = ""
    backend: str = ""
    files: tuple[str, ...] = ()
    kind: Literal["use_skill"] = "use_skill"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSkill(_Action):
    """Keep a draft exactly as its card shows it; with `save` False, throw it away."""

    needs: ClassVar[Role] = Role.OWNER
    name: str
    text: str
    save: bool = True
    kind: Literal["save_skill"] = "save_skill"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAboutPerson(_Action):
    """Ask before somebody is made a member, or with `remove` a stranger again."""

    single_use: ClassVar[bool] = False
    needs: ClassVar[Role] = Role.OWNER
    person_id: str
    remove: bool
    kind: Literal["ask_about_person"] = "ask_about_person"

    @property
    def command(self) -> str:
        return f"/people {'remove' if self.remove else 'demote'} {self.person_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePerson(_Action):
    """Do it."""

    needs: ClassVar[Role] = Role.OWNER
    person_id: str
    remove: bool
    kind: Literal["move_person"] = "move_person"

    @property
    def command(self) -> str:
        return f"/people {'remove' if self.remove else 'demote'} {self.person_id} yes"


SkillAction: TypeAlias = ShowSkill | EnableSkill | UseSkill | SaveSkill

Action: TypeAlias = (
    StartTask
    | JustTalk
    | NewTask
    | ShowTask
    | ShowLogs
    | PauseTask
    | ResumeTask
    | StopTask
    | RetryTask
    | SetPriority
    | LetIn
    | AskMessage
    | SendMessage
    | AskAgain
    | ListTasks
    | Decide
    | PickModel
    | PickPersona
    | Answer
    | ShowSkill
    | EnableSkill
    | UseSkill
    | SaveSkill
    | AskAboutPerson
    | MovePerson
    | ShowWorkflow
    | RunWorkflow
    | FillWorkflow
    | AskWorkflowName
    | KeepWorkflow
    | DeleteWorkflow
    | ListMemories
    | ShowMemory
    | ForgetMemory
    | PinMemory
    | EditMemory
    | DecideMemory
    | MemoriesHelped
    | CleanMemory
)
