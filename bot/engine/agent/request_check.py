"""Checks the files that a message asks to be written or changed, after its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bot.engine.agent.requested_files import find_files_to_change, find_named_files, says_unchanged
from bot.engine.agent.requested_values import FileMark, find_wrong_values, mark_files
from bot.engine.llm.file_syntax import SyntaxScanner, describe_faults
from bot.engine.llm.workspace_files import find_file, find_missing, find_unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblems:
    """Files that were to be written and are nowhere, that were to be changed and are as before,
    that could be parsed before and can't be now, each with the reason, that lack the value that was
    to stand there, and in which more has changed than that."""

    missing: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    spoilt: tuple[str, ...] = ()
    valueless: Sequence[str] = ()
    overchanged: Sequence[str] = ()

    @property
    def _kinds(self) -> Mapping[str, Sequence[str]]:
        return {
            "missing": self.missing,
            "unchanged": self.unchanged,
            "spoilt": self.spoilt,
            "valueless": self.valueless,
            "overchanged": self.overchanged,
        }

    def __bool__(self) -> bool:
        return any(self._kinds.values())

    def describe(self, words: Callable[..., str]) -> tuple[str, ...]:
        """One sentence for each kind; `words` is a catalogue."""
        return tuple(
            words(f"talk.{kind}_files", files=", ".join(files))
            for kind, files in self._kinds.items()
            if files
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCheck:
    """The request of `text` in a workspace, whose files `sound` could be parsed before; `values`
    marks those in which it is to change a value. Without `since`, when it was asked, it is
    not known what is unchanged."""

    workspace: Path
    text: str
    since: datetime | None
    sound: frozenset[str] = field(default=frozenset())
    values: Mapping[str, FileMark] = field(default_factory=dict)

    @classmethod
    async def before(cls, workspace: Path, text: str, *, since: datetime | None) -> RequestCheck:
        """Look at the workspace before anybody works in it."""
        sound = await asyncio.to_thread(SyntaxScanner().find_sound, workspace, text)
        values = await asyncio.to_thread(mark_files, workspace, [text])
        return cls(workspace=workspace, text=text, since=since, sound=sound, values=values)

    async def find_problems(self, answer: str) -> FileProblems:
        """Look again. The answer may say that a file was right as it was."""
        return await asyncio.to_thread(self._find_problems, answer)

    def _find_problems(self, answer: str) -> FileProblems:
        valueless, overchanged = find_wrong_values(self.workspace, [self.text], self.values)
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
            valueless=valueless,
            overchanged=overchanged,
        )
