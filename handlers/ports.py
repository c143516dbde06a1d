"""What handlers need from the world. The engine and storage satisfy these by shape."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from cards.courier import Courier
from cards.model import Card, Form
from handlers.services.context import Contexts
from handlers.services.histories import Histories
from handlers.services.memory import MemoryBook
from handlers.services.models import Models
from handlers.services.notebook import Notebook
from handlers.services.personas import Personas
from handlers.services.projects import Projects
from handlers.services.skills import Skills, SkillWriter
from handlers.services.toolbook import ToolBook
from handlers.services.traces import TraceBook
from handlers.services.transcripts import Transcripts
from handlers.services.workflows import Workflows
from storage.records.approvals import Approval
from storage.records.messages import ActionRow, InboxId
from storage.records.people import (
    Channel,
    Chat,
    ChatId,
    ChatSettings,
    Language,
    Member,
    Pairing,
    Person,
    PersonId,
    Role,
)
from storage.records.status import (
    CostQuery,
    CostReport,
    ModelChoice,
    SystemStatus,
    TaskCost,
)
from storage.records.tasks import (
    NewTask,
    Priority,
    Task,
    TaskEvent,
    TaskId,
    TaskPage,
    TaskStatus,
    TaskView,
)

Show: TypeAlias = Callable[[str], Awaitable[None]]
"""Shows the answer so far."""

Clock: TypeAlias = Callable[[], datetime]
"""The time now, with its zone."""


class Tasks(Protocol):
    """Every call checks that `by` may see or move the task: its maker, anybody in its chat, or
    an owner. Others get NotFound, and in a group everybody does for what is not the group's.
    Moves raise WrongState where the task's state forbids them; moved again by the same `source`
    they change nothing and return the task."""

    async def create(self, new: NewTask) -> Task: ...

    async def run_workflow(self, new: NewTask, workflow: Mapping[str, Any]) -> Task:
        """The same with its plan, which is the body of a workflow that has been checked: nobody
        plans it any more."""
        ...

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> Task:
        """By id or its beginning, with or without `task-`. NotFound, AmbiguousId."""
        ...

    async def page(
        self, *, by: Person, chat: ChatId, status: TaskStatus | None, page: int, size: int
    ) -> TaskPage:
        """Unfinished first, newest first; a page too far gives the last one."""
        ...

    async def view(self, task_id: TaskId) -> TaskView: ...

    async def events(self, task_id: TaskId, limit: int) -> Sequence[TaskEvent]:
        """The newest `limit`, oldest of them first."""
        ...

    async def pause(self, task: Task, *, by: Person, source: str, reason: str = "") -> Task: ...

    async def resume(self, task: Task, *, by: Person, source: str, said: str = "") -> Task:
        """`said` reaches the worker with its next step: the answer a stuck one asked for."""
        ...

    async def stop(self, task: Task, *, by: Person, source: str) -> Task: ...

    async def retry(self, task: Task, *, by: Person, source: str) -> Task: ...

    async def set_priority(
        self, task: Task, priority: Priority, *, by: Person, source: str
    ) -> Task: ...

    async def tell(self, task: Task, text: str, *, by: Person, source: str) -> Task:
        """Something for the worker: it reaches the next step, or the plan yet to be made."""
        ...

    async def is_in_rounds(self, task: Task, titles: Sequence[str]) -> bool:
        """Whether one of these that people have put in is done in each round of a loop."""
        ...

    async def inject(self, task: Task, titles: Sequence[str], *, by: Person, source: str) -> Task:
        """Put these steps next: before those not begun, after the one under way. WrongState
        while there is no plan to put them in."""
        ...

    async def replan(self, task: Task, why: str, *, by: Person, source: str) -> Task:
        """Ask for a new plan of what is left at the next boundary; finished work is kept."""
        ...

    async def let_in(self, task: Task, *, by: Person, source: str) -> Task:
        """Let it work in a directory that another task has left half done."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something said in a chat that wants an answer. `model` and `backend` are this message's
    own choice, empty for the chat's: a model comes with its backend, a backend without a model
    means its default one. `settle` True forbids proposing a task. `brief` is what the worker is
    told before these words: how they are to be worked on. `resumes` says that nothing new was said:
    the talk goes on from what it waited for. `skill` is the one that it is worked on with."""

    person: Person
    chat: Chat
    text: str
    language: Language
    source: str
    files: tuple[str, ...] = ()
    model: str = ""
    backend: str = ""
    settle: bool = False
    brief: str = ""
    resumes: bool = False
    skill: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The talk amounts to work: ask before starting it. `when` is for what is wanted at a set
    time, in the person's words: nothing can do that yet, and they are told so."""

    title: str
    text: str
    priority: Priority
    when: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """`interrupted` means a newer message, or /stop, cut the answer short: `text` is as far as
    it came, and is to be shown no further where it was /stop. `notes` are small print under the
    answer, in the person's language; `files` are relative to the data directory, and `sizes`
    has those that can be attached, in bytes. `model` is who answered, after `seconds`."""

    text: str
    proposal: Proposal | None = None
    interrupted: bool = False
    files: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    model: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkState:
    turns: int
    model: ModelChoice
    started_at: datetime
    last_used_at: datetime


