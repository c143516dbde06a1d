"""Documents and spreadsheets of the tenant's drive, as strict as the platform: blocks, permissions,
listing of the app's folder, plain content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.emulators.feishu.http_server import HttpRequest
from tests.emulators.feishu.refusals import FeishuApiError, rate_limited, scope_missing

if TYPE_CHECKING:
    from tests.emulators.feishu.emulator import FeishuEmulator

CREATE_SCOPE = "docx:document"
CONVERT_SCOPE = "docx:document.block:convert"
DRIVE_SCOPE = "drive:drive"
MAX_DESCENDANTS = 1000
MAX_TITLE = 800
EDITS_PER_SECOND = 3
_PAGE, _TEXT, _BULLET, _ORDERED, _CODE, _QUOTE, _DIVIDER, _TABLE, _CELL = (
    *(1, 2, 12, 13),
    *(14, 15, 22, 31, 32),
)
_CONTENT = {
    _TEXT: "text",
    **{level + 2: f"heading{level}" for level in range(1, 10)},
    _BULLET: "bullet",
    _ORDERED: "ordered",
    _CODE: "code",
    _QUOTE: "quote",
    _DIVIDER: "divider",
    _TABLE: "table",
    _CELL: "table_cell",
}
_READ_ONLY = {"parent_id", "comment_ids"}


def refuse(code: int, msg: str, status: int = 400) -> FeishuApiError:
    return FeishuApiError(code, msg, status=status)


@dataclass(slots=True, kw_only=True, eq=False)
class FeishuDocument:
    """`members` are permissions by person or chat; the app reads and writes it if `app_inside`.
    `made_by_app` documents lie in the folder of the app."""

    token: str
    title: str
    url: str
    created: float
    made_by_app: bool
    app_inside: bool = True
    deleted: bool = False
    members: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    top: list[str] = field(default_factory=list)
    revision: int = 1
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The lines that a reader sees."""
        return "\n".join(self._lines(self.top))

    def _lines(self, ids: list[str]) -> Iterator[str]:
        for each in ids:
            block = self.blocks[each]
            content = block.get(_CONTENT[block["block_type"]]) or {}
            runs = content.get("elements", ())
            if runs:
                yield "".join(run["text_run"]["content"] for run in runs)
            yield from self._lines(block.get("children", []))


@dataclass(slots=True, kw_only=True, eq=False)
class FeishuSpreadsheet:
    """Cells of its sheets, by the sheet's ID."""

    token: str
    url: str
    sheets: dict[str, tuple[str, list[list[Any]]]]
    app_inside: bool = True


