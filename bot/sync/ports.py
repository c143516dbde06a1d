"""Ports of the synchronisation: the table service of a platform, and the changes it announces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any, NewType, Protocol, TypeAlias

from pydantic import TypeAdapter

BaseId = NewType("BaseId", str)
TableId = NewType("TableId", str)
FieldId = NewType("FieldId", str)
RecordId = NewType("RecordId", str)

MAX_CREATED = 1000
MAX_UPDATED = 1000
MAX_DELETED = 500
MAX_FETCHED = 100
MAX_PAGE = 500


class FieldType(IntEnum):
    """Types of Feishu fields by their codes. OTHER stands for every code that is not listed."""

    OTHER = 0
    TEXT = 1
    NUMBER = 2
    SINGLE_SELECT = 3
    MULTI_SELECT = 4
    DATE = 5
    CHECKBOX = 7
    PERSON = 11
    PHONE = 13
    URL = 15
    ATTACHMENT = 17
    FORMULA = 20
    CREATED_TIME = 1001
    MODIFIED_TIME = 1002
    CREATED_BY = 1003
    MODIFIED_BY = 1004

    @classmethod
    def _missing_(cls, _value: object) -> FieldType:
        return cls.OTHER

    @property
    def is_writable(self) -> bool:
        """Whether cells of this type accept values from us."""
        return self in _WRITABLE

    @property
    def has_options(self) -> bool:
        return self in (FieldType.SINGLE_SELECT, FieldType.MULTI_SELECT)


_WRITABLE = frozenset(
    {
        FieldType.TEXT,
        FieldType.NUMBER,
        FieldType.SINGLE_SELECT,
        FieldType.MULTI_SELECT,
        FieldType.DATE,
        FieldType.CHECKBOX,
        FieldType.PERSON,
        FieldType.PHONE,
        FieldType.URL,
        FieldType.ATTACHMENT,
    }
)


CellValue: TypeAlias = str | float | bool | int | tuple[str, ...] | None
"""A cell, normalised: the same value is read back that was written.

TEXT, PHONE, FORMULA: str. URL: str, the address (the words shown are lost). NUMBER: float.
SINGLE_SELECT: str, the option's name. MULTI_SELECT: names. DATE, CREATED_TIME, MODIFIED_TIME: int,
milliseconds. CHECKBOX: bool. PERSON, CREATED_BY, MODIFIED_BY: open IDs. ATTACHMENT: file tokens.
OTHER: str, as well as it can be shown. None clears a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOption:
    """An option of a select field. Its ID survives renaming; a new option has none."""

    name: str
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTableField:
    name: str
    type: FieldType
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableField:
    """`is_primary`: the first column, which always exists and cannot be deleted."""

    id: FieldId
    name: str
    type: FieldType
    options: tuple[FieldOption, ...] = ()
    is_primary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef:
    """A table of a base."""

    base: BaseId
    table: TableId


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    id: TableId
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSummary:
    """`url` opens the base in Feishu."""

    id: BaseId
    name: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """A row as it was read. `cells` has no entry for an empty cell; a checkbox that was never set
    counts as empty. Times are in milliseconds; the persons are open IDs, or None if unknown (an
    app's own edits may show the app's ID, which begins with cli_)."""

    id: RecordId
    cells: Mapping[FieldId, CellValue]
    created_by: str | None = None
    modified_by: str | None = None
    created_at: int = 0
    modified_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """`next_page` is empty on the last page; `total` counts the rows of the whole table."""

    records: tuple[TableRecord, ...]
    next_page: str = ""
    total: int = 0


class TableServiceError(Exception):
    """Base of all errors of a TableService."""


