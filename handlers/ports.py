"""Defines the ports that the engine and storage implement for handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from cards.courier import Courier
from cards.model import Card
from handlers.ports_autonomy import (
    DoctorPort,
    DrivePort,
    HeartbeatPort,
    PromptVersionPort,
    ReportPort,
    SchedulePort,
    SelfCheckPort,
    SettingEditorPort,
    SettingsPort,
    TriggerPort,
)
from handlers.ports_people import AccountLinkPort, WebSessionPort
from handlers.ports_setup import BitablePort, ChannelSetupPort, FeishuSetupPort, ModelSetupPort
from handlers.ports_workers import (
    HistoryPort,
    JournalPort,
    McpPort,
    MemoryPort,
    SkillPort,
    SkillWriterPort,
    ToolPort,
    TracePort,
    TranscriptPort,
    WorkflowPort,
)
from handlers.ports_workflows import (
    DryRunPort,
    RunExpressionPort,
    WorkflowExchangePort,
    WorkflowHistoryPort,
)
from storage.records.approvals import Approval
from storage.records.messages import CardActionRow, InboxId, ReceivedEvent
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    Language,
    Member,
    PairingRequest,
    Person,
    PersonId,
    PersonRole,
)
from storage.records.system import (
    BackendHealth,
    BackendReport,
    ModelChoice,
    SystemFigures,
    SystemStatus,
)
from storage.records.tasks import (
    FolderKind,
    NewTask,
    NodeRun,
    RerunChanges,
    Task,
    TaskEvent,
    TaskGraph,
    TaskId,
    TaskPage,
    TaskPriority,
    TaskStatus,
    TaskStep,
    TaskView,
)
from storage.records.usage import CostQuery, CostReport, TaskCost
from storage.records.workers import ContextPart, PersonaList


class ModelPort(Protocol):
    @property
    def default(self) -> ModelChoice:
        """The choice of chats and tasks that name none."""
        ...

    def list_choices(self) -> Sequence[ModelChoice]:
        """All configured choices, the default first."""

    def resolve_choice(self, name: str) -> ModelChoice | None:
        """The choice meant by `opus`, `offline`, `openai` or `anthropic:claude-…`, or None."""

    async def get_health(self, name: str) -> BackendHealth | None:
        """Whether the named backend can work, without starting anything. None for an unknown
        name."""

    async def report(self, name: str = "") -> BackendReport | None:
        """The health of all backends, or of one, which is test-started. None for an unknown
        name."""


class PersonaPort(Protocol):
    async def roster(self) -> PersonaList:
        """All current personas, the default first, and the files that cannot be used."""


class WorkerContextPort(Protocol):
    async def list_parts(self, chat: Chat, person: Person) -> Sequence[ContextPart]:
        """All parts in the order of the worker's context, including those left out."""


class FolderRejection(StrEnum):
    """Why a folder is rejected; texts are under `error.project_<reason>`."""

    RELATIVE = "relative"
    MISSING = "missing"
    UNUSABLE = "unusable"
    TOO_WIDE = "too_wide"


class FolderRejected(Exception):
    """The folder cannot be a project. `path` is as given."""

    def __init__(self, reason: FolderRejection, path: str) -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"{path!r}: {reason}")


class ProjectPort(Protocol):
    async def resolve_folder(self, path: str) -> str:
        """The folder's canonical path.

        Raises FolderRejected unless the path is absolute (`~` counts), exists, is readable and
        writable, and neither contains the data directory nor lies in it.
        """

    async def folder_kind(self, folder: str) -> FolderKind: ...

    async def adopt(self, folder: str) -> None:
        """Trust the folder's repository from now on, although tasks may have written it."""


AnswerStream: TypeAlias = Callable[[str], Awaitable[None]]
"""Shows a partial answer."""

Clock: TypeAlias = Callable[[], datetime]
"""Returns the current time with its zone."""


