"""Finds the tables, columns and options in a base, and makes those that are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.sync import layout
from bot.sync.layout import LAYOUT, ColumnLayout
from bot.sync.ports import (
    BaseId,
    BaseSetupService,
    FieldOption,
    NewTableField,
    TableField,
    TableId,
    TableRef,
    TableSummary,
)
from cards.catalog import catalog_for
from storage.records.bitable import SyncedTable, TableRole
from storage.records.bitable_setup import BitableGap, BitableGapKind
from storage.records.people import Language

_KANBAN = "kanban"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseInspection:
    """The tables as far as they exist, and what was missing."""

    tables: Mapping[TableRole, SyncedTable]
    gaps: tuple[BitableGap, ...]


@dataclass(kw_only=True, eq=False)
class BaseSetup:
    """One pass over a base. `known` are the tables as they were recorded: what people renamed is
    recognised by its ID. With `repairs`, everything missing is made; nothing is ever removed or
    renamed. Raises TableServiceError."""

    tables: BaseSetupService
    base: BaseId
    language: Language
    repairs: bool
    known: Mapping[TableRole, SyncedTable] = field(default_factory=dict)
    _gaps: list[BitableGap] = field(default_factory=list, init=False)

    async def run(self) -> BaseInspection:
        present = await self.tables.list_tables(self.base)
        found: dict[TableRole, SyncedTable] = {}
        for role in LAYOUT:
            table = self._find_table(role, present)
            if table is None:
                self._note(BitableGapKind.TABLE, role, layout.table_name(role, self.language))
                if not self.repairs:
                    continue
                table = await self._create_table(role)
            found[role] = await self._inspect_table(role, TableRef(base=self.base, table=table))
        return BaseInspection(tables=found, gaps=tuple(self._gaps))

    def _find_table(self, role: TableRole, present: Sequence[TableSummary]) -> TableId | None:
        known = self.known.get(role)
        if known is not None and any(each.id == known.table for each in present):
            return TableId(known.table)
        taken = {each.table for each in self.known.values()}
        named = (each for each in present if layout.table_role(each.name) is role)
        return next((each.id for each in named if each.id not in taken), None)

    async def _create_table(self, role: TableRole) -> TableId:
        words = catalog_for(self.language)
        table = await self.tables.create_table(
            self.base,
            layout.table_name(role, self.language),
            [self._new_field(role, each) for each in LAYOUT[role]],
            view=words("bitable.view.all"),
        )
        if role is TableRole.TASKS:
            ref = TableRef(base=self.base, table=table)
            await self.tables.create_view(ref, words("bitable.view.board"), kind=_KANBAN)
        return table

    def _new_field(self, role: TableRole, column: ColumnLayout, suffix: str = "") -> NewTableField:
        name = layout.column_name(role, column.key, self.language)
        options = tuple(
            layout.option_name(role, column.key, each, self.language) for each in column.options
        )
        return NewTableField(name=f"{name}{suffix}", type=column.type, options=options)

    async def _inspect_table(self, role: TableRole, ref: TableRef) -> SyncedTable:
        present = await self.tables.list_fields(ref)
        known = self.known.get(role)
        recorded = known.fields if known is not None and known.table == ref.table else {}
        fields: dict[str, str] = {}
        options: dict[str, Mapping[str, str]] = {}
        for column in LAYOUT[role]:
            free = [each for each in present if each.id not in fields.values()]
            field = _find_field(role, column, free, recorded)
            if field is None:
                field = await self._create_field(role, ref, column, present)
            if field is None:
                continue
            fields[column.key] = field.id
            if column.options:
                ids = known.options.get(column.key, {}) if recorded and known else {}
                options[column.key] = await self._inspect_options(role, ref, column, field, ids)
        return SyncedTable(table=ref.table, fields=fields, options=options)

    async def _create_field(
        self, role: TableRole, ref: TableRef, column: ColumnLayout, present: Sequence[TableField]
    ) -> TableField | None:
        new = self._new_field(role, column)
        is_taken = any(each.name == new.name for each in present)
        kind = BitableGapKind.COLUMN_TYPE if is_taken else BitableGapKind.COLUMN
        self._note(kind, role, new.name)
        if not self.repairs:
            return None
        if is_taken:
            new = self._new_field(role, column, suffix=" (Shiftboss)")
        return await self.tables.create_field(ref, new)

    async def _inspect_options(
        self,
        role: TableRole,
        ref: TableRef,
        column: ColumnLayout,
        field: TableField,
        recorded: Mapping[str, str],
    ) -> Mapping[str, str]:
        present = {each.id for each in field.options}
        found = {each: recorded[each] for each in column.options if recorded.get(each) in present}
        for option in field.options:
            meant = layout.option_role(role, column.key, option.name)
            if meant is not None and option.id not in found.values():
                found.setdefault(meant, option.id)
        missing = [each for each in column.options if each not in found]
        names = {each: self._option_name(role, column, each) for each in missing}
        for name in names.values():
            self._note(BitableGapKind.OPTION, role, name)
        if not missing or not self.repairs:
            return found
        more = tuple(FieldOption(name=each) for each in names.values())
        changed = await self.tables.update_field(
            ref, replace(field, options=(*field.options, *more))
        )
        made = {each.name: each.id for each in changed.options}
        return found | {each: made[name] for each, name in names.items() if name in made}

    def _option_name(self, role: TableRole, column: ColumnLayout, option: str) -> str:
        return layout.option_name(role, column.key, option, self.language)

    def _note(self, kind: BitableGapKind, table: TableRole, name: str) -> None:
        self._gaps.append(BitableGap(kind=kind, table=table, name=name))


def _find_field(
    role: TableRole,
    column: ColumnLayout,
    free: Sequence[TableField],
    recorded: Mapping[str, str],
) -> TableField | None:
    """The column recorded for this role, else one with such a name. The type must fit: a value
    that is read otherwise than it was written would be a change each time."""
    fitting = [each for each in free if each.type is column.type]
    for each in fitting:
        if each.id == recorded.get(column.key):
            return each
    others = set(recorded.values())
    for each in fitting:
        if layout.column_key(role, each.name) == column.key and each.id not in others:
            return each
    is_first = column is LAYOUT[role][0]
    # A table has one first column, whatever people call it.
    return next((each for each in fitting if is_first and each.is_primary), None)
