"""parse_mode MarkdownV2: strict about every reserved character."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from tests.emulators.telegram.errors import unparsable
from tests.emulators.telegram.texts import TextEntity, utf16_length

_KINDS = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline",
    "ins": "underline", "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough",
    "tg-spoiler": "spoiler", "code": "code", "pre": "pre", "blockquote": "blockquote",
    "a": "text_link", "span": "spoiler", "tg-emoji": "custom_emoji", "tg-time": "date_time",
}  # fmt: skip
_TOKEN = re.compile(
    r"<(/?)([a-zA-Z0-9-]*)([^>]*)>|<|&(?:lt|gt|amp|quot|#\d+|#x[0-9a-fA-F]+);|[^<&]+|&"
)
_ATTRIBUTE = re.compile(r"([a-zA-Z-]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|(\S+)))?")


def parse_html(source: str) -> tuple[str, list[TextEntity]]:
    return _HtmlParser(source).parse()


class _HtmlParser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._parts: list[str] = []
        self._length = 0
        self._open: list[tuple[str, int, dict[str, str]]] = []
        self._entities: list[TextEntity] = []

    def parse(self) -> tuple[str, list[TextEntity]]:
        for token in _TOKEN.finditer(self._source):
            self._take(token)
        if self._open:
            raise unparsable(
                f'Can\'t find end tag corresponding to start tag "{self._open[-1][0]}"'
            )
        return "".join(self._parts), self._entities

    def _take(self, token: re.Match[str]) -> None:
        at = len(self._source[: token.start()].encode())
        if not token[0].startswith("<"):
            self._add(unescape(token[0]))
        elif token[2] is None:
            raise unparsable(f"Unclosed start tag at byte offset {at}")
        elif token[1]:
            self._close(token[2].lower(), at)
        else:
            self._begin(token[2].lower(), token[3], at)

    def _add(self, text: str) -> None:
        self._parts.append(text)
        self._length += utf16_length(text)

    def _begin(self, tag: str, rest: str, at: int) -> None:
        attributes = {m[1].lower(): m[2] or m[3] or m[4] or "" for m in _ATTRIBUTE.finditer(rest)}
        if tag not in _KINDS:
            raise unparsable(f'Unsupported start tag "{tag}" at byte offset {at}')
        if tag == "span" and attributes.get("class") != "tg-spoiler":
            raise unparsable(f'Tag "span" must have class "tg-spoiler" at byte offset {at}')
        self._open.append((tag, self._length, attributes))

    def _close(self, tag: str, at: int) -> None:
        if not self._open:
            raise unparsable(f"Unexpected end tag at byte offset {at}")
        expected, start, attributes = self._open.pop()
        if tag and tag != expected:
            raise unparsable(
                f'Unmatched end tag at byte offset {at}, expected "</{expected}>", found "</{tag}>"'
            )
        if self._length > start:
            self._note(expected, start, attributes)

    def _note(self, tag: str, start: int, attributes: dict[str, str]) -> None:
        entity: dict[str, Any] = {
            "type": _KINDS[tag], "offset": start, "length": self._length - start,
        }  # fmt: skip
        if tag == "a":
            if "href" not in attributes:
                return
            entity["url"] = attributes["href"]
        if tag == "blockquote" and "expandable" in attributes:
            entity["type"] = "expandable_blockquote"
        self._entities.append(entity)


_RESERVED = set("_*[]()~`>#+-=|{}.!")
_MARKS = (
    ("```", "pre"), ("||", "spoiler"), ("__", "underline"), ("`", "code"),
    ("*", "bold"), ("_", "italic"), ("~", "strikethrough"),
)  # fmt: skip
_NAMES = {
    "pre": "Pre", "code": "Code", "spoiler": "Spoiler", "underline": "Underline",
    "bold": "Bold", "italic": "Italic", "strikethrough": "Strikethrough", "text_link": "TextUrl",
}  # fmt: skip
_RAW = {"pre": "```", "code": "`"}


def parse_markdown(source: str) -> tuple[str, list[TextEntity]]:
    return _MarkdownParser(source).parse()


class _MarkdownParser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._text = ""
        self._open: list[tuple[str, int, int]] = []
        self._entities: list[TextEntity] = []

    def parse(self) -> tuple[str, list[TextEntity]]:
        while self._at < len(self._source):
            self._step()
        if self._open:
            kind, _, byte = self._open[-1]
            raise unparsable(f"Can't find end of {_NAMES[kind]} entity at byte offset {byte}")
        return self._text, self._entities

    def _step(self) -> None:
        char = self._source[self._at]
        follower = self._source[self._at + 1 : self._at + 2]
        if char == "\\" and follower and ord(follower) < 127:
            self._text += follower
            self._at += 2
        elif self._open and self._open[-1][0] in _RAW:
            self._inside_code(self._open[-1][0])
        elif char == "[":
            self._start("text_link", 1)
        elif char == "]" and self._open and self._open[-1][0] == "text_link":
            self._end_link()
        elif not self._mark():
            self._plain(char)

    def _inside_code(self, kind: str) -> None:
        if self._source.startswith(_RAW[kind], self._at):
            self._finish(len(_RAW[kind]))
        else:
            self._text += self._source[self._at]
            self._at += 1

    def _mark(self) -> bool:
        for mark, kind in _MARKS:
            if self._source.startswith(mark, self._at):
                if self._open and self._open[-1][0] == kind:
                    self._finish(len(mark))
                else:
                    self._start(kind, len(mark))
                return True
        return False

    def _start(self, kind: str, length: int) -> None:
        byte = len(self._source[: self._at].encode())
        self._open.append((kind, utf16_length(self._text), byte))
        self._at += length

    def _finish(self, length: int, **extra: str) -> None:
        kind, start, _ = self._open.pop()
        self._at += length
        size = utf16_length(self._text) - start
        if size:
            self._entities.append({"type": kind, "offset": start, "length": size, **extra})

    def _end_link(self) -> None:
        close = self._source.find(")", self._at)
        if self._source[self._at + 1 : self._at + 2] != "(" or close < 0:
            raise unparsable("Can't find end of a URL")
        url = self._source[self._at + 2 : close]
        self._finish(close + 1 - self._at, url=url)

    def _plain(self, char: str) -> None:
        line_start = self._at == 0 or self._source[self._at - 1] == "\n"
        if char in _RESERVED and not (char == ">" and line_start):
            raise unparsable(
                f"Character '{char}' is reserved and must be escaped with the preceding '\\'"
            )
        if not (char == ">" and line_start):
            self._text += char
        self._at += 1
