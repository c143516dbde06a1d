"""What stands on a page, as plain text a model can read: headings, lists, links and code kept."""

from __future__ import annotations

import codecs
import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from bot.engine.agent.web.pages import Page
from bot.engine.agent.web.urls import Url

_MOST = 2_000_000
_LONGEST_TAG = 8_192
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)((?:[^\"'>]|\"[^\"]*+\"|'[^']*+')*+)>")
_ATTRIBUTE = re.compile(
    r"([^\s=/\"']++)\s*+=\s*+(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]++))|([^\s=/\"']++)"
)
_RAW = {"script", "style", "textarea", "noscript", "template", "svg", "iframe", "object", "math"}
_VOID = {"br", "hr", "img", "input", "meta", "link", "area", "base", "col", "wbr", "source"}
_BLOCKS = {
    "p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "ul", "ol",
    "table", "tr", "blockquote", "pre", "form", "figure", "dl", "dt", "dd", "body", "title",
    "h1", "h2", "h3", "h4", "h5", "h6", "li", "hr", "br", "option", "details", "summary",
}  # fmt: skip
_SIGNS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_SIGNS |= {"li": "- ", "td": " | ", "th": " | ", "pre": "```\n", "hr": "---\n"}
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_CHARSETS = re.compile(
    r"utf-(?:8|16|16-le|16-be|32)|ascii|iso8859-\d+|cp\d+|gb2312|gbk|gb18030|big5(?:hkscs)?"
    r"|euc_\w+|shift_jis\w*|koi8-\w|mac-\w+|iso2022_jp"
)
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UNSEEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


def text_of(page: Page) -> str:
    """Blocks: call it in a thread."""
    text = _decoded(page)[:_MOST]
    if "html" in page.kind or (page.kind.startswith("text/") and _looks_like_html(text)):
        text = _Reader(page.url).read(text)
    return _clean(text)


def _looks_like_html(text: str) -> bool:
    return text[:200].lstrip().lower().startswith(("<!doctype html", "<html"))


def _decoded(page: Page) -> str:
    """By its mark, else by what its sender says, else by what it says itself, else as UTF-8."""
    marked = next((name for mark, name in _MARKS.items() if page.body.startswith(mark)), "")
    own = _CHARSET.search(page.body[:4096]) if "html" in page.kind else None
    for name in (marked, page.charset, own[1].decode("ascii", "replace") if own else ""):
        codec = _codec(name)
        if codec:
            return page.body.decode(codec, "replace")
    return page.body.decode("utf-8", "replace")


def _codec(name: str) -> str:
    """Only codecs of texts: others unpack, or take for ever."""
    try:
        known = codecs.lookup(name).name if name else ""
    except (LookupError, ValueError):
        return ""
    if known in {"gb2312", "gbk"}:
        return "gb18030"
    return known if _CHARSETS.fullmatch(known) or known == "utf-8-sig" else ""


def _clean(text: str) -> str:
    """Without characters that nobody sees, and without more blank lines than one."""
    seen = "".join(one for one in text if one in "\n\t" or not _is_unseen(one))
    lines = (line.rstrip() for line in seen.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _is_unseen(one: str) -> bool:
    return (not one.isascii() and unicodedata.category(one) in {"Cf", "Cc", "Co", "Cs", "Cn"}) or (
        one.isascii() and not one.isprintable()
    )


@dataclass(slots=True)
class _Reader:
    """One pass from left to right, whatever the page does."""

    url: Url
    out: list[str] = field(default_factory=list)
    hidden: str = ""
    """The element within which nothing is shown, and how many of its name are open in it."""
    depth: int = 0
    link: tuple[str, int] | None = None
    pre: int = 0

    def read(self, source: str) -> str:
        for tag, rest, text in _tokens(source):
            if tag:
                self._tag(tag, rest)
            elif not self.hidden:
                self._text(text)
        return "".join(self.out)

    def _text(self, text: str) -> None:
        plain = html.unescape(text)
        self.out.append(plain if self.pre else re.sub(r"\s+", " ", plain))

    def _tag(self, tag: str, rest: str) -> None:
        name = tag.removeprefix("/")
        if self.hidden:
            self._within_hidden(tag, name)
        elif tag == "/a":
            self._end_link()
        elif tag.startswith("/"):
            self._end(name)
        else:
            self._begin(name, _attributes(rest))

    def _within_hidden(self, tag: str, name: str) -> None:
        if name == self.hidden:
            self.depth += -1 if tag.startswith("/") else 1
            self.hidden = self.hidden if self.depth else ""

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        if _is_hidden(attributes) and name not in _VOID:
            self.hidden, self.depth = name, 1
            return
        if name in _BLOCKS:
            self._line()
        if name == "pre":
            self.pre += 1
        if name == "a":
            self.link = (attributes.get("href", ""), len(self.out))
        elif name == "img" and attributes.get("alt"):
            self.out.append(f"[image: {attributes['alt'][:200]}]")
        elif name == "code" and not self.pre:
            self.out.append("`")
        else:
            self.out.append(_SIGNS.get(name, ""))

    def _end(self, name: str) -> None:
        if name == "pre" and self.pre:
            self.pre -= 1
            self.out.append("\n```\n")
        elif name == "code" and not self.pre:
            self.out.append("`")
        if name in _BLOCKS:
            self._line()
        if name in {"p", "title", "table", "ul", "ol", "h1", "h2", "h3", "h4", "h5", "h6"}:
            self.out.append("\n")

    def _line(self) -> None:
        if not "".join(self.out[-2:]).endswith("\n"):
            self.out.append("\n")

    def _end_link(self) -> None:
        if self.link is None:
            return
        href, start = self.link
        self.link = None
        label = "".join(self.out[start:]).strip()
        target = self.url.joined(href) if href and not href.startswith("#") else None
        if target is not None and label:
            self.out[start:] = [f"[{label}]({target})"]


def _tokens(source: str) -> Iterator[tuple[str, str, str]]:
    """Tags with their attributes, and texts between. Each step goes on from where the last one
    ended, so that the time taken grows with the page and with nothing else."""
    at = 0
    while at < len(source):
        start = source.find("<", at)
        if start < 0:
            yield "", "", source[at:]
            return
        if start > at:
            yield "", "", source[at:start]
        tag = _TAG.match(source, start, start + _LONGEST_TAG)
        if tag is None:
            at = _no_tag(source, start)
            if at == start + 1:
                yield "", "", "<"
            continue
        at = tag.end()
        name = tag[2].lower()
        if tag[1] or name not in _RAW:
            yield f"{tag[1]}{name}", tag[3], ""
        elif not tag[3].endswith("/"):
            at = _after_raw(source, at, name)


def _no_tag(source: str, start: int) -> int:
    """Behind a comment, a declaration or a broken tag; behind the sign itself if it is text."""
    if source.startswith("<!--", start):
        end = source.find("-->", start + 4)
        return len(source) if end < 0 else end + 3
    after = source[start + 1 : start + 2]
    if not after.isalpha() and after not in {"!", "?", "/"}:
        return start + 1
    end = source.find(">", start)
    return len(source) if end < 0 else end + 1


def _after_raw(source: str, at: int, name: str) -> int:
    """Behind the end of an element whose content is no text to read."""
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
        or bool(_UNSEEN_STYLE.search(attributes.get("style", "")))
    )