class FeishuDrive:
    def __init__(self, fs: FeishuEmulator) -> None:
        self._fs = fs
        self._root = "fldemuroot"
        self.documents: dict[str, FeishuDocument] = {}
        self.spreadsheets: dict[str, FeishuSpreadsheet] = {}

    # --- for tests --------------------------------------------------------------------------

    def new_document(
        self, title: str, *lines: str, app_inside: bool = True, made_by_app: bool = False
    ) -> FeishuDocument:
        """As people make them."""
        token = self._fs.world.new_id("doxcn", 22)
        made = FeishuDocument(
            token=token,
            title=title,
            url=f"{self._fs.domain}/docx/{token}",
            created=self._fs.clock.now(),
            made_by_app=made_by_app,
            app_inside=app_inside,
        )
        for line in lines:
            self._insert(made, [_text_block(line)], [], len(made.top))
        self.documents[token] = made
        self._fs.world.notify_changed()
        return made

    def new_spreadsheet(
        self, *sheets: tuple[str, list[list[Any]]], app_inside: bool = True
    ) -> FeishuSpreadsheet:
        token = self._fs.world.new_id("shtcn", 22)
        made = FeishuSpreadsheet(
            token=token,
            url=f"{self._fs.domain}/sheets/{token}",
            sheets={f"s{number}": sheet for number, sheet in enumerate(sheets)},
            app_inside=app_inside,
        )
        self.spreadsheets[token] = made
        return made

    # --- documents --------------------------------------------------------------------------

    def create(self, request: HttpRequest) -> dict[str, Any]:
        self._need(CREATE_SCOPE)
        self._fs.rates.api("docx create", 3)
        body = _body(request, {"folder_token", "title"})
        title = body.get("title", "")
        if not isinstance(title, str) or len(title) > MAX_TITLE:
            raise refuse(1770001, "invalid param")
        if body.get("folder_token", "") not in ("", self._root):
            raise refuse(1770039, "folder not found", 404)
        made = self.new_document(title, made_by_app=True)
        return {"document": {"document_id": made.token, "revision_id": 1, "title": title}}

    def convert(self, request: HttpRequest) -> dict[str, Any]:
        """Blocks come in no particular order, with properties that may not be written."""
        self._need(CONVERT_SCOPE)
        body = _body(request, {"content_type", "content"})
        content = body.get("content")
        if body.get("content_type") not in ("markdown", "html"):
            raise refuse(1770001, "invalid param")
        if not isinstance(content, str) or not 1 <= len(content) <= 10_485_760:
            raise refuse(1770001, "invalid param")
        blocks: list[dict[str, Any]] = []
        first = [self._converted(tree, blocks, "") for tree in _parse(content)]
        return {
            "first_level_block_ids": first,
            "blocks": blocks[::-1],
            "block_id_to_image_urls": [],
        }

    def _converted(self, tree: dict[str, Any], into: list[dict[str, Any]], parent: str) -> str:
        name = self._fs.world.new_id("tmp", 12)
        block = {key: value for key, value in tree.items() if key != "inner"}
        block |= {"block_id": name, "parent_id": parent}
        into.append(block)
        children = [self._converted(each, into, name) for each in tree.get("inner", ())]
        if block["block_type"] == _TABLE:
            block["table"]["cells"] = children
        if children:
            single = block["block_type"] == _CELL and len(children) == 1
            block["children"] = children[0] if single else children
        return name

    def get_block(self, _request: HttpRequest, token: str, block_id: str) -> dict[str, Any]:
        self._need(CREATE_SCOPE)
        document = self._document(token)
        if block_id == token:
            page = {"block_id": token, "block_type": _PAGE, "parent_id": ""}
            return {"block": {**page, "children": list(document.top)}}
        if block_id not in document.blocks:
            raise refuse(1770002, "not found", 404)
        return {"block": document.blocks[block_id]}

    def add_descendants(self, request: HttpRequest, token: str, block_id: str) -> dict[str, Any]:
        self._need(CREATE_SCOPE)
        document = self._document(token)
        if block_id != token:
            raise refuse(1770002, "not found", 404)
        client_token = request.query.get("client_token", "")
        if client_token in document.answers:
            return document.answers[client_token]
        self._limit_edits(document)
        body = _body(request, {"children_id", "index", "descendants"})
        top, blocks = body.get("children_id"), body.get("descendants")
        index = body.get("index", -1)
        if not isinstance(top, list) or not isinstance(blocks, list) or not blocks:
            raise refuse(1770001, "invalid param")
        if len(blocks) > MAX_DESCENDANTS:
            raise refuse(1770034, "the number of operation exceeds limit")
        if not isinstance(index, int) or not -1 <= index <= len(document.top):
            raise refuse(1770001, "invalid param")
        known = {each.get("block_id"): each for each in blocks}
        named = [*top, *(child for each in blocks for child in _children(each))]
        if len(known) != len(blocks) or sorted(named) != sorted(map(str, known)):
            raise refuse(1770001, "invalid param")
        for each in blocks:
            _check_block(each)
        at = len(document.top) if index == -1 else index
        made = self._insert(document, [known[each] for each in top], blocks, at)
        answer = {
            "children": made,
            "document_revision_id": document.revision,
            "client_token": client_token,
            "block_id_relations": [],
        }
        if client_token:
            document.answers[client_token] = answer
        self._fs.world.notify_changed()
        return answer

    def _insert(
        self,
        document: FeishuDocument,
        top: list[dict[str, Any]],
        blocks: list[dict[str, Any]],
        at: int,
    ) -> list[dict[str, Any]]:
        all_of_them = {each["block_id"]: each for each in (*top, *blocks)}
        names = {each: self._fs.world.new_id("blk", 24) for each in all_of_them}
        for old, block in all_of_them.items():
            children = [names[each] for each in _children(block)]
            stored = {**block, "block_id": names[old], "children": children}
            document.blocks[names[old]] = stored
        placed = [names[each["block_id"]] for each in top]
        document.top[at:at] = placed
        document.revision += 1
        return [document.blocks[each] for each in placed]

    def raw_content(self, _request: HttpRequest, token: str) -> dict[str, Any]:
        self._need(CREATE_SCOPE, "docx:document:readonly")
        self._fs.rates.api("docx raw_content", 5)
        return {"content": self._document(token).text + "\n"}

    def get_document(self, _request: HttpRequest, token: str) -> dict[str, Any]:
        self._need(CREATE_SCOPE, "docx:document:readonly")
        document = self._document(token)
        described = {"document_id": token, "revision_id": document.revision}
        return {"document": {**described, "title": document.title}}

    # --- the app's folder and permissions ---------------------------------------------------

    def root_folder(self, _request: HttpRequest) -> dict[str, Any]:
        self._need(DRIVE_SCOPE)
        return {"token": self._root, "id": "7110000000000000001", "user_id": "7110000000000000002"}

    def list_files(self, request: HttpRequest) -> dict[str, Any]:
        self._need(DRIVE_SCOPE)
        query = request.query
        if query.get("folder_token", "") not in ("", self._root):
            raise refuse(1061003, "not found.", 404)
        size = query.get("page_size", "100")
        if not size.isdigit() or not 1 <= int(size) <= 200:
            raise refuse(99992402, "field validation failed")
        if query.get("order_by", "EditedTime") not in ("EditedTime", "CreatedTime"):
            raise refuse(1061002, "params error.")
        own = [each for each in self.documents.values() if each.made_by_app and not each.deleted]
        newest = sorted(own, key=lambda each: -each.created)[: int(size)]
        listed = [
            {
                "token": each.token,
                "name": each.title,
                "type": "docx",
                "parent_token": self._root,
                "url": each.url,
                "created_time": str(int(each.created)),
                "modified_time": str(int(each.created)),
                "owner_id": self._fs.bot_id,
            }
            for each in newest
        ]
        return {"files": listed, "has_more": len(own) > int(size), "next_page_token": ""}

    def shared(self, token: str) -> FeishuDocument:
        """For the permissions of the drive."""
        document = self.documents.get(token)
        if document is None or document.deleted:
            raise refuse(1063005, "Resource is deleted", 404)
        if not (document.app_inside and document.made_by_app):
            raise refuse(1063002, "Permission denied", 403)
        self._need(DRIVE_SCOPE)
        return document

    # --- spreadsheets -----------------------------------------------------------------------

    def list_sheets(self, _request: HttpRequest, token: str) -> dict[str, Any]:
        book = self._spreadsheet(token, missing=1310214, forbidden=1310213)
        return {
            "sheets": [
                {
                    "sheet_id": each,
                    "title": title,
                    "index": index,
                    "hidden": False,
                    "resource_type": "sheet",
                    "grid_properties": {
                        "row_count": len(rows),
                        "column_count": max(map(len, rows), default=0),
                    },
                }
                for index, (each, (title, rows)) in enumerate(book.sheets.items())
            ]
        }

    def get_values(self, _request: HttpRequest, token: str, reach: str) -> dict[str, Any]:
        book = self._spreadsheet(token, missing=91402, forbidden=91403)
        if (found := re.fullmatch(r"(\w+)!A1:([A-Z]+)(\d+)", reach)) is None:
            raise refuse(90202, "validate RangeVal fail")
        if found[1] not in book.sheets:
            raise refuse(90215, "sheetId not found")
        width = 0
        for letter in found[2]:
            width = width * 26 + ord(letter) - ord("A") + 1
        rows = [row[:width] for row in book.sheets[found[1]][1][: int(found[3])]]
        return {
            "revision": 1,
            "spreadsheetToken": token,
            "valueRange": {"majorDimension": "ROWS", "range": reach, "revision": 1, "values": rows},
        }

    def _spreadsheet(self, token: str, *, missing: int, forbidden: int) -> FeishuSpreadsheet:
        self._need("sheets:spreadsheet", "sheets:spreadsheet:readonly")
        if token not in self.spreadsheets:
            raise refuse(missing, "not found", 404)
        if not self.spreadsheets[token].app_inside:
            raise refuse(forbidden, "Permission Fail", 403)
        return self.spreadsheets[token]

    # --- what all of them check -------------------------------------------------------------

    def _need(self, *one_of: str) -> None:
        if not any(self._fs.app.scopes.get(each) == 1 for each in one_of):
            raise scope_missing(*one_of)

    def _document(self, token: str) -> FeishuDocument:
        document = self.documents.get(token)
        if document is None:
            raise refuse(1770002, "not found", 404)
        if document.deleted:
            raise refuse(1770003, "resource deleted", 404)
        if not document.app_inside:
            raise refuse(1770032, "forBidden", 403)
        return document

    def _limit_edits(self, document: FeishuDocument) -> None:
        try:
            self._fs.rates.api(f"edits of {document.token}", EDITS_PER_SECOND)
        except FeishuApiError as error:
            raise rate_limited(0.5) from error


