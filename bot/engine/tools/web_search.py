"""Tool that searches the web."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, int_field, object_schema
from bot.engine.redaction import frame_untrusted
from bot.engine.web.search import MAX_RESULTS, WebSearch
from bot.engine.web.urls import FetchRefused

_DEFAULT_RESULTS = 5
_SCHEMA = object_schema(
    "query",
    query="What you would type into a search engine.",
    count=int_field(
        f"Number of results. Default {_DEFAULT_RESULTS}.", minimum=1, maximum=MAX_RESULTS
    ),
)


def web_search_tool(
    engine: WebSearch, *, new_boundary: Callable[[], str] = lambda: secrets.token_hex(8)
) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        count = min(max(int(arguments.get("count") or _DEFAULT_RESULTS), 1), MAX_RESULTS)
        try:
            found = await engine.search(str(arguments["query"]), count)
        except FetchRefused as error:
            return f"{ERROR_PREFIX}{error}"
        if not found:
            return "[nothing was found]"
        text = "\n\n".join(
            "\n".join(filter(None, (f"{n}. {each.title}", each.url, each.snippet)))
            for n, each in enumerate(found, start=1)
        )
        source = f"{len(found)} results of {engine.provider.value}"
        return frame_untrusted(text, source=source, boundary=new_boundary())

    async def detail(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("query", ""))

    return AgentTool(
        name="web_search",
        description=(
            "Search the web. Returns titles, addresses and snippets; read a page with web_fetch."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.FETCH,
        detail=detail,
    )
