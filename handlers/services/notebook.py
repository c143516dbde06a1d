"""What the commands of the working method need: logs, subtasks, what to do now, and an end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from storage.records.logs import LogKind
from storage.records.notebook import Agenda, Closed, Found, LogPage, Marked, Noted, Recap, Staged
from storage.records.people import ChatId, Person
from storage.records.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Jotting:
    """A log to be kept. `file` is a path somebody named, `sent` are files that came along with
    the message, relative to the data directory."""

    kind: LogKind
    text: str
    stage: str = ""
    attempt: int = 0
    file: str = ""
    sent: tuple[str, ...] = ()


class Field(StrEnum):
    """What may be put right of a task by hand."""

    TITLE = "title"
    INSTRUCTION = "instruction"
    PRIORITY = "priority"
    STAGE = "stage"


class NoSuchFile(Exception):
    """There is no such file that may be kept with a log."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(path)


class BadValue(Exception):
    """The field cannot have this value."""


class Notebook(Protocol):
    """Every write asks whether `by` may move the task (NotFound), raises WrongState where the
    task's state forbids it, and changes nothing when the same `source` comes again: then the
    answer is what it has become."""

    async def note(self, task: Task, jotting: Jotting, *, by: Person, source: str) -> Noted:
        """Keep a log. One longer than 500 characters is cut, and the whole of it kept as a
        file. An error is counted: the fifth blocks work that nobody runs here at the moment.
        WrongState for an error of a finished task; NoSuchFile."""
        ...

    async def logs(self, task: Task, kind: LogKind | None, limit: int) -> LogPage: ...

    async def search_logs(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Found]:
        """The newest that say all these words, newest first."""
        ...

    async def search_tasks(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Task]: ...

    async def agenda(self, *, by: Person, chat: ChatId, outside: bool | None = None) -> Agenda: ...

    async def recap(self, *, by: Person, chat: ChatId) -> Recap | None:
        """Of the task to take up: paused before in progress before blocked, else pending."""
        ...

    async def recall(self, task: Task) -> Sequence[Found]:
        """Logs of other tasks that may help, at most five: only what everybody who may see this
        task may see."""
        ...

    async def plan(self, task: Task, text: str, *, by: Person, source: str) -> Noted:
        """A plan log, which is also the plan of work done outside."""
        ...

    async def add_subtasks(
        self, task: Task, titles: Sequence[str], *, by: Person, source: str
    ) -> Task:
        """Put them at the end of the plan; they are the plan where there is none."""
        ...

    async def finish_subtask(
        self, task: Task, name: str, summary: str, *, by: Person, source: str
    ) -> Marked:
        """By its exact name, its number, or a beginning that fits one alone. The last one done
        ends the task. NotFound, AmbiguousId; WrongState while it runs here."""
        ...

    async def stage_subtask(
        self, task: Task, said: str, *, by: Person, source: str, name: str = ""
    ) -> Marked:
        """`said` is what is being done about the subtask of that name; without one it begins
        with the name."""
        ...

    async def stage(self, task: Task, text: str, *, by: Person, source: str) -> Staged: ...

    async def finish(
        self,
        task: Task,
        *,
        by: Person,
        source: str,
        summary: str = "",
        tokens_now: int | None = None,
        force: bool = False,
    ) -> Closed:
        """WrongState for what has not begun, or runs here, unless by force."""
        ...

    async def block(self, task: Task, reason: str, *, by: Person, source: str) -> Task: ...

    async def interrupt(self, task: Task, note: str, *, by: Person, source: str) -> Task:
        """A checkpoint log, and a pause."""
        ...

    async def snap_tokens(self, task: Task, tokens: int, *, by: Person, source: str) -> Task: ...

    async def amend(self, task: Task, field: Field, value: str, *, by: Person, source: str) -> Task:
        """BadValue where the field cannot have it."""
        ...

    async def delete(self, task: Task, *, by: Person, source: str) -> Task:
        """Out of sight for good. What is being worked on has to be stopped first."""
        ...

    async def moved_by(self, source: str) -> Task | None:
        """The task that this source has moved already, though it may be out of sight now."""
        ...
