"""Which skill somebody's words call for. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from storage.records.workers.skills import Listed

_MOST_TEXT = 2_000
"""Who wants a skill says so at once."""


def triggered(text: str, skills: Sequence[Listed]) -> Listed | None:
    """The usable skill whose longest trigger word is in the text; the first of equals."""
    said = text[:_MOST_TEXT].casefold()
    best: tuple[int, Listed] | None = None
    for each in skills:
        if not (each.usable and each.skill.by_person):
            continue
        found = [len(word) for word in each.skill.triggers if _pattern(word).search(said)]
        if found and (best is None or max(found) > best[0]):
            best = max(found), each
    return best and best[1]


@lru_cache(maxsize=1024)
def _pattern(trigger: str) -> re.Pattern[str]:
    """Letters of alphabets end where the word ends; Chinese has no blanks to look for."""
    words = r"\s+".join(map(re.escape, trigger.casefold().split()))
    before = r"(?<![^\W\u3040-\u30ff\u3400-\u9fff])" if _spaced(trigger[0]) else ""
    after = r"(?![^\W\u3040-\u30ff\u3400-\u9fff])" if _spaced(trigger[-1]) else ""
    return re.compile(before + words + after)


def _spaced(char: str) -> bool:
    """A letter of a script that puts blanks between words. A sign such as `/` begins a word."""
    return char == "/" or (char.isalnum() and not re.match(r"[\u3040-\u30ff\u3400-\u9fff]", char))
