"""What an owner needs to read what was said to models, and by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.records.sessions import SessionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A transcript in a file: `path` is relative to the data directory, `full` from the root."""

    session: SessionFacts
    path: str
    full: str
    size: int
    lines: int


class Transcripts(Protocol):
    async def newest(self, limit: int) -> Sequence[SessionFacts]:
        """Those used last first."""
        ...

    async def export(self, prefix: str) -> Exported:
        """As JSON lines, secrets masked. By id or its beginning: NotFound, AmbiguousId."""
        ...
