"""Turns what people write into a row into messages of theirs in the configured chat, so that the
same rights, limits and confirmations hold for both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from handlers.flags import quote_value
from handlers.ports import PeoplePort
from storage.db import Database
from storage.messages.inbox import InboxRepo
from storage.records.bitable import SyncedRow, SyncedValue, TaskField
from storage.records.messages import (
    ChatAddress,
    InboxId,
    IncomingMessage,
    MessageSender,
)
from storage.records.people import Channel, Chat, ChatKind, Person, PersonRole
from storage.records.tasks import Task, TaskPriority, TaskStatus

_RESUMABLE = (TaskStatus.PAUSED, TaskStatus.BLOCKED)
_RETRIABLE = (TaskStatus.FAILED, TaskStatus.CANCELLED)
_MAX_TITLE = 80
_APP = "cli_"
"""Begins the IDs of apps. With other IDs, an app counts as a person without access."""


class MessageIntake(Protocol):
    """The inbox, which stores a message and handles it like every other one."""

    async def accept(self, incoming: IncomingMessage, *, dedupe: str) -> InboxId | None:
        """None if it is known already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEditor:
    """A person with access and the account they wrote with."""

    person: Person
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOrders:
    """Turns people's edits of rows into messages from them. The table and the accounts are
    Feishu's."""

    db: Database
    inbox: InboxRepo
    intake: MessageIntake
    people: PeoplePort

    async def find_editor(self, chat: Chat, account: str | None) -> RowEditor | None:
        """The person behind the account, if they may write in the chat."""
        person = await self.people.find_by_account(Channel.FEISHU, account) if account else None
        if account and person and (chat.kind is ChatKind.GROUP or chat.person_id == person.id):
            return RowEditor(person=person, account=account)
        return None

    async def find_last_editor(
        self, chat: Chat, modified_by: str | None, announced: str | None
    ) -> RowEditor | None:
        """The person whose orders a row's changes are: who changed it last. Who an event has
        `announced` counts only if that was Shiftboss itself: if it was somebody without access,
        nobody can tell whose changes are whose."""
        if modified_by is None or modified_by.startswith(_APP):
            return await self.find_editor(chat, announced)
        return await self.find_editor(chat, modified_by)

    async def find_author(
        self, chat: Chat, created_by: str | None, modified_by: str | None
    ) -> RowEditor | None:
        """The person whose task a new row becomes. If one person made it and another wrote into it
        since, both need access, and the one with less rights counts: nobody's words become the
        order of somebody who may do more."""
        writer = await self.find_editor(chat, modified_by)
        if writer is None or created_by in {None, modified_by}:
            return writer
        creator = await self.find_editor(chat, created_by)
        if creator is None:
            return None
        return creator if writer.person.role is PersonRole.OWNER else writer

    async def send(
        self, chat: Chat, editor: RowEditor, text: str, *, dedupe: str, at: int
    ) -> InboxId | None:
        """Send a command in the editor's name; the same key sends nothing twice and returns the
        same message. `at` is when it was written, in milliseconds."""
        incoming = IncomingMessage(
            place=ChatAddress(
                channel=chat.channel,
                chat=chat.external_id,
                kind=chat.kind,
                thread=chat.thread,
                title=chat.title,
            ),
            sender=MessageSender(external_id=editor.account, name=editor.person.name),
            message_id="",
            text=text,
            addressed=True,
            sent_at=datetime.fromtimestamp(at / 1000, UTC),
        )
        accepted = await self.intake.accept(incoming, dedupe=dedupe)
        return accepted if accepted is not None else await self.find_sent(chat, dedupe)

    async def find_sent(self, chat: Chat, dedupe: str) -> InboxId | None:
        """The message that was sent with this key."""
        async with self.db.read() as view:
            known = await self.inbox.find(view, chat.channel, dedupe)
        return None if known is None else known.id


def task_command(task: Task, key: str, value: SyncedValue) -> str | None:
    """The command by which a person orders in a chat what they wrote into a cell of a task; None
    if nobody can order that."""
    match key:
        case TaskField.TITLE:
            return f"/update {task.id} title {_line(value)}" if value else None
        case TaskField.PRIORITY:
            known = value in {each.value for each in TaskPriority}
            return f"/priority {task.id} {value}" if known and not task.status.is_final else None
        case TaskField.STATUS:
            return _status_command(task, value)
        case TaskField.INSTRUCTION:
            return _instruction_command(task, value)
    return None


def new_task_command(cells: Mapping[str, SyncedValue]) -> str | None:
    """The command that makes a task of a person's row; None while it says too little."""
    title, instruction = cells.get(TaskField.TITLE), cells.get(TaskField.INSTRUCTION)
    text = str(instruction or title or "").strip()
    if not text:
        return None
    flags = f"--title {quote_value(_line(title or text)[:_MAX_TITLE], always=True)}"
    priority = cells.get(TaskField.PRIORITY)
    if priority in {each.value for each in TaskPriority}:
        flags += f" -p {priority}"
    return f"/run {flags} -- {text}"


def order_key(row: SyncedRow, key: str, value: SyncedValue) -> str:
    """A name for one change of one cell: the same after a crash, another one when the same value is
    written again later."""
    return f"bitable:{row.id}:{row.revision}:{key}:{_digest(value)}"


def new_row_key(record_id: str, cells: Mapping[str, SyncedValue]) -> str:
    return f"bitable:{record_id}:{_digest(new_task_command(cells))}"


def _digest(value: SyncedValue) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def _line(value: SyncedValue) -> str:
    return " ".join(str(value).split())


def _status_command(task: Task, value: SyncedValue) -> str | None:
    match value:
        case TaskStatus.PAUSED if not task.status.is_final:
            return f"/pause {task.id}"
        case TaskStatus.CANCELLED if not task.status.is_final:
            return f"/stop {task.id}"
        case TaskStatus.COMPLETED if task.outside and not task.status.is_final:
            return f"/done {task.id}"
        case TaskStatus.PENDING | TaskStatus.RUNNING:
            if task.status in _RETRIABLE:
                return f"/retry {task.id}"
            # Also while it runs to the end of the step before a pause.
            if task.status in _RESUMABLE or task.status is TaskStatus.RUNNING:
                return f"/resume {task.id}"
    return None


def _instruction_command(task: Task, value: SyncedValue) -> str | None:
    """The command that changes an instruction: before work has begun the text itself, later a
    message to the worker."""
    if not value or task.status.is_final:
        return None
    if task.status is TaskStatus.PENDING and not task.graph_version:
        return f"/update {task.id} instruction {value}"
    return f"/msg {task.id} {value}"
