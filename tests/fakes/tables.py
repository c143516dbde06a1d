"""A table service in memory, with people who write into the same tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from bot.sync.layout import LAYOUT, column_name, option_name
from bot.sync.ports import (
    MAX_FETCHED,
    BaseId,
    BaseSummary,
    CellValue,
    ClientTokenConflict,
    FieldId,
    FieldOption,
    NewTableField,
    RecordAction,
    RecordId,
    RecordPage,
    RecordsChanged,
    TableField,
    TableId,
    TableRecord,
    TableRef,
    TableServiceError,
    TableSummary,
)
from storage.records.bitable import BitableBase, SyncedTable, TableRole
from storage.records.people import ChatId, Language, PersonId

APP = "cli_app"
_BASE = BaseId("bas1")


@dataclass
class FakeTable:
    """The versions of each record with the time since which they are there."""

    fields: list[TableField]
    versions: dict[RecordId, list[tuple[int, TableRecord | None]]] = field(default_factory=dict)

    def at(self, time: int) -> Mapping[RecordId, TableRecord]:
        found = {}
        for record_id, versions in self.versions.items():
            known = [each for at, each in versions if at <= time]
            if known and known[-1] is not None:
                found[record_id] = known[-1]
        return found


@dataclass
class FakeTables:
    """`calls` counts calls by name; `lag` is the number of milliseconds that reads lag behind.
    `fail` is raised by each call while it is set; `on_call` runs before and after each write."""

    now: Callable[[], int]
    language: Language = Language.ENGLISH
    lag: int = 0
    fail: TableServiceError | None = None
    on_call: Callable[[], None] = lambda: None
    page_size: int = 500
    tables: dict[TableRole, FakeTable] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    _tokens: dict[str, tuple[object, tuple[RecordId, ...]]] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        for role, columns in LAYOUT.items():
            self.tables[role] = FakeTable(
                fields=[
                    TableField(
                        id=_field_id(role, each.key),
                        name=column_name(role, each.key, self.language),
                        type=each.type,
                        options=tuple(
                            FieldOption(
                                name=option_name(role, each.key, option, self.language),
                                id=f"opt_{role}_{each.key}_{option}",
                            )
                            for option in each.options
                        ),
                    )
                    for each in columns
                ]
            )

    def base(self, chat: ChatId, owner: PersonId) -> BitableBase:
        return BitableBase(
            base=_BASE,
            name="Work",
            url="",
            language=self.language,
            chat_id=chat,
            owner=owner,
            tables={
                role: SyncedTable(
                    table=f"tbl_{role}",
                    fields={each.key: _field_id(role, each.key) for each in LAYOUT[role]},
                    options={
                        each.key: {
                            option: f"opt_{role}_{each.key}_{option}" for option in each.options
                        }
                        for each in LAYOUT[role]
                        if each.options
                    },
                )
                for role in LAYOUT
            },
        )

    def field_id(self, role: TableRole, key: str) -> FieldId:
        return _field_id(role, key)

    # People.

    def rows(self, role: TableRole = TableRole.TASKS) -> Sequence[TableRecord]:
        return tuple(self.tables[role].at(self.now()).values())

    def cell(self, record: RecordId, key: str, role: TableRole = TableRole.TASKS) -> CellValue:
        return self.tables[role].at(self.now())[record].cells.get(_field_id(role, key))

    def add(
        self, person: str, cells: Mapping[str, CellValue], role: TableRole = TableRole.TASKS
    ) -> RecordId:
        record = RecordId(f"rec{next(self._numbers)}")
        self._put(role, record, {_field_id(role, k): v for k, v in cells.items()}, person)
        return record

    def edit(
        self,
        person: str,
        record: RecordId,
        cells: Mapping[str, CellValue],
        role: TableRole = TableRole.TASKS,
    ) -> RecordsChanged:
        """Returns the event."""
        self._put(role, record, {_field_id(role, k): v for k, v in cells.items()}, person)
        return self.event(person, record, RecordAction.EDITED, role)

    def delete(
        self, person: str, record: RecordId, role: TableRole = TableRole.TASKS
    ) -> RecordsChanged:
        self.tables[role].versions[record].append((self.now(), None))
        return self.event(person, record, RecordAction.DELETED, role)

    def event(
        self,
        person: str | None,
        record: RecordId,
        action: RecordAction,
        role: TableRole = TableRole.TASKS,
    ) -> RecordsChanged:
        ref = TableRef(base=_BASE, table=TableId(f"tbl_{role}"))
        return RecordsChanged(ref=ref, records={record: action}, operator=person, at=self.now())

    def _put(
        self,
        role: TableRole,
        record: RecordId,
        cells: Mapping[FieldId, CellValue],
        person: str,
    ) -> None:
        now, table = self.now(), self.tables[role]
        known = table.at(now).get(record)
        new = {**(known.cells if known else {}), **cells}
        filled = {key: value for key, value in new.items() if value not in {None, ""}}
        made = TableRecord(
            id=record,
            cells=filled,
            created_by=known.created_by if known else person,
            modified_by=person,
            created_at=known.created_at if known else now,
            modified_at=now,
        )
        table.versions.setdefault(record, []).append((now, made))

    # The service.

    def _called(self, name: str, ref: TableRef) -> tuple[TableRole, FakeTable]:
        self.calls[name] += 1
        if self.fail is not None:
            raise self.fail
        role = TableRole(ref.table.removeprefix("tbl_"))
        return role, self.tables[role]

    async def get_base(self, base: BaseId) -> BaseSummary:
        return BaseSummary(id=base, name="Work")

    async def list_tables(self, base: BaseId) -> tuple[TableSummary, ...]:
        return tuple(TableSummary(id=TableId(f"tbl_{each}"), name=each) for each in self.tables)

    async def list_fields(self, ref: TableRef) -> tuple[TableField, ...]:
        _, table = self._called("list_fields", ref)
        return tuple(table.fields)

    async def create_field(self, ref: TableRef, field: NewTableField) -> TableField:
        raise NotImplementedError

    async def update_field(self, ref: TableRef, field: TableField) -> TableField:
        raise NotImplementedError

    async def subscribe_changes(self, base: BaseId) -> None: ...

    async def search(
        self, ref: TableRef, *, page: str = "", modified_since: int | None = None
    ) -> RecordPage:
        _, table = self._called("search", ref)
        found = sorted(table.at(self.now() - self.lag).values(), key=lambda each: -each.modified_at)
        wanted = [each for each in found if each.modified_at >= (modified_since or 0)]
        start = int(page or 0)
        end = start + self.page_size
        more = str(end) if end < len(wanted) else ""
        return RecordPage(records=tuple(wanted[start:end]), next_page=more, total=len(found))

    async def get_records(
        self, ref: TableRef, ids: Sequence[RecordId]
    ) -> Mapping[RecordId, TableRecord]:
        _, table = self._called("get_records", ref)
        self.calls["get_records"] += max(0, -(-len(ids) // MAX_FETCHED) - 1)
        there = table.at(self.now() - self.lag)
        return {each: there[each] for each in ids if each in there}

    async def create_records(
        self, ref: TableRef, rows: Sequence[Mapping[FieldId, CellValue]], *, client_token: str
    ) -> tuple[RecordId, ...]:
        role, _ = self._called("create_records", ref)
        self.on_call()
        plain = tuple(tuple(sorted(each.items(), key=str)) for each in rows)
        if client_token in self._tokens:
            known, ids = self._tokens[client_token]
            if known != plain:
                raise ClientTokenConflict("other rows")
            return ids
        made = tuple(RecordId(f"rec{next(self._numbers)}") for _ in rows)
        for record, cells in zip(made, rows, strict=True):
            self._put(role, record, cells, APP)
        self._tokens[client_token] = plain, made
        self.on_call()
        return made

    async def update_records(
        self, ref: TableRef, changes: Mapping[RecordId, Mapping[FieldId, CellValue]]
    ) -> frozenset[RecordId]:
        role, table = self._called("update_records", ref)
        self.on_call()
        there = table.at(self.now())
        for record, cells in changes.items():
            if record in there:
                self._put(role, record, cells, APP)
        self.on_call()
        return frozenset(changes.keys() - there.keys())

    async def delete_records(self, ref: TableRef, ids: Sequence[RecordId]) -> None:
        _, table = self._called("delete_records", ref)
        self.on_call()
        for record in ids:
            if record in table.versions:
                table.versions[record].append((self.now(), None))
        self.on_call()

    def rename_option(self, role: TableRole, key: str, option: str, name: str) -> None:
        """As a person does: cells show the new name."""
        table = self.tables[role]
        for index, each in enumerate(table.fields):
            if each.id == _field_id(role, key):
                old = next(o.name for o in each.options if o.id == f"opt_{role}_{key}_{option}")
                options = tuple(replace(o, name=name) if o.name == old else o for o in each.options)
                table.fields[index] = replace(each, options=options)
                for record in self.rows(role):
                    if record.cells.get(each.id) == old:
                        made = replace(record, cells={**record.cells, each.id: name})
                        table.versions[record.id].append((self.now(), made))


def _field_id(role: TableRole, key: str) -> FieldId:
    return FieldId(f"fld_{role}_{key}")
