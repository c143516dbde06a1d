"""Reads documents, wiki pages, spreadsheets and bases with the rights of the app."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from bot.sync.ports import FieldType
from bot.transports.feishu.api import (
    FeishuApi,
    FeishuConnectionError,
    FeishuError,
    FeishuErrorKind,
    path_segment,
)
from bot.transports.feishu.bitable_cells import read_cell
from storage.records.linked_documents import (
    DocumentKind,
    DocumentLink,
    DocumentUnreadable,
    LinkedDocument,
    UnreadableReason,
    parse_document_link,
)

MAX_CHARS = 200_000
_MAX_PARTS = 5
_MAX_ROWS = 500
_MAX_COLUMNS = 50
_MAX_CELL = 1000
_NO_RIGHTS = {1770032, 131006, 1310213, 91403, 1254302, 1254304, 1063002}
_GONE = {1770002, 1770003, 131005, 1310214, 91402, 90215, 1254003, 1254004, 1254040, 1254041}
_OBJECT_KINDS: Mapping[str, DocumentKind] = {
    "docx": DocumentKind.DOCX,
    "sheet": DocumentKind.SHEETS,
    "bitable": DocumentKind.BASE,
}
_TIMES = (FieldType.DATE, FieldType.CREATED_TIME, FieldType.MODIFIED_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuDocumentReader:
    """`may_call` says whether the tenant's monthly quota leaves any calls for reading. `web_domain`
    is where people open documents."""

    api: FeishuApi
    web_domain: str
    may_call: Callable[[], bool]

    def parse_link(self, url: str) -> DocumentLink | None:
        return parse_document_link(url, own_host=urlsplit(self.web_domain).hostname or "")

    async def read(self, link: DocumentLink) -> LinkedDocument:
        """Read a linked document. Raises DocumentUnreadable."""
        try:
            return await self._read(link)
        except FeishuConnectionError as error:
            raise DocumentUnreadable(UnreadableReason.UNAVAILABLE) from error
        except FeishuError as error:
            raise DocumentUnreadable(_reason(error), error.msg[:300]) from error

    async def _read(self, link: DocumentLink) -> LinkedDocument:
        match link.kind:
            case DocumentKind.DOCX:
                return await self._read_document(link)
            case DocumentKind.SHEETS:
                return await self._read_sheets(link)
            case DocumentKind.BASE:
                return await self._read_base(link)
            case DocumentKind.WIKI:
                return await self._read_wiki_page(link)
            case DocumentKind.OTHER:
                raise DocumentUnreadable(UnreadableReason.KIND)

    async def _read_wiki_page(self, link: DocumentLink) -> LinkedDocument:
        data = await self._get("/wiki/v2/spaces/get_node", {"token": link.token})
        node = data.get("node") or {}
        kind = _OBJECT_KINDS.get(str(node.get("obj_type")))
        if kind is None:
            raise DocumentUnreadable(UnreadableReason.KIND, str(node.get("obj_type") or "")[:40])
        token = str(node.get("obj_token") or "")
        return await self._read(DocumentLink(kind=kind, token=token, part=link.part))

    async def _read_document(self, link: DocumentLink) -> LinkedDocument:
        path = f"/docx/v1/documents/{path_segment(link.token)}"
        about = (await self._get(path)).get("document") or {}
        text = str((await self._get(f"{path}/raw_content")).get("content") or "")
        return _limited(str(about.get("title") or ""), text)

    async def _read_sheets(self, link: DocumentLink) -> LinkedDocument:
        token = path_segment(link.token)
        found = (await self._get(f"/sheets/v3/spreadsheets/{token}/sheets/query")).get("sheets")
        sheets = [each for each in found or () if each.get("resource_type") == "sheet"]
        chosen = [each for each in sheets if each.get("sheet_id") == link.part] or sheets
        texts, is_cut = [], len(chosen) > _MAX_PARTS
        for sheet in chosen[:_MAX_PARTS]:
            grid = sheet.get("grid_properties") or {}
            rows, columns = int(grid.get("row_count") or 0), int(grid.get("column_count") or 0)
            if not rows or not columns:
                continue
            is_cut = is_cut or rows > _MAX_ROWS or columns > _MAX_COLUMNS
            last = f"{_column_letters(min(columns, _MAX_COLUMNS))}{min(rows, _MAX_ROWS)}"
            reach = path_segment(f"{sheet.get('sheet_id')}!A1:{last}")
            options = {
                "valueRenderOption": "ToString",
                "dateTimeRenderOption": "FormattedString",
            }
            data = await self._get(f"/sheets/v2/spreadsheets/{token}/values/{reach}", options)
            values = (data.get("valueRange") or {}).get("values") or []
            texts.append(_table(str(sheet.get("title") or ""), _without_blank_ends(values)))
        return _limited("", "\n\n".join(texts), is_cut=is_cut)

    async def _read_base(self, link: DocumentLink) -> LinkedDocument:
        base = f"/bitable/v1/apps/{path_segment(link.token)}"
        found = await self._get(f"{base}/tables", {"page_size": "100"})
        tables = list(found.get("items") or ())
        chosen = [each for each in tables if each.get("table_id") == link.part] or tables
        texts, is_cut = [], len(chosen) > _MAX_PARTS
        for table in chosen[:_MAX_PARTS]:
            path = f"{base}/tables/{path_segment(str(table.get('table_id')))}"
            fields = (await self._get(f"{path}/fields", {"page_size": "100"})).get("items") or ()
            self._check_quota()
            params = {"page_size": str(_MAX_ROWS)}
            answer = await self.api.call(
                "POST", f"{path}/records/search", body={}, params=params, repeatable=True
            )
            data = answer.get("data") or {}
            is_cut = is_cut or bool(data.get("has_more")) or len(fields) > _MAX_COLUMNS
            kinds = {
                str(each.get("field_name")): FieldType(int(each.get("type") or 0))
                for each in fields[:_MAX_COLUMNS]
            }
            rows = [
                [_cell(kind, (row.get("fields") or {}).get(name)) for name, kind in kinds.items()]
                for row in data.get("items") or ()
            ]
            texts.append(_table(str(table.get("name") or ""), [list(kinds), *rows]))
        return _limited("", "\n\n".join(texts), is_cut=is_cut)

    async def _get(self, path: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        self._check_quota()
        data = (await self.api.call("GET", path, params=params, repeatable=True)).get("data")
        return data if isinstance(data, Mapping) else {}

    def _check_quota(self) -> None:
        if not self.may_call():
            raise DocumentUnreadable(UnreadableReason.QUOTA)


def _reason(error: FeishuError) -> UnreadableReason:
    if error.code in _NO_RIGHTS:
        return UnreadableReason.NO_RIGHTS
    if error.code in _GONE:
        return UnreadableReason.GONE
    if error.kind is FeishuErrorKind.SCOPE:
        return UnreadableReason.NO_SCOPE
    is_quota = error.kind is FeishuErrorKind.QUOTA
    return UnreadableReason.QUOTA if is_quota else UnreadableReason.UNAVAILABLE


def _limited(title: str, text: str, *, is_cut: bool = False) -> LinkedDocument:
    return LinkedDocument(
        title=title, text=text[:MAX_CHARS].strip(), is_cut=is_cut or len(text) > MAX_CHARS
    )


def _column_letters(number: int) -> str:
    letters = ""
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def _cell(kind: FieldType, raw: Any) -> str:
    value = read_cell(kind, raw)
    match value:
        case None:
            return ""
        case int() if kind in _TIMES and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "minutes")
        case float() if value.is_integer():
            return str(int(value))
        case tuple():
            return ", ".join(value)
        case _:
            return str(value)


def _without_blank_ends(rows: Sequence[Sequence[Any]]) -> list[list[str]]:
    """The rows without the blank rows and columns at the end, of which sheets have many."""
    texts = [[_cell(FieldType.OTHER, each) for each in row] for row in rows]
    while texts and not any(texts[-1]):
        texts.pop()
    width = max((at + 1 for row in texts for at, each in enumerate(row) if each), default=0)
    return [row[:width] for row in texts]


def _table(title: str, rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return f"## {title}\n\n(no rows)"
    lines = [f"| {' | '.join(map(_one_line, row))} |" for row in rows]
    return "\n".join([f"## {title}", "", lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:_MAX_CELL]
