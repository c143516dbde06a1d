"""Checks the files that a message asks for after its answer, also for their language."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bot.engine.agent.named_files import find_files_to_change, find_named_files, says_unchanged
from bot.engine.llm import workspace_files as folder
from bot.engine.llm.file_syntax import SyntaxScanner, describe_faults
from bot.engine.llm.workspace_files import find_file, find_missing, find_unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblems:
    """Files that were to be written and are nowhere, that were to be changed and are as before, and
    that could be parsed before and can't be now, each with the reason."""

    missing: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    spoilt: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.unchanged or self.spoilt)

    def describe(self, words: Callable[..., str]) -> tuple[str, ...]:
        """One sentence for each kind; `words` is a catalogue."""
        kinds = {"missing": self.missing, "unchanged": self.unchanged, "spoilt": self.spoilt}
        return tuple(
            words(f"talk.{kind}_files", files=", ".join(files))
            for kind, files in kinds.items()
            if files
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedFiles:
    """The request of `text` in a workspace, whose files `sound` could be parsed before. Without
    `since`, when it was asked, it is not known what is unchanged."""

    workspace: Path
    text: str
    since: datetime | None
    sound: frozenset[str] = field(default=frozenset())

    @classmethod
    async def before(cls, workspace: Path, text: str, *, since: datetime | None) -> RequestedFiles:
        """Look at the workspace before anybody works in it."""
        sound = await asyncio.to_thread(SyntaxScanner().find_sound, workspace, text)
        return cls(workspace=workspace, text=text, since=since, sound=sound)

    async def find_problems(self, answer: str) -> FileProblems:
        """Look again. The answer may say that a file was right as it was."""
        return await asyncio.to_thread(self._find_problems, answer)

    def _find_problems(self, answer: str) -> FileProblems:
        named = find_named_files(self.text)
        absent = [name for name in named if find_file(self.workspace, name) is None]
        unchanged: tuple[str, ...] = ()
        if self.since is not None and not says_unchanged(answer):
            asked = find_files_to_change(self.text)
            unchanged = find_unchanged(self.workspace, asked, self.since.timestamp())
        return FileProblems(
            missing=tuple(sorted(find_missing(self.workspace, absent))) if absent else (),
            unchanged=unchanged,
            spoilt=describe_faults(self.workspace, self.sound),
        )


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