def document_routes(
    drive: FeishuDrive, data: Callable[..., Any]
) -> list[tuple[str, str, Callable[..., Any]]]:
    docx = "/open-apis/docx/v1/documents"
    block = f"{docx}/{{}}/blocks/{{}}"
    return [
        ("POST", f"{docx}/blocks/convert", data(drive.convert)),
        ("POST", docx, data(drive.create)),
        ("GET", f"{docx}/{{}}", data(drive.get_document)),
        ("GET", f"{docx}/{{}}/raw_content", data(drive.raw_content)),
        ("POST", f"{block}/descendant", data(drive.add_descendants)),
        ("GET", block, data(drive.get_block)),
        ("GET", "/open-apis/drive/explorer/v2/root_folder/meta", data(drive.root_folder)),
        ("GET", "/open-apis/drive/v1/files", data(drive.list_files)),
        ("GET", "/open-apis/sheets/v3/spreadsheets/{}/sheets/query", data(drive.list_sheets)),
        ("GET", "/open-apis/sheets/v2/spreadsheets/{}/values/{}", data(drive.get_values)),
    ]


def _body(request: HttpRequest, allowed: set[str]) -> dict[str, Any]:
    body = request.json()
    if not isinstance(body, dict) or set(body) - allowed:
        raise refuse(1770001, "invalid param")
    return body


