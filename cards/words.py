"""What people read, in their language: TOML catalogues with dotted keys."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from storage.records.people import Language


class Words:
    """`words("task.done", n=3)` is the text under that key with the facts filled in.

    A key may hold a table with `one` and `other`; the fact `n` chooses. A missing key is a
    programming error and raises KeyError.
    """

    def __init__(self, language: Language) -> None:
        self.language = language
        self._texts = _catalogue(language)

    def __call__(self, key: str, /, **facts: object) -> str:
        text = self._texts[key]
        if isinstance(text, dict):
            text = text["one" if facts.get("n") == 1 else "other"]
        return str(text).format(**facts)

    def or_own(self, text: str) -> str:
        """The text under that key; where there is none, these are somebody's own words."""
        return self(text) if self.has(text) else text

    def has(self, key: str) -> bool:
        return key in self._texts


def words_for(language: Language) -> Words:
    return _words(language)


@cache
def _words(language: Language) -> Words:
    return Words(language)


@cache
def _catalogue(language: Language) -> dict[str, Any]:
    texts: dict[str, Any] = {}
    for source in sorted(files("cards").joinpath("texts", language).iterdir(), key=str):
        _flatten("", tomllib.loads(source.read_text(encoding="utf-8")), texts)
    return texts


def _flatten(prefix: str, table: Mapping[str, Any], into: dict[str, Any]) -> None:
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and "other" not in value:
            _flatten(f"{key}.", value, into)
        elif key in into:
            raise ValueError(f"text {key!r} is written twice")
        else:
            into[key] = value
