"""Tables of a Feishu Bitable over the open platform's HTTP API."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID, uuid5

from bot.sync import ports
from bot.sync.ports import (
    BaseId,
    BaseSummary,
    CellValue,
    FieldId,
    FieldOption,
    FieldType,
    NewTableField,
    RecordId,
    RecordPage,
    TableField,
    TableId,
    TableRecord,
    TableRef,
    TableSummary,
)
from bot.transports.feishu.api import (
    FeishuApi,
    FeishuConnectionError,
    FeishuError,
    FeishuErrorKind,
    call_with_retries,
    path_segment,
)
from bot.transports.feishu.bitable_cells import read_cell, read_person, write_cell
from bot.transports.feishu.documents import share_drive_file

log = logging.getLogger(__name__)

_Item = TypeVar("_Item")
_APPS = "/bitable/v1/apps"
_OPEN_IDS: Mapping[str, str] = {"user_id_type": "open_id"}
_WRITE: Mapping[str, str] = {**_OPEN_IDS, "ignore_consistency_check": "true"}
_RECENT_PAGE = 100
_LIST_PAGE = 100
_WEB_ADDRESS = re.compile(r"https?://[\w.:/?&=%#~-]+", re.ASCII)
_DELAYS = (0.5, 1.0, 2.0, 4.0)
_BUSY_WAIT = 1.0


class BitableErrorKind(StrEnum):
    """Classes of the platform's error codes by how this module responds to them."""

    BUSY = "busy"
    UNKNOWN_FIELD = "unknown field"
    MISSING_RECORD = "missing record"
    UNREACHABLE_BASE = "unreachable base"
    FULL = "full"
    CLIENT_TOKEN = "client token"  # noqa: S105 - a kind of error
    REFUSED = "refused"
    BROKEN = "broken"
    QUOTA = "quota"
    OTHER = "other"


BITABLE_ERRORS: dict[int, BitableErrorKind] = {
    **dict.fromkeys((1254036, 1254290, 1254291, 1254607), BitableErrorKind.BUSY),
    **dict.fromkeys((1254009, 1254044, 1254045), BitableErrorKind.UNKNOWN_FIELD),
    **dict.fromkeys((1254006, 1254043), BitableErrorKind.MISSING_RECORD),
    **dict.fromkeys((91402, 91403, 1254002, 1254003, 1254004), BitableErrorKind.UNREACHABLE_BASE),
    **dict.fromkeys((1254040, 1254041, 1254302, 1254304), BitableErrorKind.UNREACHABLE_BASE),
    **dict.fromkeys(
        (131005, 131006, 1061004, 1061007, 1063002, 1069604), BitableErrorKind.UNREACHABLE_BASE
    ),
    **dict.fromkeys((1254100, 1254101, 1254103, 1254105), BitableErrorKind.FULL),
    **dict.fromkeys((1254608, 1255006), BitableErrorKind.CLIENT_TOKEN),
    **dict.fromkeys((1254001, 1254007, 1254010, 1254014, 1254015), BitableErrorKind.REFUSED),
    **dict.fromkeys((*range(1254060, 1254076), 1254104, 1254130), BitableErrorKind.REFUSED),
    **dict.fromkeys((*range(1255001, 1255006), 1255040), BitableErrorKind.BROKEN),
}

_BY_FEISHU_KIND = {
    FeishuErrorKind.RATE: BitableErrorKind.BUSY,
    FeishuErrorKind.CHANNEL_RATE: BitableErrorKind.BUSY,
    FeishuErrorKind.QUOTA: BitableErrorKind.QUOTA,
    FeishuErrorKind.SCOPE: BitableErrorKind.UNREACHABLE_BASE,
    FeishuErrorKind.CREDENTIALS: BitableErrorKind.UNREACHABLE_BASE,
    FeishuErrorKind.TOKEN: BitableErrorKind.BROKEN,
    FeishuErrorKind.SERVER: BitableErrorKind.BROKEN,
}


def bitable_error_kind(error: FeishuError) -> BitableErrorKind:
    known = BITABLE_ERRORS.get(error.code)
    return known or _BY_FEISHU_KIND.get(error.kind, BitableErrorKind.OTHER)


