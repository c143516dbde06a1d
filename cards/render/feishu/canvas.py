"""What the blocks of one card share while they are rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cards.render.feishu.markdown import Normal, chunks, normalise
from cards.render.feishu.size import MAX_MARKDOWN_TABLES, MAX_TABLES, scrub
from cards.words import Words

# More than the cards of one letter can carry would only hold the event loop.
_MOST = 200_000
_TAIL = 20_000

Element: TypeAlias = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Canvas:
    """`images` maps paths to uploaded keys; `mark` goes into every callback beside the token.
    Tables and form names are counted here because their limits are the card's."""

    words: Words
    images: Mapping[str, str]
    mark: Mapping[str, str]
    degraded: list[str] = field(default_factory=list)
    tables: int = MAX_TABLES
    markdown_tables: int = MAX_MARKDOWN_TABLES
    names: set[str] = field(default_factory=set)
    forms: int = 0

    def degrade(self, note: str) -> None:
        if note not in self.degraded:
            self.degraded.append(note)

    def normal(self, markdown: str) -> Normal:
        """Markdown made fit, its tables counted."""
        if len(markdown) > _MOST:
            self.degrade("text: cut in the middle, it is too long")
            gap = f"\n\n{self.words('render.feishu.cut')}\n\n"
            markdown = markdown[: _MOST - _TAIL] + gap + markdown[-_TAIL:]
        made = normalise(scrub(markdown), tables=min(self.markdown_tables, self.tables))
        self.markdown_tables -= made.tables
        self.tables -= made.tables
        for note in made.notes:
            self.degrade(note)
        return made

    def markdown(self, markdown: str, **more: Any) -> list[Element]:
        """Markdown elements of bearable length for any CommonMark."""
        return written(self.normal(markdown).text, **more)

    def callback(self, token: str) -> list[dict[str, Any]]:
        return [{"type": "callback", "value": {**self.mark, "t": token}}]

    def name(self, wanted: str) -> str:
        """A form member's name, unique on the card: `~2` and so on where it is taken."""
        name, number = wanted, 1
        while name in self.names:
            number += 1
            name = f"{wanted}~{number}"
        self.names.add(name)
        return name


def plain(content: str) -> Element:
    return {"tag": "plain_text", "content": content}


def written(normalised: str, **more: Any) -> list[Element]:
    return [{"tag": "markdown", "content": piece, **more} for piece in chunks(normalised)]