class Talk(Protocol):
    """Conversations with the model, one session per chat. Failures raise BackendFailure."""

    async def answer(self, question: Question, show: Show) -> Answered: ...

    def interrupt(self, chat_id: ChatId) -> bool:
        """Cut the answer being made in this chat short, if there is one."""
        ...

    def arrived(self, chat_id: ChatId) -> bool:
        """A newer message came: the answer being made is cut short, or where the chat wants that
        the message has to wait for its end. True if it has to wait."""
        ...

    def queue(self, chat_id: ChatId, queue: str) -> None:
        """What the chat has chosen newer messages to do, empty for nothing: it counts at once."""
        ...

    def waits(self, chat_id: ChatId) -> bool:
        """Whether newer messages wait here."""
        ...

    async def reset(self, chat_id: ChatId) -> bool:
        """Begin a new session; False if there was none."""
        ...

    async def state(self, chat_id: ChatId) -> TalkState | None: ...


class BackendFailure(Exception):
    """A model or CLI could not do it. `hint` is the catalogue key of what to do about it,
    `facts` its facts."""

    def __init__(self, hint: str, **facts: object) -> None:
        self.hint = hint
        self.facts = facts
        super().__init__(hint)


class People(Protocol):
    async def who(self, channel: Channel, external_id: str) -> Person | None: ...

    async def get(self, person_id: PersonId) -> Person: ...

    async def chat(self, chat_id: ChatId) -> Chat: ...

    async def private_chats(self, role: Role) -> Sequence[Chat]:
        """Where people of that role can be told something in private."""
        ...

    async def adjust(self, chat: Chat, settings: ChatSettings) -> Chat: ...

    async def speak(self, person: Person, language: Language) -> None:
        """Remember the person's language."""
        ...

    async def members(self) -> Sequence[Member]:
        """Everybody who is let in: owners first, then by age."""
        ...

    async def demote(self, person_id: PersonId) -> bool:
        """Make an owner a member. False: the last owner and the local web chat's stay."""
        ...

    async def remove(self, person_id: PersonId) -> Sequence[ChatId] | None:
        """Make somebody a stranger again. Their private chats; None as False above."""
        ...


class Pairings(Protocol):
    async def ask(
        self, channel: Channel, external_id: str, name: str, chat_id: ChatId, *, now: datetime
    ) -> tuple[Pairing, bool]:
        """The stranger's pending request, made if there is none; True if it is new. Codes last
        an hour. Its approval row is made with it."""
        ...

    async def find(self, code: str, *, now: datetime) -> Pairing:
        """Case and blanks do not matter. NotFound if unknown, decided or expired."""
        ...

    async def approval(self, pairing: Pairing) -> Approval: ...


class Approvals(Protocol):
    async def waiting(self, *, by: Person, chat: ChatId | None) -> Sequence[Approval]:
        """Those this person may decide, oldest first; in one chat, or everywhere."""
        ...

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
    ) -> Approval:
        """Settle it and do what follows from it, in one transaction. The first decision wins:
        WrongState tells of an earlier one. Forbidden if `by` is not an approver, or allows for
        always what only an owner may. `scope` is how far a yes to the use of a tool reaches."""
        ...


class Forbidden(Exception):
    """This person may not do that."""


class Refusal(StrEnum):
    """Why a press changes nothing."""

    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    NOT_ALLOWED = "not_allowed"
    EXPIRED = "expired"
    RETIRED = "retired"
    USED = "used"


class Buttons(Protocol):
    """The buttons, selects and forms on stored cards, by token."""

    async def look(self, token: str) -> ActionRow | None:
        """What the token leads to, without touching it."""
        ...

    async def claim(
        self, token: str, *, person: PersonId, chat: ChatId, inbox_id: InboxId, now: datetime
    ) -> Refusal | None:
        """Take the right to act on a press; None means go on. A single-use token is used up by
        the first claim, for ever; the same `inbox_id` may claim it again, so that a press handled
        twice after a crash acts on. USED: `look` tells who did and when. FOREIGN: the card is in
        another chat. NOT_ALLOWED: `person` is not among those the row allows."""
        ...


class Cards(Protocol):
    """What was sent, as stored in the outbox."""

    async def form_of(self, chat_id: ChatId, message_id: str) -> Form | None:
        """The sealed form on the card that this message of the platform shows, if there is one:
        where forms cannot be shown, people answer them by a reply."""
        ...

    async def card(self, key: str) -> Card | None:
        """The newest revision of the card under `key`, sealed."""
        ...

    async def copies(self, prefix: str) -> Sequence[tuple[str, ChatId]]:
        """Keys beginning with `prefix`, each with the chat its card is in."""
        ...

    async def asking(self, approval_id: str) -> Sequence[tuple[str, ChatId]]:
        """Keys of the cards with a live button that decides about this request, with their
        chats."""
        ...


class Costs(Protocol):
    async def report(
        self, *, by: Person, chat: ChatId, query: CostQuery | None = None
    ) -> CostReport:
        """An owner sees all, and by whom and where if `query.named`; a member what they asked
        for. Without a query, this month."""
        ...

    async def of_task(self, task: Task) -> TaskCost: ...


class System(Protocol):
    async def status(self, *, by: Person) -> SystemStatus: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything handlers may use, plugged in by `bot.app`."""

    tasks: Tasks
    talk: Talk
    models: Models
    people: People
    pairings: Pairings
    approvals: Approvals
    costs: Costs
    system: System
    buttons: Buttons
    cards: Cards
    courier: Courier
    notebook: Notebook
    toolbook: ToolBook
    projects: Projects
    personas: Personas
    contexts: Contexts
    transcripts: Transcripts
    histories: Histories
    traces: TraceBook
    skills: Skills
    skill_writer: SkillWriter
    workflows: Workflows
    memory: MemoryBook
