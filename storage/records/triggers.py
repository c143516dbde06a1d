"""Defines triggers: what starts a named workflow besides people and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId


class TriggerKind(StrEnum):
    """A message in a chat, a new file in a folder, or a request to the web server."""

    MESSAGE = "message"
    FILE = "file"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTrigger:
    """A trigger to create. Its tasks are in `chat_id` and, except for those of messages, of
    `owner_id`. `inputs` are fixed texts by name. `pattern` and `sender` are of messages, `folder`
    is of files; `seen` are the keys of the files that were there before. `token_hash` is that of a
    webhook's token, else None."""

    kind: TriggerKind
    workflow: str
    chat_id: ChatId
    owner_id: PersonId
    inputs: Mapping[str, str] = field(default_factory=dict)
    pattern: str = ""
    sender: str = ""
    folder: str = ""
    seen: tuple[str, ...] = ()
    token_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger(NewTrigger):
    id: str
    enabled: bool
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerFiring:
    """One event. Its `key` is unique for the trigger. `task_id` is the task that it has started;
    without one `note` says why."""

    trigger_id: str
    key: str
    task_id: TaskId | None
    note: str
    fired_at: datetime
