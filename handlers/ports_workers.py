"""Defines the ports for memory, journal, history, transcripts, traces, tools, skills and
workflows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from cards.model import Card, FileBlock
from storage.records import memory, task_logs, workflows
from storage.records.approvals import StandingPermission, ToolCallRecord
from storage.records.memory import MemoryEntry, MemoryListFilter
from storage.records.memory_consent import ConsentRequest, ConsentWish
from storage.records.memory_evidence import EntityEntries
from storage.records.people import Chat, ChatId, Language, Person, PersonId
from storage.records.skills import LoadedSkill, Skill, SkillCatalog, SkillDraft, SkillListing
from storage.records.system import ModelChoice
from storage.records.tasks import Task, TaskId
from storage.records.traces import Trace
from storage.records.workers import McpConsent, McpServerStatus, SessionInfo, SignOut


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalDraft:
    """A log to add. `file` is a path given by name; `attachments` are files sent with the message,
    relative to the data directory."""

    kind: task_logs.LogKind
    text: str
    stage: str = ""
    attempt: int = 0
    file: str = ""
    attachments: tuple[str, ...] = ()


class EditableTaskField(StrEnum):
    """The fields of a task that can be edited by hand."""

    TITLE = "title"
    INSTRUCTION = "instruction"
    PRIORITY = "priority"
    STAGE = "stage"


class JournalFileMissing(Exception):
    """The file does not exist or may not be stored with a log."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


class InvalidFieldValue(Exception):
    """The field cannot have this value."""


class JournalPort(Protocol):
    """Every write must check that `by` may change the task (NotFound), raise WrongState if its
    state forbids the change, and be idempotent by `source`: a repeat returns the current result."""

    async def add_log(
        self, task: Task, draft: JournalDraft, *, by: Person, source: str
    ) -> task_logs.LogResult:
        """Add a log.

        Text over 500 characters is truncated and saved as a file. Errors are counted: the fifth
        blocks a task that is not running here. Raises WrongState for an error of a finished task,
        and JournalFileMissing.
        """

    async def logs(
        self, task: Task, kind: task_logs.LogKind | None, limit: int
    ) -> task_logs.LogPage: ...

    async def search_logs(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[task_logs.LogMatch]:
        """Logs with all these words, newest first."""

    async def search_tasks(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Task]: ...

    async def agenda(
        self, *, by: Person, chat: ChatId, outside: bool | None = None
    ) -> task_logs.TaskAgenda: ...

    async def recap(self, *, by: Person, chat: ChatId) -> task_logs.TaskRecap | None:
        """Recap the task to resume: paused before running before blocked, else a pending one."""

    async def recall(self, task: Task) -> Sequence[task_logs.LogMatch]:
        """At most five helpful logs of other tasks, only those that everyone with access to this
        task may see."""

    async def write_plan(
        self, task: Task, text: str, *, by: Person, source: str
    ) -> task_logs.LogResult:
        """Add a plan log; for a tracked task it becomes the plan."""

    async def add_subtasks(
        self, task: Task, titles: Sequence[str], *, by: Person, source: str
    ) -> Task:
        """Append steps to the plan, or create it from them."""

    async def finish_subtask(
        self, task: Task, name: str, summary: str, *, by: Person, source: str
    ) -> task_logs.SubtaskProgress:
        """Finish a subtask by its exact name, its number or a unique prefix. The last one ends the
        task. Raises NotFound, AmbiguousId, and WrongState while the task runs here."""

    async def set_subtask_phase(
        self, task: Task, phase: str, *, by: Person, source: str, name: str = ""
    ) -> task_logs.SubtaskProgress:
        """Set what is being done about a subtask; without `name`, `phase` starts with it."""

    async def set_phase(
        self, task: Task, text: str, *, by: Person, source: str
    ) -> task_logs.StageChange: ...

    async def finish(
        self,
        task: Task,
        *,
        by: Person,
        source: str,
        summary: str = "",
        tokens_now: int | None = None,
        force: bool = False,
    ) -> task_logs.TaskCompletion:
        """WrongState for a task that has not started or, without `force`, is running here."""

    async def block_task(self, task: Task, reason: str, *, by: Person, source: str) -> Task: ...

    async def interrupt(self, task: Task, note: str, *, by: Person, source: str) -> Task:
        """Add a checkpoint log and pause the task."""

    async def record_token_count(
        self, task: Task, tokens: int, *, by: Person, source: str
    ) -> Task: ...

    async def update_field(
        self, task: Task, field: EditableTaskField, value: str, *, by: Person, source: str
    ) -> Task:
        """Raises InvalidFieldValue."""

    async def delete(self, task: Task, *, by: Person, source: str) -> Task:
        """Delete a task permanently. A running task must be stopped first."""

    async def find_changed_by(self, source: str) -> Task | None:
        """The task already changed by this source, deleted or not."""


ProgressCallback: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Called during long operations with the number done and the total."""


class MemoryRequestRejected(Exception):
    """The request was rejected; nothing was changed.

    `reason` is one of `unknown`, `ambiguous`, `not_yours`, `changed`, `empty`, `too_long`,
    `unknown_scope`, `unreadable`, `wrong_state`, `unknown_chapter`, `forgotten`; `detail` is its
    object.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason} {detail}".strip())


