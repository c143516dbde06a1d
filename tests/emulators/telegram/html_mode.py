"""parse_mode HTML: the few tags Telegram knows, and its complaints about the rest."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from tests.emulators.telegram.refusals import unparsable
from tests.emulators.telegram.texts import Entity, utf16

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


def parse_html(source: str) -> tuple[str, list[Entity]]:
    return _Html(source).parse()


class _Html:
    def __init__(self, source: str) -> None:
        self._source = source
        self._parts: list[str] = []
        self._length = 0
        self._open: list[tuple[str, int, dict[str, str]]] = []
        self._entities: list[Entity] = []

    def parse(self) -> tuple[str, list[Entity]]:
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
        self._length += utf16(text)

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
