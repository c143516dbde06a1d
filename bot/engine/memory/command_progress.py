"""Progress of memory commands that span several transactions, so that a command repeated after a
crash reports its whole result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from storage.db import Transaction
from storage.key_value import KeyValueStore

_PROGRESS_MARK = "memory:orders"
_KEPT_COMMANDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandProgress:
    """Number of `entries` written or deleted, and the `backup` made before."""

    entries: int = 0
    backup: str = ""


class CommandProgressLog:
    """Keeps the progress of the latest commands by source, without content."""

    def __init__(self, key_values: KeyValueStore) -> None:
        self._key_values = key_values

    async def get(self, source: str) -> CommandProgress:
        return _parse_progress(await self._key_values.get(_PROGRESS_MARK), source)

    async def add(self, tx: Transaction, source: str, entries: int, backup: str = "") -> None:
        """Add progress in the transaction that made it; the first backup is kept."""
        if not source or not entries:
            return
        known = await self._key_values.read(tx, _PROGRESS_MARK) or {}
        before = _parse_progress(known, source)
        now = CommandProgress(entries=before.entries + entries, backup=before.backup or backup)
        others = [(name, told) for name, told in known.items() if name != source]
        await self._key_values.write(
            tx, _PROGRESS_MARK, dict([*others, (source, asdict(now))][-_KEPT_COMMANDS:])
        )


def _parse_progress(known: Mapping[str, Any] | None, source: str) -> CommandProgress:
    return CommandProgress(**(known or {}).get(source, {})) if source else CommandProgress()


_FORGET_MARK = "memory:forgotten"
_KEPT_FORGETS = 100


class ForgetCommandLog:
    """Keeps the sources of the latest forget commands, so that a repeat of one counts as done."""

    def __init__(self, key_values: KeyValueStore) -> None:
        self._key_values = key_values

    async def add(self, tx: Transaction, source: str) -> None:
        """Runs in the transaction that forgets."""
        known = [
            each for each in await self._key_values.read(tx, _FORGET_MARK) or () if each != source
        ]
        await self._key_values.write(tx, _FORGET_MARK, [*known, source][-_KEPT_FORGETS:])

    async def contains(self, source: str) -> bool:
        return source in (await self._key_values.get(_FORGET_MARK) or ())