class TaskPort(Protocol):
    """Implementations must check in every call that `by` may access the task: its creator, anyone
    in its chat, or an owner; in a group only the group's tasks. Otherwise NotFound.

    Changes raise WrongState if the task's state forbids them. A repeat with the same `source` must
    change nothing and return the task.
    """

    async def create(self, new: NewTask) -> Task: ...

    async def run_workflow(self, new: NewTask, workflow: Mapping[str, Any]) -> Task:
        """Create a task with a validated workflow as its plan, so that nothing is planned."""

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> Task:
        """Find by id or prefix, with or without `task-`. Raises NotFound and AmbiguousId."""

    async def find_by_source(self, source: str) -> Task | None:
        """The task that this message has created."""

    async def page(
        self, *, by: Person, chat: ChatId, status: TaskStatus | None, page: int, size: int
    ) -> TaskPage:
        """Unfinished first, then newest first; a page beyond the end gives the last one."""

    async def list_newest(
        self,
        *,
        by: Person,
        chat: ChatId,
        limit: int,
        statuses: Collection[TaskStatus] = (),
        text: str = "",
        before: tuple[datetime, TaskId] | None = None,
    ) -> Sequence[Task]:
        """Newest first, from the one after `before` on, which is the creation time and id of a
        task. `text` occurs in the title or instruction. Not changed by what happens to tasks."""

    async def list_workflow_runs(
        self, *, by: Person, chat: ChatId, names: Collection[str], limit: int
    ) -> Mapping[str, Sequence[Task]]:
        """The newest tasks of each of these named workflows, newest first, at most `limit` of
        each."""

    async def list_events(
        self, *, by: Person, chat: ChatId, after: int, limit: int, task_id: TaskId | None = None
    ) -> Sequence[TaskEvent]:
        """Events with higher ids than `after`, oldest first."""

    async def newest_event_id(self) -> int:
        """The highest event id; 0 if there are no events."""

    async def get_graph(self, task: Task, *, version: int | None = None) -> TaskGraph | None:
        """That version of the plan, by default the current one; None if there is none."""

    async def list_discarded(self, task: Task, version: int) -> Sequence[NodeRun]:
        """The results of that version of the plan that no longer count."""

    async def view(self, task_id: TaskId) -> TaskView: ...

    async def list_nodes(self, task: Task) -> Sequence[TaskStep]:
        """All nodes of the task's plan in written order, including those that have not started; of
        a loop's future rounds, only the next one."""

    async def events(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        """The newest `limit` events, oldest first."""

    async def pause(self, task: Task, *, by: Person, source: str, reason: str = "") -> Task: ...

    async def resume(self, task: Task, *, by: Person, source: str, answer: str = "") -> Task:
        """Resume the task. `answer` reaches the worker with its next step."""

    async def stop(self, task: Task, *, by: Person, source: str) -> Task: ...

    async def retry(self, task: Task, *, by: Person, source: str) -> Task:
        """Let what has failed run again, or the node after which nothing could continue. Raises
        RerunRefused if nothing could start then."""

    async def rerun(
        self, task: Task, wanted: str, changes: RerunChanges, *, by: Person, source: str
    ) -> Task:
        """Run the task again from a node, which `wanted` names by its id, title or path. What came
        before stays; what came after is discarded and kept with the plan's version. NotAllowed
        unless `by` has created the task or is an owner. Raises RerunRefused with the reason."""

    async def set_priority(
        self, task: Task, priority: TaskPriority, *, by: Person, source: str
    ) -> Task: ...

    async def send_message(self, task: Task, text: str, *, by: Person, source: str) -> Task:
        """Send a message to the worker: it reaches the next step, or the plan yet to be made."""

    async def repeats_in_loop(self, task: Task, titles: Sequence[str]) -> bool:
        """Whether one of these injected steps runs in each round of a loop."""

    async def inject(self, task: Task, titles: Sequence[str], *, by: Person, source: str) -> Task:
        """Insert steps after the running one and before those not started. WrongState while there
        is no plan."""

    async def replan(self, task: Task, reason: str, *, by: Person, source: str) -> Task:
        """Request a new plan for the remaining work at the next step boundary; finished work
        stays."""

    async def start_anyway(self, task: Task, *, by: Person, source: str) -> Task:
        """Start the task although another one has unfinished work in its directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedMessage:
    """A message whose answer was interrupted, before any of it was shown, by the one being
    handled."""

    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuestion:
    """A message in a chat that needs an answer.

    `model` and `backend` are this message's own choice, empty for the chat's: a model comes with
    its backend; a backend alone means its default model. `no_proposal` forbids proposing a task.
    `brief` instructs the worker how to handle the message, with the named `skill`.
    `is_continuation`: there is no new message; the suspended conversation continues. `interrupted`
    are earlier messages that this one interrupted: the answer is for them too. `missing_files` were
    sent along, but could not be fetched. `forwarded`: somebody else's words, passed on.
    """

    person: Person
    chat: Chat
    text: str
    language: Language
    source: str
    files: tuple[str, ...] = ()
    model: str = ""
    backend: str = ""
    no_proposal: bool = False
    brief: str = ""
    is_continuation: bool = False
    skill: str = ""
    interrupted: tuple[InterruptedMessage, ...] = ()
    missing_files: tuple[str, ...] = ()
    forwarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProposal:
    """A task proposed instead of an answer. `requested_time` is the start time in the person's
    words, empty for now; `computed_time` is what the model made of it, a local time or a cron
    expression. With `is_reminder` the person only wants to be reminded."""

    title: str
    text: str
    priority: TaskPriority
    requested_time: str = ""
    computed_time: str = ""
    is_reminder: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """An answer.

    `interrupted`: a newer message (`superseded`) or /stop ended it; `text` is what was written so
    far. `notes` are small print in the person's language; `files` are relative to the data
    directory, and `sizes` has the bytes of attachable ones. `model` answered after `seconds`.
    `joined` are the sources of interrupted messages that are answered too.
    """

    text: str
    proposal: TaskProposal | None = None
    interrupted: bool = False
    superseded: bool = False
    files: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    model: str = ""
    seconds: float = 0.0
    joined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationState:
    turns: int
    model: ModelChoice
    started_at: datetime
    last_used_at: datetime


class ChatPort(Protocol):
    """Conversations with models, one session per chat. Failures raise BackendFailure."""

    async def answer(self, question: ChatQuestion, stream: AnswerStream) -> ChatAnswer: ...

    def interrupt(self, chat_id: ChatId) -> bool:
        """Stop the answer being written in this chat. False if there is none."""

    def on_new_message(self, chat_id: ChatId, mode: str, *, may_interrupt: bool = True) -> bool:
        """Interrupt the current answer, or let the message wait if the chat queues messages or it
        may not interrupt. `mode` is `ChatSettings.queue`. True if it must wait."""

    def queues_messages(self, mode: str) -> bool:
        """Whether new messages wait in chats with this mode."""

    async def reset(self, chat_id: ChatId) -> bool:
        """Start a new session; False if there was none."""

    async def state(self, chat_id: ChatId) -> ConversationState | None: ...


class PeoplePort(Protocol):
    async def find_by_account(self, channel: Channel, external_id: str) -> Person | None: ...

    async def get(self, person_id: PersonId) -> Person: ...

    async def get_chat(self, chat_id: ChatId) -> Chat: ...

    async def private_chats(self, role: PersonRole) -> Sequence[Chat]:
        """The private chats in which people with that role can be notified."""

    async def update_chat_settings(self, chat: Chat, **changes: Any) -> Chat:
        """Change these fields of `ChatSettings` only: others may change the rest meanwhile."""

    async def set_language(self, person: Person, language: Language) -> None:
        """Store the person's language."""

    async def list_members(self) -> Sequence[Member]:
        """Everyone with access: owners first, then by age."""

    async def demote(self, person_id: PersonId) -> bool:
        """Make an owner a member. False for the last owner and the local web owner, who stay."""

    async def remove(self, person_id: PersonId) -> Sequence[ChatId] | None:
        """Revoke a person's access and return their private chats; None for those who stay."""


class PairingPort(Protocol):
    async def get_or_create(
        self, channel: Channel, external_id: str, name: str, chat_id: ChatId, *, now: datetime
    ) -> tuple[PairingRequest, bool]:
        """The stranger's pending request, created with its approval if missing, and True if new.
        Codes expire after an hour."""

    async def find(self, code: str, *, now: datetime) -> PairingRequest:
        """Find a pending request by its code, ignoring case and spaces. Raises NotFound if it is
        unknown, decided or expired."""

    async def get_approval(self, pairing: PairingRequest) -> Approval: ...


class ApprovalPort(Protocol):
    async def list_waiting(self, *, by: Person, chat: ChatId | None) -> Sequence[Approval]:
        """Requests this person may decide, oldest first; in one chat or everywhere."""

    async def list_settled(self, *, by: Person, limit: int) -> Sequence[Approval]:
        """Requests that were decided or have expired, newest first: for members those that they
        could have decided, for owners all."""

    async def find(self, prefix: str) -> Approval: ...

    async def decide(
        self,
        approval: Approval,
        *,
        approve: bool,
        by: Person,
        source: str,
        reason: str = "",
        scope: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> Approval:
        """Record a decision, with the `values` of a form, and apply its effects in one
        transaction.

        The first decision wins: WrongState if there is one. ActionForbidden if `by` is not an
        approver, or grants a permanent permission without being an owner. `scope` is how far an
        approval of a tool call reaches.
        """


class PressRefusal(StrEnum):
    """Why a press has no effect."""

    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    NOT_ALLOWED = "not_allowed"
    EXPIRED = "expired"
    RETIRED = "retired"
    USED = "used"


class HeldMessagePort(Protocol):
    """Held messages, which wait for a person's decision."""

    async def release(self, chat_id: ChatId) -> int:
        """Have the held messages of a chat handled in the order they arrived; return how many."""

    async def drop(self, chat_id: ChatId) -> int:
        """Leave the held messages of a chat unanswered; return how many."""


class InboxLogPort(Protocol):
    """Events that have arrived, from all chats."""

    async def list_recent(self, limit: int) -> Sequence[ReceivedEvent]:
        """The newest events, newest first, without shell commands that have been answered."""


class ButtonPort(Protocol):
    """Buttons, selects and forms on stored cards, by token."""

    async def get_action(self, token: str) -> CardActionRow | None:
        """The token's action, without claiming it."""

    async def claim_press(
        self, token: str, *, person: PersonId, chat: ChatId, inbox_id: InboxId, now: datetime
    ) -> PressRefusal | None:
        """Claim a press; None means it may be acted on.

        A single-use token must be used up by the first claim; the same `inbox_id` may claim it
        again, so that a repeat after a crash acts. USED: `get_action` says who pressed and when.
        FOREIGN: the card is in another chat. NOT_ALLOWED: `person` is not among those allowed.
        """


class CardPort(Protocol):
    """Sent cards, as stored in the outbox."""

    async def find_shown(self, chat_id: ChatId, message_id: str) -> tuple[str, Card] | None:
        """The card that this platform message shows, with tokens, and its key: where forms are not
        supported, people reply to the card."""

    async def get_card(self, key: str) -> Card | None:
        """The newest revision of a card, with tokens."""

    async def list_card_keys(self, prefix: str) -> Sequence[tuple[str, ChatId]]:
        """Keys that start with `prefix`, each with its card's chat."""

    async def list_cards_for_approval(self, approval_id: str) -> Sequence[tuple[str, ChatId]]:
        """Keys and chats of the cards with a live button for this request."""


class CostPort(Protocol):
    async def report(
        self, *, by: Person, chat: ChatId, query: CostQuery | None = None
    ) -> CostReport:
        """Report costs: to owners all of them, with chats and people if the query asks for them; to
        members their own. Without a query, this month's."""

    async def report_task(self, task: Task) -> TaskCost: ...


class SystemPort(Protocol):
    async def status(self, *, by: Person) -> SystemStatus: ...

    async def get_figures(self) -> SystemFigures:
        """Figures for monitoring, read from the store when asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerServices:
    """All ports available to handlers, supplied by `bot.app`."""

    tasks: TaskPort
    conversations: ChatPort
    models: ModelPort
    model_setup: ModelSetupPort
    feishu_setup: FeishuSetupPort
    bitable: BitablePort
    channel_setup: ChannelSetupPort
    people: PeoplePort
    pairings: PairingPort
    account_links: AccountLinkPort
    web_sessions: WebSessionPort
    approvals: ApprovalPort
    costs: CostPort
    system: SystemPort
    buttons: ButtonPort
    held: HeldMessagePort
    inbox_log: InboxLogPort
    cards: CardPort
    courier: Courier
    journal: JournalPort
    tools: ToolPort
    projects: ProjectPort
    personas: PersonaPort
    prompts: PromptVersionPort
    mcp: McpPort
    worker_context: WorkerContextPort
    transcripts: TranscriptPort
    history: HistoryPort
    traces: TracePort
    skills: SkillPort
    skill_writer: SkillWriterPort
    workflows: WorkflowPort
    workflow_history: WorkflowHistoryPort
    dry_runs: DryRunPort
    run_expressions: RunExpressionPort
    workflow_exchange: WorkflowExchangePort
    schedules: SchedulePort
    triggers: TriggerPort
    self_check: SelfCheckPort
    doctor: DoctorPort
    settings: SettingsPort
    setting_editor: SettingEditorPort
    drive: DrivePort
    heartbeat: HeartbeatPort
    reports: ReportPort
    memory: MemoryPort
