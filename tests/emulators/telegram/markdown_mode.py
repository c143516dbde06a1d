"""parse_mode MarkdownV2: strict about every reserved character."""

from __future__ import annotations

from tests.emulators.telegram.refusals import unparsable
from tests.emulators.telegram.texts import Entity, utf16

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


def parse_markdown(source: str) -> tuple[str, list[Entity]]:
    return _MarkdownV2(source).parse()


class _MarkdownV2:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._text = ""
        self._open: list[tuple[str, int, int]] = []
        self._entities: list[Entity] = []

    def parse(self) -> tuple[str, list[Entity]]:
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
        self._open.append((kind, utf16(self._text), byte))
        self._at += length

    def _finish(self, length: int, **extra: str) -> None:
        kind, start, _ = self._open.pop()
        self._at += length
        size = utf16(self._text) - start
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