def _is_busy(error: FeishuError, _wait: float) -> bool:
    return bitable_error_kind(error) is BitableErrorKind.BUSY or error.code == _SAME_TOKEN_RUNS


class _MissingRecord(Exception):
    """One of the records of a call does not exist; the platform does not say which."""


class FeishuTableService:
    """Implements `bot.sync.ports.BaseSetupService`.

    `may_call` is asked before each call and says whether the tenant's monthly quota has room for
    tables: answers, approvals and cards come first. `calls` counts the calls made.
    """

    def __init__(
        self,
        api: FeishuApi,
        *,
        web_domain: str,
        may_call: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._web_domain = web_domain
        self._may_call = may_call
        self._sleep = sleep
        self._jitter = jitter
        self._locks: defaultdict[TableRef, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._fields: dict[TableRef, tuple[TableField, ...]] = {}
        self.calls = 0

    # --- bases and tables -------------------------------------------------------------------

    async def create_base(self, name: str) -> BaseSummary:
        data = await self._call("POST", _APPS, body={"name": name}, repeatable=False)
        return self._base_summary(_required(data, "app"))

    async def find_wiki_base(self, node: str) -> BaseId | None:
        path, asked = "/wiki/v2/spaces/get_node", {"token": node}
        found = _required(await self._call("GET", path, params=asked), "node")
        is_base = found.get("obj_type") == "bitable" and found.get("obj_token")
        return BaseId(str(found["obj_token"])) if is_base else None

    async def get_base(self, base: BaseId) -> BaseSummary:
        return self._base_summary((await self._call("GET", _base_path(base)))["app"])

    async def list_tables(self, base: BaseId) -> tuple[TableSummary, ...]:
        found = await self._list(f"{_base_path(base)}/tables")
        return tuple(
            TableSummary(id=TableId(str(each["table_id"])), name=str(each.get("name") or ""))
            for each in found
        )

    async def create_table(
        self, base: BaseId, name: str, fields: Sequence[NewTableField], *, view: str
    ) -> TableId:
        table = {
            "name": name,
            "default_view_name": view,
            "fields": [_field_body(each.name, each.type, each.options) for each in fields],
        }
        path = f"{_base_path(base)}/tables"
        data = await self._call("POST", path, body={"table": table}, repeatable=False)
        return TableId(str(_required(data, "table_id")))

    async def delete_table(self, ref: TableRef) -> None:
        await self._call("DELETE", _table_path(ref))

    # --- fields and views -------------------------------------------------------------------

    async def list_fields(self, ref: TableRef) -> tuple[TableField, ...]:
        found = await self._list(f"{_table_path(ref)}/fields", ref)
        fields = self._fields[ref] = tuple(map(parse_field, found))
        return fields

    async def create_field(self, ref: TableRef, field: NewTableField) -> TableField:
        body = _field_body(field.name, field.type, field.options)
        path = f"{_table_path(ref)}/fields"
        data = await self._call("POST", path, ref, body=body, repeatable=False)
        self.forget_fields(ref)
        return parse_field(_required(data, "field"))

    async def update_field(self, ref: TableRef, field: TableField) -> TableField:
        body = _field_body(field.name, field.type, field.options)
        path = f"{_table_path(ref)}/fields/{path_segment(field.id)}"
        data = await self._call("PUT", path, ref, body=body)
        self.forget_fields(ref)
        return parse_field(_required(data, "field"))

    def forget_fields(self, ref: TableRef) -> None:
        """Read the names of the columns again before the next call, because they may
        have changed.
        """
        self._fields.pop(ref, None)

    async def list_views(self, ref: TableRef) -> tuple[str, ...]:
        found = await self._list(f"{_table_path(ref)}/views", ref)
        return tuple(str(each.get("view_name") or "") for each in found)

    async def create_view(self, ref: TableRef, name: str, *, kind: str) -> None:
        body = {"view_name": name, "view_type": kind}
        await self._call("POST", f"{_table_path(ref)}/views", ref, body=body, repeatable=False)

    # --- reading rows -----------------------------------------------------------------------

    async def search(
        self, ref: TableRef, *, page: str = "", modified_since: int | None = None
    ) -> RecordPage:
        fields = await self._known_fields(ref)
        changed = next((each for each in fields if each.type is FieldType.MODIFIED_TIME), None)
        body: dict[str, Any] = {"automatic_fields": True}
        size = ports.MAX_PAGE
        if modified_since is not None and changed is not None:
            # A filter by time knows whole days only.
            body["sort"] = [{"field_name": changed.name, "desc": True}]
            size = _RECENT_PAGE
        params = {**_OPEN_IDS, "page_size": str(size), **({"page_token": page} if page else {})}
        path = f"{_table_path(ref)}/records/search"
        try:
            data = await self._call("POST", path, ref, body=body, params=params)
        except ports.UnknownTableField:
            # The column that it sorts by has another name since.
            if modified_since is None or changed is None:
                raise
            self.forget_fields(ref)
            renamed = await self._known_fields(ref)
            if all(each.name != changed.name for each in renamed):
                return await self.search(ref, page=page, modified_since=modified_since)
            raise
        records = await self._parse_records(ref, data.get("items"))
        more = str(data.get("page_token") or "") if data.get("has_more") else ""
        if modified_since is not None:
            recent = tuple(each for each in records if each.modified_at >= modified_since)
            if changed is not None and len(recent) < len(records):
                more = ""
            records = recent
        return RecordPage(records=records, next_page=more, total=int(data.get("total") or 0))

    async def get_records(
        self, ref: TableRef, ids: Sequence[RecordId]
    ) -> Mapping[RecordId, TableRecord]:
        found: dict[RecordId, TableRecord] = {}
        for some in _chunks(tuple(dict.fromkeys(ids)), ports.MAX_FETCHED):
            body = {"record_ids": list(some), "automatic_fields": True, **_OPEN_IDS}
            path = f"{_table_path(ref)}/records/batch_get"
            data = await self._call("POST", path, ref, body=body)
            records = await self._parse_records(ref, data.get("records"))
            found.update((each.id, each) for each in records)
        return found

    # --- writing rows -----------------------------------------------------------------------

    async def create_records(
        self, ref: TableRef, rows: Sequence[Mapping[FieldId, CellValue]], *, client_token: str
    ) -> tuple[RecordId, ...]:
        made: list[RecordId] = []
        for number, some in enumerate(_chunks(rows, ports.MAX_CREATED)):
            token = str(uuid5(UUID(client_token), str(number))) if number else client_token

            async def write(some: Sequence[Any] = some, token: str = token) -> dict[str, Any]:
                body = {"records": [{"fields": await self._named(ref, row)} for row in some]}
                params = {**_WRITE, "client_token": token}
                path = f"{_table_path(ref)}/records/batch_create"
                return await self._call("POST", path, ref, body=body, params=params)

            data = await self._with_current_fields(ref, write)
            made.extend(RecordId(str(each["record_id"])) for each in _required(data, "records"))
        return tuple(made)

    async def update_records(
        self, ref: TableRef, changes: Mapping[RecordId, Mapping[FieldId, CellValue]]
    ) -> frozenset[RecordId]:
        async def write(ids: Sequence[RecordId]) -> None:
            async def once() -> dict[str, Any]:
                records = [
                    {"record_id": each, "fields": await self._named(ref, changes[each])}
                    for each in ids
                ]
                path = f"{_table_path(ref)}/records/batch_update"
                return await self._call("POST", path, ref, body={"records": records}, params=_WRITE)

            await self._with_current_fields(ref, once)

        missing: set[RecordId] = set()
        for some in _chunks(tuple(changes), ports.MAX_UPDATED):
            missing |= await self._without_missing(ref, some, write)
        return frozenset(missing)

    async def delete_records(self, ref: TableRef, ids: Sequence[RecordId]) -> None:
        async def write(some: Sequence[RecordId]) -> None:
            path = f"{_table_path(ref)}/records/batch_delete"
            await self._call("POST", path, ref, body={"records": list(some)})

        for some in _chunks(tuple(dict.fromkeys(ids)), ports.MAX_DELETED):
            await self._without_missing(ref, some, write)

    # --- sharing and events -----------------------------------------------------------------

    async def share_with(self, base: BaseId, member: str) -> None:
        perm = "edit" if member.startswith("oc_") else "full_access"
        await share_drive_file(self._call, base, kind={"type": "bitable"}, member=member, perm=perm)

    async def subscribe_changes(self, base: BaseId) -> None:
        path = f"/drive/v1/files/{path_segment(base)}"
        kind = {"file_type": "bitable"}
        known = await self._call("GET", f"{path}/get_subscribe", params=kind)
        if not known.get("is_subscribe"):
            await self._call("POST", f"{path}/subscribe", params=kind)

    # --- calls ------------------------------------------------------------------------------

    async def _call(
        self,
        method: str,
        path: str,
        ref: TableRef | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> dict[str, Any]:
        """The `data` of the answer. Calls to one table run one after the other because the platform
        refuses parallel ones; calls that it refuses as busy are repeated, as nothing was done.
        """

        async def call() -> dict[str, Any]:
            if not self._may_call():
                raise ports.TableQuotaExhausted("what is left of the quota is kept for messages")
            async with self._locks[ref] if ref else _NO_LOCK:
                self.calls += 1
                return await self._api.call(
                    method, path, body=body, params=params, repeatable=repeatable
                )

        try:
            return await call_with_retries(
                call,
                delays=_DELAYS,
                may_retry=_is_busy,
                sleep=self._sleep,
                jitter=self._jitter,
            )
        except FeishuConnectionError as error:
            raise ports.TablePlatformUnreachable(str(error)) from error
        except FeishuError as error:
            raise _translated(error, bitable_error_kind(error)) from error

    async def _list(self, path: str, ref: TableRef | None = None) -> list[dict[str, Any]]:
        """All items of a paged list."""
        found: list[dict[str, Any]] = []
        params = {"page_size": str(_LIST_PAGE)}
        while True:
            data = await self._call("GET", path, ref, params=params)
            found.extend(data.get("items") or [])
            if not data.get("has_more") or not data.get("page_token"):
                return found
            params["page_token"] = str(_required(data, "page_token"))

    async def _with_current_fields(
        self, ref: TableRef, write: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Repeat a write with fresh names if somebody has renamed a column."""
        known = ref in self._fields
        try:
            return await write()
        except ports.UnknownTableField:
            if not known:
                raise
        self.forget_fields(ref)
        return await write()

    async def _without_missing(
        self,
        ref: TableRef,
        ids: Sequence[RecordId],
        write: Callable[[Sequence[RecordId]], Awaitable[None]],
    ) -> set[RecordId]:
        """Write all rows that exist; returns the others. A call with one missing row does nothing
        at all, and a read alone does not prove that a new row is missing.
        """
        try:
            await write(ids)
        except _MissingRecord:
            if len(ids) == 1:
                return set(ids)
        else:
            return set()
        existing = await self.get_records(ref, ids)
        seen = tuple(each for each in ids if each in existing)
        unseen = tuple(each for each in ids if each not in existing)
        if not seen or not unseen:
            middle = len(ids) // 2
            seen, unseen = tuple(ids[:middle]), tuple(ids[middle:])
        first = await self._without_missing(ref, seen, write)
        return first | await self._without_missing(ref, unseen, write)

    # --- names and IDs ----------------------------------------------------------------------

    async def _known_fields(self, ref: TableRef) -> tuple[TableField, ...]:
        return self._fields.get(ref) or await self.list_fields(ref)

    async def _named(self, ref: TableRef, cells: Mapping[FieldId, CellValue]) -> dict[str, Any]:
        by_id = {each.id: each for each in await self._known_fields(ref)}
        unknown = [each for each in cells if each not in by_id]
        if unknown:
            raise ports.UnknownTableField(f"no field {', '.join(unknown)}")
        return {
            by_id[each].name: write_cell(by_id[each].type, value) for each, value in cells.items()
        }

    async def _parse_records(self, ref: TableRef, raw: Any) -> tuple[TableRecord, ...]:
        rows = [each for each in raw or [] if isinstance(each, dict) and each.get("record_id")]
        shown = {name for each in rows for name in each.get("fields") or {}}
        fields = await self._known_fields(ref)
        if shown - {each.name for each in fields}:
            fields = await self.list_fields(ref)
        by_name = {each.name: each for each in fields}
        return tuple(parse_record(each, by_name) for each in rows)

    def _base_summary(self, app: Mapping[str, Any]) -> BaseSummary:
        token = str(app["app_token"])
        url = str(app.get("url") or "")
        if not _WEB_ADDRESS.fullmatch(url):
            url = f"{self._web_domain}/base/{path_segment(token)}"
        return BaseSummary(id=BaseId(token), name=str(app.get("name") or ""), url=url)


_SAME_TOKEN_RUNS = 1254608
"""A call with the same client token has not ended."""


class _NoLock:
    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_: object) -> None:
        pass


_NO_LOCK = _NoLock()


def _translated(error: FeishuError, kind: BitableErrorKind) -> Exception:
    told = str(error)
    match kind:
        case BitableErrorKind.BUSY:
            return ports.TableBusy(told, retry_after=error.retry_after or _BUSY_WAIT)
        case BitableErrorKind.MISSING_RECORD:
            return _MissingRecord(told)
        case _:
            return _ERRORS[kind](told)


_ERRORS: dict[BitableErrorKind, type[ports.TableServiceError]] = {
    BitableErrorKind.UNKNOWN_FIELD: ports.UnknownTableField,
    BitableErrorKind.UNREACHABLE_BASE: ports.BaseUnreachable,
    BitableErrorKind.FULL: ports.TableFull,
    BitableErrorKind.CLIENT_TOKEN: ports.ClientTokenConflict,
    BitableErrorKind.REFUSED: ports.CellRefused,
    BitableErrorKind.BROKEN: ports.TablePlatformUnreachable,
    BitableErrorKind.QUOTA: ports.TableQuotaExhausted,
    BitableErrorKind.OTHER: ports.TableServiceError,
}


def _required(data: Mapping[str, Any], key: str) -> Any:
    if key not in data:
        raise ports.TablePlatformUnreachable(f"an answer without {key}")
    return data[key]


def _base_path(base: BaseId) -> str:
    return f"{_APPS}/{path_segment(base)}"


def _table_path(ref: TableRef) -> str:
    return f"{_base_path(ref.base)}/tables/{path_segment(ref.table)}"


def _chunks(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _field_body(name: str, kind: FieldType, options: Sequence[str | FieldOption]) -> dict[str, Any]:
    body: dict[str, Any] = {"field_name": name, "type": int(kind)}
    if kind.has_options:
        body["property"] = {"options": [_option_body(each) for each in options]}
    elif kind in (FieldType.DATE, FieldType.CREATED_TIME, FieldType.MODIFIED_TIME):
        body["property"] = {"date_formatter": "yyyy/MM/dd HH:mm"}
    return body


def _option_body(option: str | FieldOption) -> dict[str, str]:
    if isinstance(option, str):
        return {"name": option}
    return {"name": option.name, **({"id": option.id} if option.id else {})}


def parse_field(raw: Mapping[str, Any]) -> TableField:
    options = (raw.get("property") or {}).get("options") or []
    return TableField(
        id=FieldId(str(raw["field_id"])),
        name=str(raw.get("field_name") or ""),
        type=FieldType(int(raw.get("type") or 0)),
        options=tuple(
            FieldOption(name=str(each.get("name") or ""), id=str(each.get("id") or ""))
            for each in options
        ),
        is_primary=bool(raw.get("is_primary")),
    )


def parse_record(raw: Mapping[str, Any], fields: Mapping[str, TableField]) -> TableRecord:
    cells: dict[FieldId, CellValue] = {}
    for name, value in (raw.get("fields") or {}).items():
        if (field := fields.get(name)) is not None:
            cell = read_cell(field.type, value)
            if cell is not None:
                cells[field.id] = cell
    return TableRecord(
        id=RecordId(str(raw["record_id"])),
        cells=cells,
        created_by=read_person(raw.get("created_by")),
        modified_by=read_person(raw.get("last_modified_by")),
        created_at=int(raw.get("created_time") or 0),
        modified_at=int(raw.get("last_modified_time") or 0),
    )