def _children(block: dict[str, Any]) -> list[str]:
    children = block.get("children", [])
    if not isinstance(children, list):
        raise refuse(1770001, "invalid param")
    return children


def _check_block(block: dict[str, Any]) -> None:
    """What may be written: known types with their own content, nothing that is read only."""
    content = _CONTENT.get(block.get("block_type", 0))
    if content is None:
        raise refuse(1770029, "block not support to create")
    if set(block) - {"block_id", "block_type", "children", content}:
        raise refuse(1770006, "schema mismatch")
    body = block.get(content)
    if not isinstance(body, dict):
        raise refuse(1770006, "schema mismatch")
    if content == "table":
        size = body.get("property", {})
        if set(body) != {"property"} or "merge_info" in size:
            raise refuse(1770001, "invalid param")
        if size["row_size"] * size["column_size"] != len(_children(block)):
            raise refuse(1770001, "invalid param")


def _text_block(text: str, kind: int = _TEXT, **more: Any) -> dict[str, Any]:
    content = {"elements": [{"text_run": {"content": text}}], **more}
    return {"block_id": f"new{id(content)}", "block_type": kind, _CONTENT[kind]: content}


def _parse(markdown: str) -> Iterator[dict[str, Any]]:
    """Headings, lists, code, tables and paragraphs: enough to see that nothing is lost."""
    lines = markdown.split("\n")
    while lines:
        line = lines.pop(0)
        if found := re.match(r"(#{1,6})\s+(.*)", line):
            yield _text_block(found[2], len(found[1]) + 2)
        elif line.startswith("```"):
            end = next((at for at, each in enumerate(lines) if each.startswith("```")), len(lines))
            yield _text_block("\n".join(lines[:end]), _CODE, style={"language": 1})
            del lines[: end + 1]
        elif line.startswith("|"):
            end = next(
                (at for at, each in enumerate(lines) if not each.startswith("|")), len(lines)
            )
            yield _table([line, *lines[:end]])
            del lines[:end]
        elif re.fullmatch(r"-{3,}", line):
            yield {"block_type": _DIVIDER, "divider": {}}
        elif found := re.match(r"[-*]\s+(.*)", line):
            yield _text_block(found[1], _BULLET)
        elif found := re.match(r"\d+\.\s+(.*)", line):
            yield _text_block(found[1], _ORDERED)
        elif line.startswith("> "):
            yield _text_block(line[2:], _QUOTE)
        elif line.strip():
            yield _text_block(line)


def _table(lines: list[str]) -> dict[str, Any]:
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    shown = [row for row in rows if not all(set(cell) <= set("-: ") for cell in row)]
    width = max(map(len, shown))
    merge = [{"row_span": 1, "col_span": 1}] * (width * len(shown))
    size = {"row_size": len(shown), "column_size": width, "merge_info": merge}
    return {
        "block_type": _TABLE,
        "table": {"property": size},
        "inner": [
            {"block_type": _CELL, "table_cell": {}, "inner": [_text_block(cell)]}
            for row in shown
            for cell in (*row, *[""] * (width - len(row)))
        ],
    }
