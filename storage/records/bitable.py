"""Defines the Bitable that tasks, logs and memories are synchronised with, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType, TypeAlias

from storage.records.people import ChatId, Language, PersonId

BitableRowId = NewType("BitableRowId", int)

SyncedValue: TypeAlias = str | int | float | bool | None
"""A cell in the store's own words: a status is `paused` in every language. Times are milliseconds,
None is an empty cell."""


class TableRole(StrEnum):
    TASKS = "tasks"
    LOGS = "logs"
    MEMORIES = "memories"


class TaskField(StrEnum):
    """Columns of the task table, which has a row for each task and each of its steps."""

    TITLE = "title"
    STATUS = "status"
    PRIORITY = "priority"
    INSTRUCTION = "instruction"
    STAGE = "stage"
    PLAN = "plan"
    RESULT = "result"
    ERRORS = "errors"
    TOKENS = "tokens"
    COST = "cost"
    PERSON = "person"
    PARENT = "parent"
    CREATED = "created"
    STARTED = "started"
    ENDED = "ended"
    ID = "id"
    NOTE = "note"


class LogField(StrEnum):
    CONTENT = "content"
    TASK = "task"
    KIND = "kind"
    STAGE = "stage"
    AT = "at"
    ID = "id"


class MemoryField(StrEnum):
    TITLE = "title"
    KIND = "kind"
    CONTENT = "content"
    IMPORTANCE = "importance"
    AT = "at"
    ACTIVE = "active"
    ID = "id"
    NOTE = "note"


class SyncedKind(StrEnum):
    TASK = "task"
    STEP = "step"
    LOG = "log"
    MEMORY = "memory"

    @property
    def table(self) -> TableRole:
        return _TABLES[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedTable:
    """A table's platform ID, the IDs of its columns by role, and those of the options of each
    column by what they mean. Columns that are missing in it are missing here."""

    table: str
    fields: Mapping[str, str]
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class BitableState(StrEnum):
    """STOPPED until the base can be used again or is set up anew."""

    ACTIVE = "active"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class BitableBase:
    """The base in use. Only what belongs to the chat, with all its threads, is in the tables:
    people there can read it anyway."""

    base: str
    name: str
    url: str
    language: Language
    chat_id: ChatId
    owner: PersonId
    tables: Mapping[TableRole, SyncedTable]
    state: BitableState = BitableState.ACTIVE
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncProgress:
    """How far each side has been read: the ids of the newest event, log and command seen, the state
    of the memories, and for each table the newest change. Times are milliseconds.

    Rows of people that are older than `since` were there before and are left alone. `needs_scan`:
    the whole tables must be compared first, since rows may exist that the store does not know.
    `rebuild`: make the tables what the store says, whatever people changed.
    """

    events: int = 0
    logs: int = 0
    commands: int = 0
    memories: str = ""
    tables: Mapping[str, int] = field(default_factory=dict)
    since: int = 0
    scanned_at: int = 0
    needs_scan: bool = True
    rebuild: bool = False


class SyncedRowState(StrEnum):
    """CREATING: it may exist in the table or not. ORDERED: a person's row whose message is not
    handled yet. REFUSED: a person's row that became nothing. GONE: a person deleted it for good."""

    CREATING = "creating"
    LIVE = "live"
    ORDERED = "ordered"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedRow:
    """A row of a table and the store's object behind it.

    `local_id` is empty while a person's row has none. `cells` are the values on which both sides
    last agreed. `revision` counts the agreements and names a person's changes since the last one.
    `orders` has the inbox row of each cell whose change is not handled yet, and `wanted` the values
    that people gave those cells. `token` makes the creation repeatable. Reads soon after
    `pushed_at` may show older values.
    """

    id: BitableRowId
    kind: SyncedKind
    local_id: str
    record_id: str
    token: str
    state: SyncedRowState
    cells: Mapping[str, SyncedValue]
    wanted: Mapping[str, SyncedValue]
    orders: Mapping[str, int]
    revision: int
    pushed_at: datetime | None


_TABLES = {
    SyncedKind.TASK: TableRole.TASKS,
    SyncedKind.STEP: TableRole.TASKS,
    SyncedKind.LOG: TableRole.LOGS,
    SyncedKind.MEMORY: TableRole.MEMORIES,
}


class BitableGapKind(StrEnum):
    """A fault of a base. COLUMN_TYPE: a column of this name has another type, so that one of
    ours has to stand beside it."""

    TABLE = "table"
    COLUMN = "column"
    COLUMN_TYPE = "column_type"
    OPTION = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class BitableGap:
    """`name` is how the missing part is called in the base's language; `table` is where."""

    kind: BitableGapKind
    table: TableRole
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BitableReport:
    """A base and its gaps, which are filled if `is_repaired`. `is_new`: it was made just now.
    `announces`: people's changes come at once, and not only when the tables are read again. `calls`
    were made to the platform."""

    base: BitableBase
    gaps: tuple[BitableGap, ...] = ()
    is_repaired: bool = False
    is_new: bool = False
    announces: bool = True
    calls: int = 0

    @property
    def is_good(self) -> bool:
        return self.is_repaired or not self.gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class BitableStatus:
    """`base` is None if none is set up, `chat` is where its tasks belong. `has_feishu` is False
    without a Feishu app."""

    base: BitableBase | None
    has_feishu: bool
    chat: str = ""
