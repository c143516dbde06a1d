"""Loads the text catalogues of each language from TOML files with dotted keys."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from storage.records.people import Language


class TextCatalog:
    """`words("task.done", n=3)` returns the text under that key with the facts filled in.

    A key may hold a table with `one` and `other`; the fact `n` chooses. A missing key is a
    programming error and raises KeyError. A fact `reason` that is the name of an error of the
    network, such as ConnectTimeout, is told in the words under `failure`.
    """

    def __init__(self, language: Language) -> None:
        self.language = language
        self._texts = _load_texts(language)

    def __call__(self, key: str, /, **facts: object) -> str:
        text = self._texts[key]
        if isinstance(text, dict):
            text = text["one" if facts.get("n") == 1 else "other"]
        if reason := self._texts.get(f"failure.{facts.get('reason')}"):
            facts["reason"] = reason
        return str(text).format(**facts)

    def get_or_literal(self, text: str) -> str:
        """The text under this key, or the argument itself if there is no such key."""
        return self(text) if self.has(text) else text

    def has(self, key: str) -> bool:
        return key in self._texts

    def templates(
        self, prefixes: tuple[str, ...], *, without: tuple[str, ...] = ()
    ) -> Iterator[str]:
        """The texts, with their placeholders, whose keys begin with one of these prefixes."""
        for key, text in self._texts.items():
            if key.startswith(prefixes) and not key.startswith(without):
                yield from text.values() if isinstance(text, dict) else (text,)


@cache
def catalog_for(language: Language) -> TextCatalog:
    return TextCatalog(language)


def command_help(language: Language) -> dict[str, dict[str, str]]:
    """`usage` and `text` of every command, by name. Reads a single file, for the command line."""
    file = files("cards").joinpath("texts", language, "help.toml")
    return dict(tomllib.loads(file.read_text(encoding="utf-8"))["help"])


def _load_texts(language: Language) -> dict[str, Any]:
    texts: dict[str, Any] = {}
    for source in sorted(files("cards").joinpath("texts", language).iterdir(), key=str):
        _flatten("", tomllib.loads(source.read_text(encoding="utf-8")), texts)
    return texts


def _flatten(prefix: str, table: Mapping[str, Any], into: dict[str, Any]) -> None:
    for name, value in table.items():
        # Both languages have the same keys.
        key = sys.intern(f"{prefix}{name}")
        if isinstance(value, dict) and "other" not in value:
            _flatten(f"{key}.", value, into)
        elif key in into:
            raise ValueError(f"text {key!r} is written twice")
        else:
            into[key] = value
