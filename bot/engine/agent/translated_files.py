"""Checks whether the files that a text wants translated are in the language it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bot.engine.llm import workspace_files as folder

_TRANSLATION = re.compile(r"\btranslat(?:e|ed|ion|ing)\b|翻译|译[成为]", re.IGNORECASE)
_TO_ENGLISH = re.compile(r"\b(?:in)?to English\b|[成为到]英[文语]|译英", re.IGNORECASE)
_TO_CHINESE = re.compile(
    r"\b(?:in)?to (?:Simplified |Traditional )?Chinese\b|[成为到](?:简体|繁体)?[中汉][文语]|译中",
    re.IGNORECASE,
)
_HAN = re.compile("[\u3400-\u9fff]")
_MAX_BYTES = 200_000
_FEW_LETTERS = 4

MOSTLY = 0.6
"""Share of Chinese among the letters of a text that is not English. Beside an English translation
the original has some 0.2."""

HARDLY = 0.02
"""Share of Chinese among the letters of a text that is not Chinese."""


def find_untranslated(workspace: Path, text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the files that are plainly not in the language into which the text wants them
    translated; none if it names none, or both. Blocks."""
    wants_english = _TO_ENGLISH.search(text) is not None
    wants_chinese = _TO_CHINESE.search(text) is not None
    if _TRANSLATION.search(text) is None or wants_english == wants_chinese:
        return ()
    shares = {name: _han_share(workspace, name) for name in names}
    return tuple(
        name
        for name, share in shares.items()
        if share is not None and (share > MOSTLY if wants_english else share < HARDLY)
    )


def _han_share(workspace: Path, name: str) -> float | None:
    """Of the letters; None if there is no such text."""
    try:
        text = folder.read_text(workspace, name, limit=_MAX_BYTES)
    except folder.PathRefused:
        return None
    letters = sum(map(str.isalpha, text))
    return len(_HAN.findall(text)) / letters if letters >= _FEW_LETTERS else None
