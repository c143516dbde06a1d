"""What the running step of a task shows of itself while it goes on; kept nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCall:
    """One use of a tool. `good` is None while it is under way. `diff` is a unified diff, `output`
    its last lines."""

    id: str
    title: str
    good: bool | None = None
    diff: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """`path` is the step, `plan` the worker's own checklist, `calls` the newest last, `notes`
    catalogue keys with their facts."""

    path: str
    plan: tuple[tuple[str, Literal["pending", "in_progress", "completed"]], ...] = ()
    calls: tuple[LiveCall, ...] = ()
    used: int = 0
    notes: tuple[tuple[str, Mapping[str, str]], ...] = ()

    @property
    def now(self) -> LiveCall | None:
        """The call under way that was begun last."""
        return next((call for call in reversed(self.calls) if call.good is None), None)