class MemoryPort(Protocol):
    """Implementations must show and change only what the person may see in this chat: never another
    person's entries, and in a group no private ones. All methods raise MemoryRequestRejected.
    `entry_id` may be a prefix."""

    def find_consent_request(self, text: str) -> ConsentWish | None:
        """Find, by rules, the part of the conversation that the text asks, or may ask, not to
        remember."""

    def find_permission(self, text: str) -> str | None:
        """Find, by rules, that the text begins with a permission to remember again, and return what
        it says besides; None if it gives none."""

    async def expect_no_more(self, chat: Chat, *, source: str) -> bool:
        """Take back the sender's wish for the NEXT message. False if there is none."""

    async def withhold(
        self,
        chat: Chat,
        wanted: ConsentRequest,
        *,
        source: str,
        reply_to: str = "",
        is_sure: bool = True,
    ) -> bool:
        """Forget what was meant: in memory at once, and everywhere when the conversation ends.
        BEFORE means the message that was replied to, else the sender's last one; False if it is not
        theirs or there is none. The caller has checked who may decide for a whole CHAT. Unless it
        `is_sure`, `keep_after_all` may bring it back."""

    async def withhold_expected(self, chat: Chat, *, source: str) -> bool:
        """Withhold this message if the sender's last wish was for the NEXT one."""

    async def keep_after_all(
        self, person: Person, chat: Chat, *, source: str, with_before: bool
    ) -> bool:
        """Remember a message that was withheld in doubt, and the one before it, as if there had
        been no doubt. False if they are erased by now."""

    async def list(
        self,
        person: Person,
        chat: Chat,
        kind: MemoryListFilter,
        *,
        scope: str = "",
        page: int = 1,
    ) -> memory.MemoryPage:
        """Twenty entries per page, newest first."""

    async def list_newest(
        self,
        person: Person,
        chat: Chat,
        kind: MemoryListFilter,
        *,
        scope: str = "",
        before: int | None = None,
        limit: int,
    ) -> memory.MemoryPage:
        """Entries with numbers below `before`, highest first. Changes to entries do not move them
        to other pages."""

    async def search(
        self,
        person: Person,
        chat: Chat,
        query: str,
        *,
        kind: memory.MemoryListFilter = memory.MemoryListFilter.ALL,
        scope: str = "",
        limit: int = 10,
    ) -> Sequence[memory.MemoryMatch]:
        """Find entries by words and meaning; entries no longer in use are found by their words
        only. `kind` and `scope` filter as in `list`."""

    async def list_about(self, person: Person, chat: Chat, name: str) -> Sequence[EntityEntries]:
        """Entries that name a person, project or place, including superseded ones, in one group for
        each bearer of the name. `name` may end with what tells the bearers apart."""

    async def show(self, person: Person, chat: Chat, entry_id: str) -> memory.MemoryDetail: ...

    async def add(
        self, person: Person, chat: Chat, text: str, *, scope: str = "", source: str = ""
    ) -> MemoryEntry:
        """`scope` is a scope's name, or `me`, `chat`, `project`, `global`; empty for the chat's
        default. The same `source` adds only once."""

    async def edit(
        self, person: Person, chat: Chat, entry_id: str, text: str, *, revision: int = 0
    ) -> MemoryEntry:
        """Change an entry's text. `revision` 0 edits any revision."""

    async def forget(
        self, person: Person, chat: Chat, entry_id: str, *, source: str = "", revision: int = 0
    ) -> MemoryEntry:
        """Delete permanently and return the entry as it was; `revision` 0 deletes any revision.
        Rejected as `forgotten` if this `source` already did it."""

    async def pin(
        self, person: Person, chat: Chat, entry_id: str, *, pinned: bool
    ) -> MemoryEntry: ...

    async def move(self, person: Person, chat: Chat, entry_id: str, scope: str) -> MemoryEntry: ...

    async def decide(
        self, person: Person, chat: Chat, entry_id: str, *, keep: bool, wording: str = ""
    ) -> MemoryEntry:
        """Save or reject a candidate, only if `wording` matches what was shown."""

    async def explain_answer(
        self, person: Person, chat: Chat, *, session: str = "", turn: int = 0
    ) -> memory.AnswerMemories:
        """The memories shown to the model for this chat's last answer, or for that turn."""

    async def explain_task(self, person: Person, chat: Chat, task: Task) -> memory.AnswerMemories:
        """The memories used in a task's steps. The caller has checked access to the task."""

    async def mark_helpful(
        self, person: Person, chat: Chat, *, session: str = "", turn: int = 0
    ) -> memory.AnswerMemories:
        """Mark the search results visible to the person as helpful for that answer, by default the
        last one. Idempotent."""

    async def get_handbook(self, person: Person, chat: Chat) -> Sequence[MemoryEntry]:
        """The chapters of BOSS.md, in order."""

    async def write_chapter(
        self, person: Person, chat: Chat, chapter: str, text: str
    ) -> MemoryEntry:
        """Rewrite a chapter, named by its title or key."""

    async def stats(self, person: Person, chat: Chat) -> memory.MemoryStats: ...

    async def clean(
        self, person: Person, chat: Chat, *, dry_run: bool, source: str = ""
    ) -> memory.MemoryCleanReport:
        """Clean up, or report what would go.

        Like `import_entries` and `restore`, a repeat with the same `source` after an interruption
        reports the total.
        """

    async def export(self, person: Person, chat: Chat) -> memory.MemoryExport:
        """Export all entries the person may see, one JSON object per line."""

    async def import_entries(
        self,
        person: Person,
        chat: Chat,
        path: str,
        *,
        scope: str = "",
        progress: ProgressCallback | None = None,
        source: str = "",
    ) -> memory.MemoryImportReport:
        """Import the output of `export`, or lines of text. `path` is a file sent with the
        message."""

    async def restore(
        self, person: Person, chat: Chat, path: str, *, source: str = ""
    ) -> memory.MemoryImportReport:
        """Restore everyone's missing entries from a backup; only for an owner in private. `path` is
        within the data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """A message found by a search.

    `by_bot`: an answer. `task` is the task of its session, empty for a conversation; `elsewhere`:
    in another chat; `partial_match`: it has only some of the words, because none has all. `ref` is
    its id in workers' tools.
    """

    at: datetime
    by_bot: bool
    text: str
    ref: str
    task: str = ""
    elsewhere: bool = False
    partial_match: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryResult:
    """`incomplete`: time ran out; only the newest messages were searched."""

    lines: Sequence[HistoryLine]
    incomplete: bool = False


class HistoryPort(Protocol):
    async def search(
        self, person: Person, chat: Chat, words: Sequence[str], limit: int
    ) -> HistoryResult:
        """Messages with all of these words, else most of them; better and newer matches first.
        Covers this chat and, if only this person reads it, their private chats and tasks."""

    async def list_recent(self, person: Person, chat: Chat, limit: int) -> Sequence[HistoryLine]:
        """Newest first."""

    async def compact(self, chat: ChatId) -> bool:
        """Schedule a summary of the current conversation. False if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptExport:
    """An exported transcript. `path` is relative to the data directory; `size` is in bytes."""

    session: SessionInfo
    path: str
    absolute_path: str
    size: int
    lines: int


