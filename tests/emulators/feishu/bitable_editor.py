"""A person with a Bitable open in the browser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.emulators.feishu.bitable import BaseTable, FeishuBase, TableRow
from tests.emulators.feishu.bitable_values import TableColumn, plain, store

if TYPE_CHECKING:
    from tests.emulators.feishu.users import FeishuUser


@dataclass(slots=True, kw_only=True, eq=False)
class TableEditor:
    """Edits one table as `user`; columns are called by the names that are shown."""

    base: FeishuBase
    table: BaseTable
    user: FeishuUser

    # --- rows -------------------------------------------------------------------------------

    def add_row(self, **cells: Any) -> str:
        """A new row; a cell is what one would type: words, a number, milliseconds, a list."""
        return self.add_row_of(cells)

    def add_row_of(self, cells: Mapping[str, Any]) -> str:
        bitable = self.user.fs.bitable
        row = bitable.insert(self.table, self._stored(cells), self.user.open_id)
        self._announce(row, "added", None)
        return row.record_id

    def edit(self, record_id: str, name: str, value: Any) -> None:
        """Type into a cell; None empties it."""
        row = self.table.rows[record_id]
        before = row.cells
        assert before is not None, "the row is deleted"
        after = {**before, **self._stored({name: value})}
        self.user.fs.bitable.change(self.table, row, after, self.user.open_id)
        self._announce(row, "edited", before)

    def paste(self, record_id: str, name: str, *pieces: str | tuple[str, str]) -> None:
        """Rich text: plain pieces, and links as (words, address)."""
        segments = [
            {"text": each, "type": "text"}
            if isinstance(each, str)
            else {"text": each[0], "link": each[1], "type": "url"}
            for each in pieces
        ]
        self.edit(record_id, name, segments)

    def delete_rows(self, *record_ids: str) -> None:
        bitable = self.user.fs.bitable
        for each in record_ids:
            row = self.table.rows[each]
            before = row.cells
            bitable.change(self.table, row, None, self.user.open_id)
            self._announce(row, "deleted", before)

    def rows(self) -> dict[str, dict[str, Any]]:
        """All rows as they are seen: cells by column name, empty ones left out."""
        people = self.user.fs.world.people
        return {
            row.record_id: {
                column.name: plain(column, (row.cells or {}).get(column.field_id), people)
                for column in self.table.columns
                if (row.cells or {}).get(column.field_id) is not None
            }
            for row in self.table.live
        }

    # --- columns ----------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        return [each.name for each in self.table.columns]

    def add_column(
        self,
        name: str,
        kind: int,
        *options: str,
        compute: Callable[[Mapping[str, str]], str] | None = None,
    ) -> None:
        new_id = self.user.fs.world.new_id
        column = TableColumn(
            field_id=new_id("fld"),
            name=name,
            kind=kind,
            options={new_id("opt"): each for each in options},
            compute=compute,
        )
        self.table.columns.append(column)
        self._announce_column(column, "field_added")

    def rename_column(self, name: str, new_name: str) -> None:
        column = self.table.column(name)
        column.name = new_name
        self._announce_column(column, "field_edited")

    def move_column(self, name: str, index: int) -> None:
        """The order of columns is each view's own: no event."""
        column = self.table.column(name)
        self.table.columns.remove(column)
        self.table.columns.insert(index, column)

    def delete_column(self, name: str) -> None:
        column = self.table.column(name)
        assert not column.primary, "the first column cannot be deleted"
        self.table.columns.remove(column)
        self._announce_column(column, "field_deleted")

    def rename_option(self, name: str, option: str, new_option: str) -> None:
        column = self.table.column(name)
        found = next(each for each, shown in column.options.items() if shown == option)
        column.options[found] = new_option
        self._announce_column(column, "field_edited")

    def add_option(self, name: str, option: str) -> None:
        column = self.table.column(name)
        column.options[self.user.fs.world.new_id("opt")] = option
        self._announce_column(column, "field_edited")

    def delete_option(self, name: str, option: str) -> None:
        column = self.table.column(name)
        found = next(each for each, shown in column.options.items() if shown == option)
        del column.options[found]
        self._announce_column(column, "field_edited")

    # --- the base ---------------------------------------------------------------------------

    def remove_app(self) -> None:
        """The app is no collaborator any more."""
        self.base.app_inside = False

    def add_app(self) -> None:
        self.base.app_inside = True

    def delete_base(self) -> None:
        self.base.deleted = True

    def delete_table(self) -> None:
        del self.base.tables[self.table.table_id]

    def _stored(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        world = self.user.fs.world
        columns = {name: self.table.column(name) for name in cells}
        return {
            columns[name].field_id: store(columns[name], value, world.new_id, world.people)
            for name, value in cells.items()
        }

    def _announce(self, row: TableRow, action: str, before: Mapping[str, Any] | None) -> None:
        bitable = self.user.fs.bitable
        bitable.announce_rows(
            self.base, self.table, [(row, action, before, row.cells)], self.user.open_id
        )
        self.user.fs.world.notify_changed()

    def _announce_column(self, column: TableColumn, action: str) -> None:
        bitable = self.user.fs.bitable
        bitable.announce_field(self.base, self.table, action, column.field_id, self.user.open_id)
        self.user.fs.world.notify_changed()
