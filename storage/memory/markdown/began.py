"""What a file said when a person opened it: enough to see what they have changed, and no word of
it, so that nothing is kept here that was forgotten."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storage.memory.markdown.page import Page

_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """By the id of each entry that was shown, the digest of its words and the heading above it.
    `gone` are those of them that are no longer shown, since somebody has taken them out: they are
    missing in the file until they are forgotten."""

    lines: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    gone: Sequence[str] = ()

    @classmethod
    def at(cls, page: Page, *, titled: bool) -> Began:
        """`titled`: the headings count, as in a book."""
        lines = {line.id: digest(line.text) for line in page.lines if line.id}
        titles = {line.id: each.title for each in page.sections for line in each.lines if line.id}
        return cls(lines=lines, titles=titles if titled else {})

    @classmethod
    def read(cls, text: str) -> Began:
        """What `written` gave."""
        known = json.loads(text)
        return cls(lines=known["lines"], titles=known["titles"], gone=known.get("gone", ()))

    def written(self) -> str:
        known: dict[str, object] = {"lines": self.lines, "titles": self.titles}
        known |= {"gone": list(self.gone)} if self.gone else {}
        return json.dumps(known, ensure_ascii=False)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_LENGTH]
