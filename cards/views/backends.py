"""What a backend says of itself, set apart from what it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from cards.model import Block, Note
from cards.words import Words, words_for
from storage.records.people import Language

_GAP = re.compile(r"\n{3,}")


def without_note(text: str) -> str:
    """`text` without the offline backend's note on itself, in whichever language it stands."""
    for note in _notes():
        text = text.replace(note, "")
    return _GAP.sub("\n\n", text).strip()


def noted(texts: Sequence[str], words: Words) -> list[Block]:
    """The offline backend's note, once, if one of `texts` carries it."""
    if any(note in text for note in _notes() for text in texts):
        return [Note(markdown=words("offline.note"))]
    return []


@cache
def _notes() -> tuple[str, ...]:
    return tuple(words_for(language)("offline.note") for language in Language)
