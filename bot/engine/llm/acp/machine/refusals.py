"""What a CLI refused when it was really asked, though nothing could be seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from bot.engine.llm.acp.machine.homes import logins_of
from bot.engine.llm.acp.table import Agent

KEPT = 600.0
"""Seconds after which it is asked again: somebody may have logged in where it cannot be seen."""

_Stamp: TypeAlias = tuple[tuple[str, int], ...]


class Refusals:
    """Of one CLI. Forgotten with the process: another one has another environment."""

    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        self._root = root
        self._clock = clock
        self._last: tuple[str, float, _Stamp] | None = None

    def keep(self, problem: str, agent: Agent) -> None:
        """`problem` is a catalogue key."""
        self._last = (problem, self._clock(), _stamp(self._root, agent))

    def forget(self) -> None:
        self._last = None

    def now(self, agent: Agent) -> str:
        """Empty where there is none, it is long ago, or a login has come or changed since."""
        if self._last is None:
            return ""
        problem, at, stamp = self._last
        if self._clock() - at >= KEPT or _stamp(self._root, agent) != stamp:
            self._last = None
            return ""
        return problem


def _stamp(root: Path, agent: Agent) -> _Stamp:
    found: list[tuple[str, int]] = []
    for path in logins_of(root, agent):
        try:
            found.append((str(path), path.stat().st_mtime_ns))
        except OSError:
            continue
    return tuple(sorted(found))
