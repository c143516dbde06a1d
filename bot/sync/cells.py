"""Converts between the cells of a table and the store's values."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bot.sync.layout import LAYOUT, option_name, option_role
from bot.sync.ports import CellValue, FieldId, FieldType, TableField, TableRecord
from storage.records.bitable import SyncedTable, SyncedValue, TableRole
from storage.records.people import Language

MAX_TEXT = 5000
"""Characters of one cell; what is longer is cut, with a mark at its end."""

UNKNOWN_OPTION = "?"
"""Begins the value of a select cell whose option means nothing to Shiftboss."""

_WITH_OPTIONS: Mapping[TableRole, frozenset[str]] = {
    role: frozenset(each.key for each in columns if each.options)
    for role, columns in LAYOUT.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCodec:
    """Converts the cells of one table with its current columns. Columns that people deleted, or
    whose type cannot hold Shiftboss's values, are ignored."""

    role: TableRole
    table: SyncedTable
    fields: Sequence[TableField]
    language: Language
    _columns: Mapping[str, TableField] = field(init=False)
    _keys: Mapping[FieldId, str] = field(init=False)
    _names: Mapping[str, Mapping[str, str]] = field(init=False)
    _meanings: Mapping[str, Mapping[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        by_id = {each.id: each for each in self.fields}
        columns = {
            key: by_id[FieldId(field_id)]
            for key, field_id in self.table.fields.items()
            if FieldId(field_id) in by_id and by_id[FieldId(field_id)].type.is_writable
        }
        names: dict[str, Mapping[str, str]] = {}
        meanings: dict[str, Mapping[str, str]] = {}
        for key, column in columns.items():
            if key not in _WITH_OPTIONS[self.role]:
                continue
            names[key], meanings[key] = self._read_options(key, column)
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_keys", {each.id: key for key, each in columns.items()})
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_meanings", meanings)

    def _read_options(
        self, key: str, column: TableField
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The current name of each meaning's option, and the meaning of each name: by the ID that
        survives renaming, or else by the word."""
        by_id = {known: meaning for meaning, known in self.table.options.get(key, {}).items()}
        names: dict[str, str] = {}
        meanings: dict[str, str] = {}
        for option in column.options:
            meaning = by_id.get(option.id) or option_role(self.role, key, option.name)
            if meaning is not None:
                meanings[option.name] = meaning
                if option.id in by_id:
                    names[meaning] = option.name
                else:
                    names.setdefault(meaning, option.name)
        return names, meanings

    @property
    def keys(self) -> frozenset[str]:
        """The existing columns."""
        return frozenset(self._columns)

    def column_names(self, keys: Iterable[str]) -> str:
        """The names of the columns as people see them, for a sentence."""
        return " · ".join(self._columns[key].name for key in keys if key in self._columns)

    def encode(self, cells: Mapping[str, SyncedValue]) -> Mapping[FieldId, CellValue]:
        """The cells of the existing columns."""
        return {
            self._columns[key].id: self._encode(key, value)
            for key, value in cells.items()
            if key in self._columns
        }

    def decode(self, record: TableRecord) -> Mapping[str, SyncedValue]:
        """The values of all columns; empty ones are None."""
        return {
            key: self._decode(key, record.cells.get(column.id))
            for key, column in self._columns.items()
        }

    def normalize(self, cells: Mapping[str, SyncedValue]) -> Mapping[str, SyncedValue]:
        """The store's values as the table can show them, for the existing columns."""
        return {
            key: normal_value(value, self._columns[key].type)
            for key, value in cells.items()
            if key in self._columns
        }

    def _encode(self, key: str, value: SyncedValue) -> CellValue:
        column = self._columns[key]
        if value is None:
            return None
        if key in _WITH_OPTIONS[self.role]:
            shown = self._names.get(key, {}).get(str(value)) or option_name(
                self.role, key, str(value), self.language
            )
            return (shown,) if column.type is FieldType.MULTI_SELECT else shown
        if column.type is FieldType.TEXT:
            return str(value)
        return value

    def _decode(self, key: str, value: CellValue) -> SyncedValue:
        column = self._columns[key]
        if isinstance(value, tuple):
            value = value[0] if value else None
        if value is None or value == "":
            return None
        if key in _WITH_OPTIONS[self.role]:
            shown = str(value)
            meaning = self._meanings.get(key, {}).get(shown) or option_role(self.role, key, shown)
            return meaning if meaning is not None else UNKNOWN_OPTION + shown
        return normal_value(value, column.type)


def normal_value(value: SyncedValue, kind: FieldType) -> SyncedValue:
    """A normal form for values that a platform may return in several forms."""
    if value is None:
        return None
    if kind is FieldType.CHECKBOX:
        return True if value else None
    if kind is FieldType.NUMBER and isinstance(value, int | float):
        return round(float(value), 4)
    if kind is FieldType.DATE and isinstance(value, int | float):
        return int(value) // 1000 * 1000
    return normal_text(str(value)) or None


def normal_text(text: str) -> str:
    """Text without the changes that editors and pasting make on their own."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = "".join(each for each in text if each in "\n\t" or each.isprintable())
    text = "\n".join(line.rstrip() for line in text.split("\n")).strip()
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1].rstrip() + "…"
