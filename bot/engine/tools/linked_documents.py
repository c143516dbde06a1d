"""Tool that reads a document of Feishu or Lark by its link, with the rights of the app."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, object_schema
from bot.engine.redaction import clean_outside_text, frame_outside_text
from storage.records.linked_documents import (
    DocumentLink,
    DocumentUnreadable,
    LinkedDocument,
    UnreadableReason,
)

_SCHEMA = object_schema("url", url="A link such as https://example.feishu.cn/docx/…")
_MAX_TITLE = 100
_MAX_SHOWN = 15_000
_REASONS: Mapping[UnreadableReason, str] = {
    UnreadableReason.NO_RIGHTS: (
        "the app has no access to it. Tell the Boss: open the document, choose ⋯ → More → Add"
        " document app (⋯ → 更多 → 添加文档应用) and this app, with permission to read; for a wiki,"
        " add a group with this bot to its members. Then ask again"
    ),
    UnreadableReason.NO_SCOPE: (
        "the app lacks a permission. Tell the Boss to grant it in the developer console of Feishu"
        " and to publish a version"
    ),
    UnreadableReason.GONE: "there is no such document, or it was deleted",
    UnreadableReason.KIND: (
        "this kind cannot be read; documents, wiki pages, spreadsheets and bases can. Ask the Boss"
        " for the text or a file"
    ),
    UnreadableReason.QUOTA: (
        "Feishu's calls of this month are nearly used up, and the rest is kept for messages"
    ),
    UnreadableReason.UNAVAILABLE: "Feishu doesn't answer as it should just now; try again later",
}


class DocumentReader(Protocol):
    def parse_link(self, url: str) -> DocumentLink | None:
        """None if it is no link to a document."""
        ...

    async def read(self, link: DocumentLink) -> LinkedDocument:
        """Raises DocumentUnreadable."""
        ...


def feishu_read_tool(
    workspace: Path,
    reader: DocumentReader,
    *,
    new_boundary: Callable[[], str] = lambda: secrets.token_hex(8),
) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        link = reader.parse_link(str(arguments["url"]))
        if link is None:
            return f"{ERROR_PREFIX}this is no link to a document of Feishu or Lark"
        try:
            document = await reader.read(link)
        except DocumentUnreadable as error:
            said = f" ({error.detail})" if error.detail else ""
            return f"{ERROR_PREFIX}{_REASONS[error.reason]}{said}"
        return await asyncio.to_thread(_render, workspace, link, document, new_boundary())

    async def detail(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("url", ""))

    return AgentTool(
        name="feishu_read",
        description=(
            "Read a document, wiki page, spreadsheet or base of Feishu or Lark by its link"
            " (https://….feishu.cn/docx/…, /wiki/…, /sheets/…, /base/…, or of larksuite.com), as"
            " text. web_fetch cannot: these pages need a sign-in."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.FETCH,
        detail=detail,
    )


def _render(workspace: Path, link: DocumentLink, document: LinkedDocument, mark: str) -> str:
    title = " ".join(document.title.split())[:_MAX_TITLE]
    text = "\n\n".join(filter(None, (f"# {title}" if title else "", document.text)))
    text = clean_outside_text(text) or "[the document has no text]"
    source = f"Feishu {link.kind} {link.token}, {len(text)} characters"
    if document.is_cut:
        source += ", cut off by its size"
    return frame_outside_text(workspace, text, source, most=_MAX_SHOWN, mark=mark)
