"""Fetch one page from the web and read it as text."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bot.engine.agent.web.fetching import Fetcher
from bot.engine.agent.web.framing import framed
from bot.engine.agent.web.pages import FetchRefused, Page
from bot.engine.agent.web.reading import text_of
from bot.engine.llm import workspace as folder
from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind

USUAL = 15_000
MOST = 28_000
_SPILL = ".shiftboss/fetched-{}.md"
_SCHEMA = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "An http or https URL."},
        "max": {
            "type": "integer",
            "minimum": 500,
            "maximum": MOST,
            "description": f"Most characters to be told. Default {USUAL}.",
        },
    },
    "required": ["url"],
    "additionalProperties": False,
}


def web_fetch(
    workspace: Path, fetcher: Fetcher, *, token: Callable[[], str] = lambda: secrets.token_hex(8)
) -> Tool:
    async def run(arguments: Mapping[str, Any]) -> str:
        most = min(max(int(arguments.get("max") or USUAL), 1), MOST)
        try:
            page = await fetcher.fetch(str(arguments["url"]))
        except FetchRefused as error:
            return f"{ERROR}{error}"
        if page.moved is not None:
            return f"[{page.url.site} redirects to {page.moved}; fetch that if you want it]"
        return await asyncio.to_thread(_told, workspace, page, most, token())

    async def detail(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("url", ""))

    return Tool(
        name="web_fetch",
        description=(
            "Fetch a page or text file from the web, as text. Pages only: it cannot log in, post or"
            " run scripts."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.FETCH,
        detail=detail,
    )


def _told(workspace: Path, page: Page, most: int, mark: str) -> str:
    text = text_of(page) or "[the page has no text]"
    status = "" if page.is_good else f", status {page.status}"
    source = f"{page.url}, {page.kind[:60]}{status}, {len(text)} characters"
    if page.is_cut:
        source += ", cut off by its size"
    shown = framed(text[:most], source=source, mark=mark)
    if len(text) > most:
        shown += f"\n[{len(text) - most} more characters{_kept(workspace, text, source, mark)}]"
    return shown if page.is_good else f"{ERROR}status {page.status}\n{shown}"


def _kept(workspace: Path, text: str, source: str, mark: str) -> str:
    """The whole of it, in a file that a model can read on in."""
    path = _SPILL.format(mark)
    try:
        folder.write_text(
            workspace, path, framed(text[: folder.MAX_WRITE // 4], source=source, mark=mark)
        )
    except folder.PathRefused:
        return " are left out"
    return f"; all of it is in {path}"