class TranscriptPort(Protocol):
    async def list_recent(self, limit: int) -> Sequence[SessionInfo]:
        """The sessions used last, newest first."""

    async def export(self, prefix: str) -> TranscriptExport:
        """Export as JSON lines with secrets masked. Find by id or prefix: NotFound, AmbiguousId."""


class TracePort(Protocol):
    async def get_task_trace(self, task_id: TaskId) -> Trace:
        """The current trace, also while the task runs. It must not contain secrets."""

    async def get_chat_trace(self, chat_id: ChatId) -> Trace | None:
        """The chat's last answer outside tasks; None if there is none."""

    def follow(
        self, chat: ChatId, key: str, task_id: TaskId, render: Callable[[Trace], Card]
    ) -> None:
        """Redraw the card under `key` while the task runs, for some minutes or until another trace
        is followed in the chat. Does nothing if the card was not sent."""


class ToolPort(Protocol):
    """Results must not contain secrets."""

    async def list_grants(self) -> Sequence[StandingPermission]:
        """Standing permissions that are in force."""

    async def revoke(self, number: int) -> bool:
        """False if there is no such permission."""

    async def list_calls(self, task_id: TaskId, limit: int) -> Sequence[ToolCallRecord]:
        """The task's newest calls, oldest first."""


class McpPort(Protocol):
    """The MCP servers of this process. The caller must check what a person may see and do."""

    def list_servers(self) -> Sequence[McpServerStatus]: ...

    async def list_shared(self) -> Sequence[str]:
        """The names of the servers configured for all personas."""

    async def list_faults(self) -> Sequence[str]:
        """Errors in the files that configure servers, as texts for people."""

    async def list_consents(self) -> Sequence[McpConsent]:
        """The decisions about servers of projects, oldest first."""

    async def revoke_consent(self, consent_id: str) -> McpConsent | None:
        """Delete a decision, so that approval is requested again; None if there is no such
        decision."""

    async def start_sign_in(self, server: str) -> str | None:
        """Return the page where the person signs in; None if no such server has a URL. Raises
        SignInFailed."""

    async def finish_sign_in(self, pasted: str) -> str:
        """Take the code or the address that the page gave; return the server's name. Raises
        SignInFailed."""

    async def sign_out(self, server: str) -> SignOut:
        """Withdraw and delete what a sign-in has stored."""

    async def restart(self, server: str, *, select: Callable[[McpServerStatus], bool]) -> int:
        """Stop the selected servers of this name, so that the next use starts them. Returns their
        number."""


