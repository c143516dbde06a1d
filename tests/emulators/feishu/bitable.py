"""Bitable: bases, tables, fields, views and rows, as strict as the platform."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.emulators.feishu.bitable_values import (
    ATTACHMENT,
    AUTOMATIC,
    CREATED,
    DATE,
    FORMULA,
    MODIFIED,
    MULTI,
    SELECT,
    TEXT,
    UI_TYPES,
    TableColumn,
    event_value,
    person,
    plain,
    refuse,
    show,
    store,
)
from tests.emulators.feishu.events import user_ids
from tests.emulators.feishu.http_server import HttpRequest
from tests.emulators.feishu.refusals import scope_missing

if TYPE_CHECKING:
    from tests.emulators.feishu.documents import FeishuDocument
    from tests.emulators.feishu.emulator import FeishuEmulator

MAX_ROWS, MAX_FIELDS, MAX_TABLES, MAX_VIEWS = 20_000, 300, 100, 200
MAX_CREATED, MAX_UPDATED, MAX_DELETED, MAX_FETCHED = 1000, 1000, 500, 100
MAX_PAGE, DEFAULT_PAGE = 500, 20
WRITES_PER_SECOND, READS_PER_SECOND = 50, 20
RECORDS_CHANGED = "drive.file.bitable_record_changed_v1"
FIELDS_CHANGED = "drive.file.bitable_field_changed_v1"
_TABLE_PATH = re.compile(r"/open-apis/bitable/v1/apps/([^/]+)/tables/([^/]+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowVersion:
    """The stored cells of a row since a moment; None means deleted."""

    at: float
    by: str
    cells: dict[str, Any] | None

    @property
    def at_ms(self) -> int:
        return int(self.at * 1000)


@dataclass(slots=True, kw_only=True, eq=False)
class TableRow:
    record_id: str
    created_by: str
    created_ms: int
    versions: list[RowVersion] = field(default_factory=list)

    @property
    def cells(self) -> dict[str, Any] | None:
        return self.versions[-1].cells

    def version(self, moment: float) -> RowVersion | None:
        """As it was then; None if it did not exist."""
        found = next((each for each in reversed(self.versions) if each.at <= moment), None)
        return None if found is None or found.cells is None else found


@dataclass(slots=True, kw_only=True, eq=False)
class BaseTable:
    table_id: str
    name: str
    columns: list[TableColumn]
    views: list[dict[str, Any]]
    rows: dict[str, TableRow] = field(default_factory=dict)
    revision: int = 1
    busy_until: float = 0.0

    @property
    def live(self) -> list[TableRow]:
        return [row for row in self.rows.values() if row.cells is not None]

    def column(self, name: str) -> TableColumn:
        for each in self.columns:
            if each.name == name:
                return each
        raise refuse(1254045, f"FieldNameNotFound: {name}")


@dataclass(slots=True, kw_only=True, eq=False)
class FeishuBase:
    """`members` are permissions by person; without `app_inside` the app is refused."""

    token: str
    name: str
    url: str
    tables: dict[str, BaseTable] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    app_inside: bool = True
    deleted: bool = False
    subscribed: bool = False

    def table(self, name: str) -> BaseTable:
        return next(each for each in self.tables.values() if each.name == name)


class Bitable:
    """`read_lag` are the seconds after which reads see a write; `write_seconds` is how long a
    write takes, in which another to the same table is refused; `text_numbers` returns numbers as
    text. `max_rows` is the limit of a table; `wiki` has type and token of the pages of a wiki."""

    def __init__(self, fs: FeishuEmulator) -> None:
        self._fs = fs
        self._answers: dict[str, tuple[str, dict[str, Any]]] = {}
        self.bases: dict[str, FeishuBase] = {}
        self.wiki: dict[str, tuple[str, str]] = {}
        self.read_lag = 0.0
        self.write_seconds = 0.002
        self.text_numbers = False
        self.max_rows = MAX_ROWS
        self.send_events = True

    # --- for tests --------------------------------------------------------------------------

    def new_base(self, name: str, *, app_inside: bool = True) -> FeishuBase:
        """A base with one default table, as the platform and people make them."""
        token = self._fs.world.new_id("bascn", 22)
        base = FeishuBase(
            token=token, name=name, url=f"{self._fs.domain}/base/{token}", app_inside=app_inside
        )
        self.bases[token] = base
        columns = [("文本", TEXT), ("单选", SELECT), ("日期", DATE), ("附件", ATTACHMENT)]
        table = self.new_table(base, "数据表", columns, "表格")
        for _ in range(5):
            self.insert(table, {}, self._fs.bot_id)
        return base

    def new_table(
        self, base: FeishuBase, name: str, columns: Iterable[tuple[str, int]], view: str
    ) -> BaseTable:
        made = [
            TableColumn(field_id=self._fs.world.new_id("fld"), name=each, kind=kind)
            for each, kind in columns
        ]
        made[0].primary = True
        table = BaseTable(table_id=self._fs.world.new_id("tbl"), name=name, columns=made, views=[])
        self.add_view(table, view, "grid")
        base.tables[table.table_id] = table
        return table

    def add_view(self, table: BaseTable, name: str, kind: str) -> dict[str, Any]:
        view = {"view_id": self._fs.world.new_id("vew"), "view_name": name, "view_type": kind}
        table.views.append(view)
        return view

    def insert(self, table: BaseTable, cells: dict[str, Any], by: str) -> TableRow:
        row = TableRow(
            record_id=self._fs.world.new_id("rec"),
            created_by=by,
            created_ms=self._fs.clock.now_ms(),
        )
        table.rows[row.record_id] = row
        self.change(table, row, cells, by)
        return row

    def change(
        self, table: BaseTable, row: TableRow, cells: dict[str, Any] | None, by: str
    ) -> None:
        """The row's next version; with None it is deleted."""
        now = self._fs.clock.now()
        old = sum(each.at <= now - self.read_lag for each in row.versions)
        row.versions = [*row.versions[max(old - 1, 0) :], RowVersion(at=now, by=by, cells=cells)]
        table.revision += 1

    def announce_rows(
        self,
        base: FeishuBase,
        table: BaseTable,
        changes: Iterable[tuple[TableRow, str, Mapping[str, Any] | None, Mapping[str, Any] | None]],
        by: str,
    ) -> None:
        """Push the event of these rows: row, action, cells before and after."""
        actions = [
            {
                "record_id": row.record_id,
                "action": f"record_{action}",
                "before_value": self._event_values(table, before, after),
                "after_value": self._event_values(table, after, before),
            }
            for row, action, before, after in changes
        ]
        if actions:
            self._push(base, table, RECORDS_CHANGED, actions, by)

    def announce_field(
        self, base: FeishuBase, table: BaseTable, action: str, field_id: str, by: str
    ) -> None:
        self._push(base, table, FIELDS_CHANGED, [{"action": action, "field_id": field_id}], by)

    def _event_values(
        self, table: BaseTable, cells: Mapping[str, Any] | None, other: Mapping[str, Any] | None
    ) -> list[dict[str, Any]]:
        return [
            event_value(each, (cells or {}).get(each.field_id), self._fs.world.people)
            for each in table.columns
            if (cells or {}).get(each.field_id) != (other or {}).get(each.field_id)
        ]

    def _push(
        self, base: FeishuBase, table: BaseTable, kind: str, actions: list[dict[str, Any]], by: str
    ) -> None:
        if not (self.send_events and base.subscribed and kind in self._fs.app.events):
            return
        event = {
            "file_type": "bitable",
            "file_token": base.token,
            "table_id": table.table_id,
            "revision": table.revision,
            "operator_id": user_ids(by),
            "action_list": actions,
            "subscriber_id_list": [user_ids(self._fs.bot_id)],
            "update_time": int(self._fs.clock.now()),
        }
        self._fs.push_event(kind, event)

    # --- finding ----------------------------------------------------------------------------

    def _base(self, token: str, *, write: bool = False) -> FeishuBase:
        if self._fs.app.scopes.get("bitable:app") != 1:
            raise scope_missing("bitable:app", "base:record:read")
        base = self.bases.get(token)
        if base is None or base.deleted:
            raise refuse(1254040, "BaseTokenNotFound")
        if not base.app_inside:
            raise refuse(91403, "Forbidden", status=403)
        return base

    def _table(self, token: str, table_id: str) -> tuple[FeishuBase, BaseTable]:
        base = self._base(token)
        if table_id not in base.tables:
            raise refuse(1254041, "TableIdNotFound")
        return base, base.tables[table_id]

    def _writing(self, token: str, table_id: str) -> tuple[FeishuBase, BaseTable]:
        """The table, taken for one write."""
        base, table = self._table(token, table_id)
        now = self._fs.clock.now()
        if now < table.busy_until:
            raise refuse(1254291, "Write conflict")
        table.busy_until = now + self.write_seconds
        return base, table

    async def settle(self, path: str) -> None:
        """Until the write to the table of this path has ended."""
        found = _TABLE_PATH.match(path)
        if found and found[1] in self.bases and found[2] in self.bases[found[1]].tables:
            due = self.bases[found[1]].tables[found[2]].busy_until
            await self._fs.clock.sleep_until(due)

    def _limit(self, name: str, per_second: int) -> None:
        self._fs.rates.api(f"bitable {name}", per_second)

    # --- bases and tables -------------------------------------------------------------------

    def create_base(self, request: HttpRequest) -> dict[str, Any]:
        if self._fs.app.scopes.get("bitable:app") != 1:
            raise scope_missing("bitable:app", "base:app:create")
        name = _body(request).get("name", "")
        if not isinstance(name, str) or len(name) > 255:
            raise refuse(1254001, "WrongRequestBody")
        base = self.new_base(name or "未命名多维表格")
        default = next(iter(base.tables))
        return {
            "app": {
                "app_token": base.token,
                "name": base.name,
                "revision": 1,
                "folder_token": "",
                "url": base.url,
                "default_table_id": default,
                "time_zone": "Asia/Shanghai",
            }
        }

    def get_base(self, _request: HttpRequest, token: str) -> dict[str, Any]:
        base = self._base(token)
        return {
            "app": {
                "app_token": token,
                "name": base.name,
                "revision": 1,
                "is_advanced": False,
                "time_zone": "Asia/Shanghai",
            }
        }

    def get_node(self, request: HttpRequest) -> dict[str, Any]:
        token = request.query.get("token", "")
        if token not in self.wiki:
            raise refuse(131005, "not found: node", status=400)
        if self._fs.app.scopes.get("wiki:wiki:readonly") != 1:
            raise scope_missing("wiki:wiki:readonly", "wiki:node:read")
        kind, of_object = self.wiki[token]
        return {"node": {"node_token": token, "obj_type": kind, "obj_token": of_object}}

    def list_tables(self, request: HttpRequest, token: str) -> dict[str, Any]:
        tables = [
            {"table_id": each.table_id, "name": each.name, "revision": each.revision}
            for each in self._base(token).tables.values()
        ]
        return _page(request, tables, most=100)

    def create_table(self, request: HttpRequest, token: str) -> dict[str, Any]:
        self._limit("tables", 10)
        base = self._base(token)
        asked = _body(request).get("table")
        if not isinstance(asked, dict) or not isinstance(asked.get("name"), str):
            raise refuse(1254001, "WrongRequestBody")
        if any(each.name == asked["name"] for each in base.tables.values()):
            raise refuse(1254013, "TableNameDuplicated")
        if len(base.tables) >= MAX_TABLES:
            raise refuse(1254100, "TableExceedLimit")
        fields = asked.get("fields") or [{"field_name": "文本", "type": TEXT}]
        columns = [self._new_column(each) for each in fields]
        if len({each.name for each in columns}) < len(columns):
            raise refuse(1254014, "FieldNameDuplicated")
        if columns[0].kind not in (TEXT, 2, DATE, 13, 15, FORMULA):
            raise refuse(1254012, "the first field cannot be the primary one")
        table = self.new_table(base, asked["name"], [("x", TEXT)], "表格")
        table.columns, columns[0].primary = columns, True
        table.views[0]["view_name"] = asked.get("default_view_name") or "表格"
        return {
            "table_id": table.table_id,
            "default_view_id": table.views[0]["view_id"],
            "field_id_list": [each.field_id for each in columns],
        }

    def delete_table(self, _request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        base, _ = self._writing(token, table_id)
        if len(base.tables) == 1:
            raise refuse(1254000, "the last table cannot be deleted")
        del base.tables[table_id]
        return {}

    # --- fields and views -------------------------------------------------------------------

    def list_fields(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        self._limit("fields list", READS_PER_SECOND)
        _, table = self._table(token, table_id)
        return _page(request, [each.describe() for each in table.columns], most=100)

    def create_field(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        self._limit("fields", 10)
        base, table = self._writing(token, table_id)
        column = self._new_column(_body(request))
        if any(each.name == column.name for each in table.columns):
            raise refuse(1254014, "FieldNameDuplicated")
        if len(table.columns) >= MAX_FIELDS:
            raise refuse(1254105, "ColumnExceedLimit")
        table.columns.append(column)
        self.announce_field(base, table, "field_added", column.field_id, self._fs.bot_id)
        return {"field": column.describe()}

    def update_field(
        self, request: HttpRequest, token: str, table_id: str, field_id: str
    ) -> dict[str, Any]:
        self._limit("fields", 10)
        base, table = self._writing(token, table_id)
        column = next((each for each in table.columns if each.field_id == field_id), None)
        if column is None:
            raise refuse(1254044, "FieldIdNotFound")
        asked = self._new_column(_body(request))
        if any(each.name == asked.name and each is not column for each in table.columns):
            raise refuse(1254014, "FieldNameDuplicated")
        column.name, column.kind, column.options = asked.name, asked.kind, asked.options
        self.announce_field(base, table, "field_edited", field_id, self._fs.bot_id)
        return {"field": column.describe()}

    def _new_column(self, asked: Any) -> TableColumn:
        name = asked.get("field_name") if isinstance(asked, dict) else None
        kind = asked.get("type") if isinstance(asked, dict) else None
        if not isinstance(name, str) or not name.strip() or len(name) > 100:
            raise refuse(1254001, "WrongRequestBody")
        if isinstance(kind, bool) or kind not in UI_TYPES:
            raise refuse(1254001, "WrongRequestBody: type")
        options: dict[str, str] = {}
        for each in (asked.get("property") or {}).get("options") or []:
            if kind not in (SELECT, MULTI) or each.get("name") in options.values():
                raise refuse(1254080, "the property does not fit")
            options[each.get("id") or self._fs.world.new_id("opt")] = each["name"]
        field_id = self._fs.world.new_id("fld")
        return TableColumn(field_id=field_id, name=name, kind=kind, options=options)

    def list_views(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        _, table = self._table(token, table_id)
        return _page(request, table.views, most=100)

    def create_view(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        self._limit("views", 10)
        _, table = self._writing(token, table_id)
        body = _body(request)
        if body.get("view_type") not in ("grid", "kanban", "gallery", "gantt", "form"):
            raise refuse(1254001, "WrongRequestBody: view_type")
        if any(each["view_name"] == body.get("view_name") for each in table.views):
            raise refuse(1254019, "ViewNameDuplicated")
        if len(table.views) >= MAX_VIEWS:
            raise refuse(1254101, "ViewExceedLimit")
        return {"view": self.add_view(table, body["view_name"], body["view_type"])}

    # --- rows -------------------------------------------------------------------------------

    def search(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        self._limit("search", READS_PER_SECOND)
        _, table = self._table(token, table_id)
        body = _body(request)
        if body.get("filter"):
            raise refuse(1254018, "InvalidFilter: the emulator knows none")
        moment = self._fs.clock.now() - self.read_lag
        rows = [row for row in table.rows.values() if row.version(moment) is not None]
        for each in reversed(body.get("sort") or []):
            column = table.column(each["field_name"])
            rows.sort(key=_sort_key(column, moment), reverse=bool(each.get("desc")))
        names = body.get("field_names")
        columns = table.columns if names is None else [table.column(each) for each in names]
        extra = bool(body.get("automatic_fields"))
        answer = _page(request, rows, most=MAX_PAGE)
        answer["items"] = [
            self._read(table, row, columns, moment, automatic=extra) for row in answer["items"]
        ]
        return answer

    def read_all(self, table: BaseTable) -> list[dict[str, Any]]:
        """All rows as the platform would answer, in one piece."""
        moment = self._fs.clock.now() - self.read_lag
        rows = (row for row in table.rows.values() if row.version(moment) is not None)
        return [self._read(table, row, table.columns, moment, automatic=True) for row in rows]

    def get_rows(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        self._limit("batch_get", READS_PER_SECOND)
        _, table = self._table(token, table_id)
        body = _body(request)
        ids = body.get("record_ids")
        if not isinstance(ids, list) or not 0 < len(ids) <= MAX_FETCHED:
            raise refuse(1254001, "WrongRequestBody: record_ids")
        moment = self._fs.clock.now() - self.read_lag
        found = [
            table.rows[each]
            for each in ids
            if each in table.rows and table.rows[each].version(moment) is not None
        ]
        known = {row.record_id for row in found}
        extra = bool(body.get("automatic_fields"))
        return {
            "records": [
                self._read(table, row, table.columns, moment, automatic=extra) for row in found
            ],
            "forbidden_record_ids": [],
            "absent_record_ids": [each for each in ids if each not in known],
        }

    def create_rows(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        self._limit("batch_create", WRITES_PER_SECOND)
        used = request.query.get("client_token", "")
        if used:
            if _not_uuid(used):
                raise refuse(1254001, "client_token is no UUID")
            before, answer = self._answers.get(used, ("", {}))
            if before and before != request.body.decode():
                raise refuse(1255006, "client_token conflict")
            if before:
                return answer
        base, table = self._writing(token, table_id)
        records = _records(request, MAX_CREATED)
        if len(table.live) + len(records) > self.max_rows:
            raise refuse(1254103, "RecordExceedLimit, limit 20000")
        ready = [self._stored(table, each.get("fields")) for each in records]
        rows = [self.insert(table, cells, self._fs.bot_id) for cells in ready]
        self.announce_rows(
            base, table, [(row, "added", None, row.cells) for row in rows], self._fs.bot_id
        )
        answer = {"records": [self._written(table, row) for row in rows]}
        if used:
            self._answers[used] = (request.body.decode(), answer)
        return answer

    def update_rows(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        self._limit("batch_update", WRITES_PER_SECOND)
        base, table = self._writing(token, table_id)
        records = _records(request, MAX_UPDATED)
        rows = self._rows(table, [each.get("record_id") for each in records])
        ready = [self._stored(table, each.get("fields")) for each in records]
        changes = []
        for row, cells in zip(rows, ready, strict=True):
            before = row.cells or {}
            self.change(table, row, {**before, **cells}, self._fs.bot_id)
            changes.append((row, "edited", before, row.cells))
        self.announce_rows(base, table, changes, self._fs.bot_id)
        return {"records": [self._written(table, row) for row in rows]}

    def delete_rows(self, request: HttpRequest, token: str, table_id: str) -> dict[str, Any]:
        self._limit("batch_delete", WRITES_PER_SECOND)
        base, table = self._writing(token, table_id)
        ids = _body(request).get("records")
        if not isinstance(ids, list) or not ids:
            raise refuse(1254001, "WrongRequestBody: records")
        if len(ids) > MAX_DELETED:
            raise refuse(1254104, "RecordAddOnceExceedLimit")
        rows = self._rows(table, ids)
        changes = [(row, "deleted", row.cells, None) for row in rows]
        for row in rows:
            self.change(table, row, None, self._fs.bot_id)
        self.announce_rows(base, table, changes, self._fs.bot_id)
        return {"records": [{"deleted": True, "record_id": each} for each in ids]}

    def _rows(self, table: BaseTable, ids: list[Any]) -> list[TableRow]:
        """All or nothing: one unknown row refuses the call."""
        rows = [table.rows.get(each) for each in ids]
        if any(row is None or row.cells is None for row in rows):
            raise refuse(1254043, "RecordIdNotFound")
        return [row for row in rows if row is not None]

    def _stored(self, table: BaseTable, fields: Any) -> dict[str, Any]:
        if not isinstance(fields, dict):
            raise refuse(1254001, "WrongRequestBody: fields")
        people = self._fs.world.people
        columns = {name: table.column(name) for name in fields}
        return {
            columns[name].field_id: store(columns[name], value, self._fs.world.new_id, people)
            for name, value in fields.items()
        }

    def _written(self, table: BaseTable, row: TableRow) -> dict[str, Any]:
        """The answer to a write: as it was written, not as it is read."""
        people = self._fs.world.people
        fields = {
            each.name: plain(each, (row.cells or {}).get(each.field_id), people)
            for each in table.columns
            if (row.cells or {}).get(each.field_id) is not None
        }
        return {"record_id": row.record_id, "fields": fields}

    def _read(
        self,
        table: BaseTable,
        row: TableRow,
        columns: list[TableColumn],
        moment: float,
        *,
        automatic: bool,
    ) -> dict[str, Any]:
        version = row.version(moment)
        assert version is not None
        cells = version.cells or {}
        people = self._fs.world.people
        fields: dict[str, Any] = {}
        for each in columns:
            if each.kind in AUTOMATIC:
                fields[each.name] = self._computed(table, row, each, version)
            elif cells.get(each.field_id) is not None:
                stored = cells[each.field_id]
                fields[each.name] = show(each, stored, people, as_text=self.text_numbers)
        read: dict[str, Any] = {"record_id": row.record_id, "fields": fields}
        if automatic:
            read["created_by"] = person(row.created_by, people)
            read["created_time"] = row.created_ms
            read["last_modified_by"] = person(version.by, people)
            read["last_modified_time"] = version.at_ms
        return read

    def _computed(
        self, table: BaseTable, row: TableRow, column: TableColumn, version: RowVersion
    ) -> Any:
        people = self._fs.world.people
        match column.kind:
            case 1001:
                return row.created_ms
            case 1002:
                return version.at_ms
            case 1003:
                return [person(row.created_by, people)]
            case 1004:
                return [person(version.by, people)]
        texts = {
            each.name: str(plain(each, (version.cells or {}).get(each.field_id), people) or "")
            for each in table.columns
            if each.kind not in AUTOMATIC
        }
        text = column.compute(texts) if column.compute else ""
        return {"type": 1, "value": [{"text": text, "type": "text"}]}

    # --- drive: permissions and events ------------------------------------------------------

    def list_members(self, request: HttpRequest, token: str) -> dict[str, Any]:
        base = self._shared_file(request, token)
        return {
            "items": [
                {
                    "member_type": "openchat" if each.startswith("oc_") else "openid",
                    "member_id": each,
                    "perm": perm,
                }
                for each, perm in base.members.items()
            ]
        }

    def add_member(self, request: HttpRequest, token: str) -> dict[str, Any]:
        base = self._shared_file(request, token)
        body = _body(request)
        world = self._fs.world
        known = {"openid": set(world.people), "openchat": set(world.chats)}
        kind = body.get("member_type")
        if kind not in known or body.get("perm") not in ("view", "edit", "full_access"):
            raise refuse(1063001, "Invalid parameter", status=400)
        if body.get("member_id") not in known[kind]:
            raise refuse(1063003, "Invalid operation", status=400)
        base.members[body["member_id"]] = body["perm"]
        self._fs.world.notify_changed()
        return {"member": {key: body[key] for key in ("member_type", "member_id", "perm")}}

    def subscription(self, request: HttpRequest, token: str) -> dict[str, Any]:
        return {"is_subscribe": self._drive_file(request, token, "file_type").subscribed}

    def subscribe(self, request: HttpRequest, token: str) -> dict[str, Any]:
        self._drive_file(request, token, "file_type").subscribed = True
        return {}

    def _shared_file(self, request: HttpRequest, token: str) -> FeishuBase | FeishuDocument:
        if request.query.get("type") == "docx":
            return self._fs.drive.shared(token)
        return self._drive_file(request, token, "type")

    def _drive_file(self, request: HttpRequest, token: str, parameter: str) -> FeishuBase:
        if request.query.get(parameter) != "bitable":
            raise refuse(1061002, "params error.", status=400)
        base = self.bases.get(token)
        if base is None or base.deleted:
            raise refuse(1061007, "file has been delete.", status=404)
        if not base.app_inside:
            raise refuse(1063002, "Permission denied", status=403)
        return base


def bitable_routes(
    bitable: Bitable, data: Callable[..., Any]
) -> list[tuple[str, str, Callable[..., Any]]]:
    apps = "/open-apis/bitable/v1/apps"
    tables = f"{apps}/{{}}/tables"
    one = f"{tables}/{{}}"
    drive = "/open-apis/drive/v1"
    return [
        ("POST", apps, data(bitable.create_base)),
        ("GET", f"{apps}/{{}}", data(bitable.get_base)),
        ("GET", "/open-apis/wiki/v2/spaces/get_node", data(bitable.get_node)),
        ("GET", tables, data(bitable.list_tables)),
        ("POST", tables, data(bitable.create_table)),
        ("DELETE", one, data(bitable.delete_table)),
        ("GET", f"{one}/fields", data(bitable.list_fields)),
        ("POST", f"{one}/fields", data(bitable.create_field)),
        ("PUT", f"{one}/fields/{{}}", data(bitable.update_field)),
        ("GET", f"{one}/views", data(bitable.list_views)),
        ("POST", f"{one}/views", data(bitable.create_view)),
        ("POST", f"{one}/records/search", data(bitable.search)),
        ("POST", f"{one}/records/batch_get", data(bitable.get_rows)),
        ("POST", f"{one}/records/batch_create", data(bitable.create_rows)),
        ("POST", f"{one}/records/batch_update", data(bitable.update_rows)),
        ("POST", f"{one}/records/batch_delete", data(bitable.delete_rows)),
        ("GET", f"{drive}/permissions/{{}}/members", data(bitable.list_members)),
        ("POST", f"{drive}/permissions/{{}}/members", data(bitable.add_member)),
        ("GET", f"{drive}/files/{{}}/get_subscribe", data(bitable.subscription)),
        ("POST", f"{drive}/files/{{}}/subscribe", data(bitable.subscribe)),
    ]


def _body(request: HttpRequest) -> dict[str, Any]:
    body = request.json()
    if not isinstance(body, dict):
        raise refuse(1254001, "WrongRequestBody")
    return body


def _records(request: HttpRequest, most: int) -> list[dict[str, Any]]:
    records = _body(request).get("records")
    if not isinstance(records, list) or not records:
        raise refuse(1254001, "WrongRequestBody: records")
    if not all(isinstance(each, dict) for each in records):
        raise refuse(1254001, "WrongRequestBody: records")
    if len(records) > most:
        raise refuse(1254104, "RecordAddOnceExceedLimit")
    return records


def _page(request: HttpRequest, items: list[Any], *, most: int) -> dict[str, Any]:
    asked = request.query.get("page_size", str(DEFAULT_PAGE))
    if not asked.isdigit() or not 0 < int(asked) <= most:
        raise refuse(99992402, "field validation failed: page_size", status=400)
    token = request.query.get("page_token", "pt0")
    if not token.startswith("pt") or not token[2:].isdigit():
        raise refuse(1254001, "page_token is invalid")
    start = int(token[2:])
    end = start + int(asked)
    more = end < len(items)
    answer = {"items": items[start:end], "total": len(items), "has_more": more}
    return {**answer, "page_token": f"pt{end}"} if more else answer


def _sort_key(column: TableColumn, moment: float) -> Callable[[TableRow], Any]:
    def key(row: TableRow) -> Any:
        version = row.version(moment)
        assert version is not None
        if column.kind == MODIFIED:
            return version.at
        if column.kind == CREATED:
            return row.created_ms
        return json.dumps((version.cells or {}).get(column.field_id), ensure_ascii=False)

    return key


def _not_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return True
    return False
