"""Searches the web with the service that the operator has set up."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

from bot.engine.web.fetcher import WebFetcher
from bot.engine.web.urls import FetchRefused, WebPage, WebUrl, parse_url

MAX_RESULTS = 10
_MAX_QUERY_CHARS = 400
_MAX_QUERY_WORDS = 50
_MAX_TITLE = 200
_MAX_SNIPPET = 500
_TOO_MANY_REQUESTS = 429
_PLAN_LIMITS = {432, 433}
_REFUSALS = {400, 401, 403, 422}
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")


class SearchProvider(StrEnum):
    """The services; their answers are JSON."""

    SEARXNG = "searxng"
    BRAVE = "brave"
    TAVILY = "tavily"

    @property
    def results_path(self) -> tuple[str, ...]:
        return ("web", "results") if self is SearchProvider.BRAVE else ("results",)

    @property
    def snippet_field(self) -> str:
        return "description" if self is SearchProvider.BRAVE else "content"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """One line of plain text each."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSearch:
    """One provider at `base`, the address without the path of its API. SearXNG has no `key`."""

    provider: SearchProvider
    base: WebUrl
    fetcher: WebFetcher
    key: str = ""

    async def search(self, query: str, count: int) -> tuple[SearchResult, ...]:
        """Return at most `count` results; a long query is cut. Raises FetchRefused."""
        words = " ".join(query.split()[:_MAX_QUERY_WORDS])[:_MAX_QUERY_CHARS].strip()
        text = words.encode("utf-8", "replace").decode()
        if not text:
            raise FetchRefused("the query is empty")
        page = await self._ask(text, count)
        self._check_status(page)
        # Large answers take a while.
        return await asyncio.to_thread(self._read, page, count)

    async def _ask(self, query: str, count: int) -> WebPage:
        headers = {"Accept": "application/json"}
        match self.provider:
            case SearchProvider.SEARXNG:
                url = self._url("/search", q=query, format="json")
                return await self.fetcher.send(url, headers=headers)
            case SearchProvider.BRAVE:
                url = self._url("/res/v1/web/search", q=query, count=str(count))
                headers["X-Subscription-Token"] = self.key
                return await self.fetcher.send(url, headers=headers)
            case SearchProvider.TAVILY:
                headers |= {
                    "Authorization": f"Bearer {self.key}",
                    "Content-Type": "application/json",
                }
                body = json.dumps({"query": query, "max_results": count}).encode()
                return await self.fetcher.send(self._url("/search"), headers=headers, body=body)

    def _url(self, path: str, **query: str) -> WebUrl:
        asked = f"?{urlencode(query)}" if query else ""
        return replace(self.base, path=self.base.path.rstrip("/") + path + asked)

    def _check_status(self, page: WebPage) -> None:
        name = self.provider.value
        if page.status == _TOO_MANY_REQUESTS or page.status in _PLAN_LIMITS:
            raise FetchRefused(f"{name} allows no more searches now; try again later")
        if page.status in _REFUSALS:
            # SearXNG answers in JSON only if its settings.yml lists that format.
            what = "format json" if self.provider is SearchProvider.SEARXNG else "key"
            raise FetchRefused(
                f"{name} refused the search (status {page.status}): check its {what}"
            )
        if not page.is_ok:
            raise FetchRefused(f"{name} answered with status {page.status}")
        if page.is_truncated:
            raise FetchRefused(f"{name} sent too large an answer")

    def _read(self, page: WebPage, count: int) -> tuple[SearchResult, ...]:
        try:
            found: Any = json.loads(page.body)
        except (ValueError, RecursionError) as error:
            raise FetchRefused(f"{self.provider.value} sent no JSON") from error
        for name in self.provider.results_path:
            found = found.get(name) if isinstance(found, Mapping) else None
        if found is not None and not isinstance(found, list):
            raise FetchRefused(f"{self.provider.value} sent no list of results")
        results = self._results(found or [])
        return tuple(each for each, _ in zip(results, range(count), strict=False))

    def _results(self, found: list[Any]) -> Iterator[SearchResult]:
        for each in found:
            url = parse_url(str(each.get("url"))) if isinstance(each, Mapping) else None
            if url is not None:
                yield SearchResult(
                    title=_plain_line(each.get("title"), _MAX_TITLE),
                    url=str(url),
                    snippet=_plain_line(each.get(self.provider.snippet_field), _MAX_SNIPPET),
                )


def _plain_line(text: object, most: int) -> str:
    """Without the tags that mark matches, and without invisible characters."""
    if not isinstance(text, str):
        return ""
    plain = html.unescape(_TAG.sub("", text[: most * 10]))
    seen = "".join(one if one.isprintable() else " " * one.isspace() for one in plain)
    return " ".join(seen.split())[:most]