class SkillPort(Protocol):
    """`project` is a folder whose own skills are included; empty for none. Calls about one skill
    raise SkillRefused. The caller must check who may decide."""

    async def list_skills(self, project: str = "") -> SkillCatalog: ...

    async def reload(self, project: str = "") -> SkillCatalog:
        """Like `list_skills`, after reading all files again."""

    async def load(self, name: str, *, project: str = "", arguments: str = "") -> LoadedSkill:
        """A skill's text for a worker on a person's request: as it was enabled, or in the version
        that was adopted."""

    async def find_triggered(self, text: str, *, project: str = "") -> Skill | None:
        """The skill whose triggers match the text."""

    async def bundle_files(self, skill: Skill) -> FileBlock | None:
        """The text of all its files, for review before it is enabled; None if they have changed."""

    async def enable(
        self, name: str, hash: str, *, by: PersonId, project: str = ""
    ) -> SkillListing:
        """Enable exactly these files; `hash` may be a prefix."""

    async def disable(self, name: str, *, by: PersonId, project: str = "") -> SkillListing: ...

    async def postpone(
        self, name: str, hash: str, *, by: PersonId, project: str = ""
    ) -> SkillListing:
        """Record that the skill was reviewed and is not wanted now."""

    async def save(self, draft: SkillDraft, *, by: PersonId) -> SkillListing:
        """Save a draft exactly as it was shown, enabled."""


class SkillWriterPort(Protocol):
    async def draft(
        self,
        text: str,
        *,
        by: Person,
        chat: Chat,
        language: Language,
        source: str,
        choice: ModelChoice,
    ) -> SkillDraft:
        """Have the model write a skill for this request; an empty `choice` is the chat's. Raises
        BackendFailure, and SkillRefused for an invalid draft."""


class WorkflowPort(Protocol):
    """Workflow files in the data directory, read on each call. Calls about one workflow raise
    WorkflowRefused. The caller must check who may save and delete."""

    async def list_workflows(self) -> workflows.WorkflowCatalog: ...

    async def find(self, name: str) -> workflows.NamedWorkflow: ...

    async def render_diagram(self, name: str, language: Language) -> workflows.WorkflowDrawing:
        """Draw the workflow, with labels in that language."""

    async def draw_task_plan(self, task: Task, language: Language) -> str:
        """The task's plan as an SVG picture, with what its run has done; empty while there is
        none."""

    async def diff_with_run(self, task: Task) -> workflows.RunDiff:
        """Find what was changed since in the workflow that a task was started from. Raises
        WorkflowRefused if there is no such workflow any more, or NO_PLAN if a planner made the
        plan."""

    async def save_run_pictures(
        self, task: Task, trace: Trace | None, language: Language
    ) -> workflows.RunPictures:
        """Pictures for a chat, of the plan with what its run has done, and of the trace."""

    async def prepare_run(
        self, name: str, values: Mapping[str, workflows.WorkflowInputValue]
    ) -> workflows.PreparedWorkflow:
        """Prepare a run with validated `values`, and defaults for other inputs."""

    async def validate(self, text: str) -> workflows.NamedWorkflow | workflows.InvalidWorkflowFile:
        """Check whether this text is a valid workflow."""

    async def check(self, text: str, language: Language) -> workflows.WorkflowCheck:
        """Like `validate`, with a drawing for a page."""

    async def read_file(self, file: str) -> str:
        """Read a file sent with a message; `file` is relative to the data directory."""

    async def export_task_plan(self, task: Task, name: str) -> str:
        """A task's plan as workflow text, without its inputs and results. NO_PLAN if there is
        none."""

    async def read_source(self, name: str) -> workflows.WorkflowSource:
        """The text of the workflow of exactly this name, valid or not."""

    async def delete(self, name: str, *, based_on: str = "") -> None:
        """Invalid files can be deleted too. With the hash of the text that `based_on` names, only
        that is deleted: CHANGED if there is another by now."""
