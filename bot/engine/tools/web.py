"""Tools that search the web, and that fetch a page and convert it to plain text."""

from __future__ import annotations

import asyncio
import codecs
import html
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, int_field, object_schema
from bot.engine.redaction import clean_outside_text, frame_outside_text, frame_untrusted
from bot.engine.web import MAX_RESULTS, FetchRefused, WebFetcher, WebPage, WebSearch, WebUrl

_MAX_PAGE_CHARS = 2_000_000
_MAX_TAG_CHARS = 8_192
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)((?:[^\"'>]|\"[^\"]*+\"|'[^']*+')*+)>")
_ATTRIBUTE = re.compile(
    r"([^\s=/\"']++)\s*+=\s*+(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]++))|([^\s=/\"']++)"
)
_SKIPPED_TAGS = {
    "script", "style", "textarea", "noscript", "template", "svg", "iframe", "object", "math",
}  # fmt: skip
_VOID_TAGS = {"br", "hr", "img", "input", "meta", "link", "area", "base", "col", "wbr", "source"}
_BLOCK_TAGS = {
    "p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "ul", "ol",
    "table", "tr", "blockquote", "pre", "form", "figure", "dl", "dt", "dd", "body", "title",
    "h1", "h2", "h3", "h4", "h5", "h6", "li", "hr", "br", "option", "details", "summary",
}  # fmt: skip
_MARKDOWN_SIGNS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_DEFAULT_RESULTS = 5
_SEARCH_SCHEMA = object_schema(
    "query",
    query="What you would type into a search engine.",
    count=int_field(
        f"Number of results. Default {_DEFAULT_RESULTS}.", minimum=1, maximum=MAX_RESULTS
    ),
)


_MARKDOWN_SIGNS |= {"li": "- ", "td": " | ", "th": " | ", "pre": "```\n", "hr": "---\n"}
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-(?:8|16|16-le|16-be|32)|ascii|iso8859-\d+|cp\d+|gb2312|gbk|gb18030|big5(?:hkscs)?"
    r"|euc_\w+|shift_jis\w*|koi8-\w|mac-\w+|iso2022_jp"
)
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


def extract_text(page: WebPage) -> str:
    """Blocking."""
    text = _decode(page)[:_MAX_PAGE_CHARS]
    if "html" in page.content_type or (
        page.content_type.startswith("text/") and _looks_like_html(text)
    ):
        text = _HtmlReader(page.url).read(text)
    return clean_outside_text(text)


def _looks_like_html(text: str) -> bool:
    return text[:200].lstrip().lower().startswith(("<!doctype html", "<html"))


def _decode(page: WebPage) -> str:
    """Use the byte order mark, else the header's charset, else the page's own, else UTF-8."""
    marked = next(
        (name for mark, name in _BYTE_ORDER_MARKS.items() if page.body.startswith(mark)), ""
    )
    own = _CHARSET.search(page.body[:4096]) if "html" in page.content_type else None
    for name in (marked, page.charset, own[1].decode("ascii", "replace") if own else ""):
        codec = _safe_codec(name)
        if codec:
            return page.body.decode(codec, "replace")
    return page.body.decode("utf-8", "replace")


def _safe_codec(name: str) -> str:
    """Only text codecs: others decompress, or may never end."""
    try:
        known = codecs.lookup(name).name if name else ""
    except (LookupError, ValueError):
        return ""
    if known in {"gb2312", "gbk"}:
        return "gb18030"
    return known if _CHARSETS.fullmatch(known) or known == "utf-8-sig" else ""


@dataclass(slots=True)
class _HtmlReader:
    """Converts HTML in one pass."""

    url: WebUrl
    out: list[str] = field(default_factory=list)
    hidden: str = ""
    """Name of the hidden element, with `depth` open elements of that name."""
    depth: int = 0
    link: tuple[str, int] | None = None
    pre: int = 0

    def read(self, source: str) -> str:
        for tag, rest, text in _tokens(source):
            if tag:
                self._read_tag(tag, rest)
            elif not self.hidden:
                self._add_text(text)
        return "".join(self.out)

    def _add_text(self, text: str) -> None:
        plain = html.unescape(text)
        self.out.append(plain if self.pre else re.sub(r"\s+", " ", plain))

    def _read_tag(self, tag: str, rest: str) -> None:
        name = tag.removeprefix("/")
        if self.hidden:
            self._within_hidden(tag, name)
        elif tag == "/a":
            self._close_link()
        elif tag.startswith("/"):
            self._close_tag(name)
        else:
            self._open_tag(name, _attributes(rest))

    def _within_hidden(self, tag: str, name: str) -> None:
        if name == self.hidden:
            self.depth += -1 if tag.startswith("/") else 1
            self.hidden = self.hidden if self.depth else ""

    def _open_tag(self, name: str, attributes: dict[str, str]) -> None:
        if _is_hidden(attributes) and name not in _VOID_TAGS:
            self.hidden, self.depth = name, 1
            return
        if name in _BLOCK_TAGS:
            self._new_line()
        if name == "pre":
            self.pre += 1
        if name == "a":
            self.link = (attributes.get("href", ""), len(self.out))
        elif name == "img" and attributes.get("alt"):
            self.out.append(f"[image: {attributes['alt'][:200]}]")
        elif name == "code" and not self.pre:
            self.out.append("`")
        else:
            self.out.append(_MARKDOWN_SIGNS.get(name, ""))

    def _close_tag(self, name: str) -> None:
        if name == "pre" and self.pre:
            self.pre -= 1
            self.out.append("\n```\n")
        elif name == "code" and not self.pre:
            self.out.append("`")
        if name in _BLOCK_TAGS:
            self._new_line()
        if name in {"p", "title", "table", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6"}:
            self.out.append("\n")

    def _new_line(self) -> None:
        if not "".join(self.out[-2:]).endswith("\n"):
            self.out.append("\n")

    def _close_link(self) -> None:
        if self.link is None:
            return
        href, start = self.link
        self.link = None
        label = "".join(self.out[start:]).strip()
        target = self.url.join(href) if href and not href.startswith("#") else None
        if target is not None and label:
            self.out[start:] = [f"[{label}]({target})"]


def _tokens(source: str) -> Iterator[tuple[str, str, str]]:
    """Yield tags with attributes, and the text between them, in linear time."""
    at = 0
    while at < len(source):
        start = source.find("<", at)
        if start < 0:
            yield "", "", source[at:]
            return
        if start > at:
            yield "", "", source[at:start]
        tag = _TAG.match(source, start, start + _MAX_TAG_CHARS)
        if tag is None:
            at = _skip_broken_tag(source, start)
            if at == start + 1:
                yield "", "", "<"
            continue
        at = tag.end()
        name = tag[2].lower()
        if tag[1] or name not in _SKIPPED_TAGS:
            yield f"{tag[1]}{name}", tag[3], ""
        elif not tag[3].endswith("/"):
            at = _skip_raw_element(source, at, name)


def _skip_broken_tag(source: str, start: int) -> int:
    """Return the end of a comment, declaration or broken tag; a literal `<` is one character."""
    if source.startswith("<!--", start):
        end = source.find("-->", start + 4)
        return len(source) if end < 0 else end + 3
    after = source[start + 1 : start + 2]
    if not after.isalpha() and after not in {"!", "?", "/"}:
        return start + 1
    end = source.find(">", start)
    return len(source) if end < 0 else end + 1


def _skip_raw_element(source: str, at: int, name: str) -> int:
    """Return the end of an element without readable text."""
    close = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, at)
    end = source.find(">", close.end()) if close else -1
    return len(source) if end < 0 else end + 1


def _attributes(rest: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in _ATTRIBUTE.finditer(rest):
        name = (one[1] or one[5]).lower()
        found.setdefault(name, html.unescape(one[2] or one[3] or one[4] or ""))
    return found


def _is_hidden(attributes: dict[str, str]) -> bool:
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or bool(_HIDDEN_STYLE.search(attributes.get("style", "")))
    )


DEFAULT_CHARS = 15_000
MAX_CHARS = 28_000
_SCHEMA = object_schema(
    "url",
    url="An http or https URL.",
    max=int_field(
        f"Maximum number of characters. Default {DEFAULT_CHARS}.", minimum=500, maximum=MAX_CHARS
    ),
)


def web_fetch_tool(
    workspace: Path,
    fetcher: WebFetcher,
    *,
    new_boundary: Callable[[], str] = lambda: secrets.token_hex(8),
) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        most = min(max(int(arguments.get("max") or DEFAULT_CHARS), 1), MAX_CHARS)
        try:
            page = await fetcher.fetch(str(arguments["url"]))
        except FetchRefused as error:
            return f"{ERROR_PREFIX}{error}"
        if page.redirect is not None:
            return f"[{page.url.site} redirects to {page.redirect}; fetch that if you want it]"
        return await asyncio.to_thread(_render_page, workspace, page, most, new_boundary())

    async def detail(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("url", ""))

    return AgentTool(
        name="web_fetch",
        description=(
            "Fetch a web page or text file, as text. It cannot log in, post or run scripts."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.FETCH,
        detail=detail,
    )


def _render_page(workspace: Path, page: WebPage, most: int, mark: str) -> str:
    text = extract_text(page) or "[the page has no text]"
    status = "" if page.is_ok else f", status {page.status}"
    source = f"{page.url}, {page.content_type[:60]}{status}, {len(text)} characters"
    if page.is_truncated:
        source += ", cut off by its size"
    shown = frame_outside_text(workspace, text, source, most=most, mark=mark)
    return shown if page.is_ok else f"{ERROR_PREFIX}status {page.status}\n{shown}"


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
        schema=_SEARCH_SCHEMA,
        run=run,
        kind=CallKind.FETCH,
        detail=detail,
    )