class TableBusy(TableServiceError):
    """A write conflict, too many calls, or data that is not ready yet. The service has repeated
    the call for a while; try again after `retry_after` seconds. Nothing was written."""

    def __init__(self, reason: str, *, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(reason)


class TablePlatformUnreachable(TableServiceError):
    """No answer, or an answer of a broken server. A write may have been executed: repeat it with
    the same client token, or the same cells."""


class UnknownTableField(TableServiceError):
    """A field does not exist (any more). Read the fields again."""


class BaseUnreachable(TableServiceError):
    """The base or table is gone, or the app may not open it or lacks a scope."""


class TableQuotaExhausted(TableServiceError):
    """The tenant's monthly quota of calls is used up."""


class TableFull(TableServiceError):
    """The table accepts no more rows or fields."""


class ClientTokenConflict(TableServiceError):
    """The client token was used for other rows, or its first use has not ended."""


class CellRefused(TableServiceError):
    """The platform does not accept a value or a definition: wrong type, too long, malformed."""


class TableService(Protocol):
    """Tables on a platform, spoken to in field IDs and normalised values.

    Implementations write to a table from one place at a time, split what exceeds the platform's
    limits, repeat calls that were refused as busy, and raise only subclasses of
    `TableServiceError`. Reads may lag behind writes by some seconds."""

    async def get_base(self, base: BaseId) -> BaseSummary: ...

    async def list_tables(self, base: BaseId) -> tuple[TableSummary, ...]: ...

    async def list_fields(self, ref: TableRef) -> tuple[TableField, ...]:
        """In the order of the table. Always read from the platform."""
        ...

    async def create_field(self, ref: TableRef, field: NewTableField) -> TableField: ...

    async def update_field(self, ref: TableRef, field: TableField) -> TableField:
        """Set name and options. Options that are left out are deleted, with the cells' values."""
        ...

    async def search(
        self, ref: TableRef, *, page: str = "", modified_since: int | None = None
    ) -> RecordPage:
        """One page of rows, at most `MAX_PAGE`. With `modified_since` (milliseconds, inclusive)
        only rows changed then or later, the latest first, as far as the platform can tell."""
        ...

    async def get_records(
        self, ref: TableRef, ids: Sequence[RecordId]
    ) -> Mapping[RecordId, TableRecord]:
        """The rows that exist, of any number of IDs."""
        ...

    async def create_records(
        self, ref: TableRef, rows: Sequence[Mapping[FieldId, CellValue]], *, client_token: str
    ) -> tuple[RecordId, ...]:
        """IDs in the order of `rows`. Repeating it with the same token (a UUID) and rows creates
        nothing twice and returns the same IDs. Unknown option names become options. If it needs
        several calls, an error leaves the rows of the earlier ones."""
        ...

    async def update_records(
        self, ref: TableRef, changes: Mapping[RecordId, Mapping[FieldId, CellValue]]
    ) -> frozenset[RecordId]:
        """Write the given cells only. Returns the IDs that do not exist; all others are written."""
        ...

    async def delete_records(self, ref: TableRef, ids: Sequence[RecordId]) -> None:
        """Rows that do not exist (any more) are no error."""
        ...

    async def subscribe_changes(self, base: BaseId) -> None:
        """Have the platform announce changes of this base; harmless if it does already."""
        ...


class BaseSetupService(TableService, Protocol):
    """The calls that only the setup of a base needs. They are not repeated by themselves: what a
    lost answer has created is found by reading."""

    async def create_base(self, name: str) -> BaseSummary: ...

    async def find_wiki_base(self, node: str) -> BaseId | None:
        """The base that a page of a wiki is; None for another page."""
        ...

    async def create_table(
        self, base: BaseId, name: str, fields: Sequence[NewTableField], *, view: str
    ) -> TableId:
        """The first field becomes the primary one and must be a text; `view` names the grid."""
        ...

    async def delete_table(self, ref: TableRef) -> None: ...

    async def list_views(self, ref: TableRef) -> tuple[str, ...]:
        """The names of the table's views."""
        ...

    async def create_view(self, ref: TableRef, name: str, *, kind: str) -> None:
        """`kind`: grid, kanban, gallery or gantt."""
        ...

    async def share_with(self, base: BaseId, member: str) -> None:
        """Let a person (`ou_…`) manage the base, or the members of a chat (`oc_…`) edit it;
        harmless if they can already."""
        ...


class RecordAction(StrEnum):
    ADDED = "added"
    EDITED = "edited"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsChanged:
    """Rows of a table changed, also by our own writes. `operator` is an open ID if known, `at` in
    milliseconds."""

    ref: TableRef
    records: Mapping[RecordId, RecordAction]
    operator: str | None
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldsChanged:
    """The columns or options of a table changed."""

    ref: TableRef


TableChange: TypeAlias = RecordsChanged | FieldsChanged


def dump_table_change(change: TableChange) -> dict[str, Any]:
    dumped: dict[str, Any] = _change_adapter().dump_python(change, mode="json")
    return dumped


def load_table_change(data: Mapping[str, Any]) -> TableChange:
    """Raises ValueError."""
    return _change_adapter().validate_python(data)


@cache
def _change_adapter() -> TypeAdapter[TableChange]:
    return TypeAdapter(TableChange)


class TableChangeListener(Protocol):
    def on_table_change(self, change: TableChange) -> None:
        """A change was announced, maybe twice and in any order. Must not block or raise: the
        event is acknowledged afterwards. Announcements can be lost."""
        ...
