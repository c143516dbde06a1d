"""How long one search may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from storage.memory.archive.hearing import Spell

SECONDS = 2.0
"""For everything that is looked through for one question."""


class Watch:
    """For one search, which begins now. `cut` says that something was not looked at."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until = clock() + SECONDS
        self.cut = False

    @property
    def is_late(self) -> bool:
        return self._clock() > self._until

    def through(self, stretches: Sequence[Spell]) -> Iterator[Spell]:
        """As many of them as there is time for, the first of all in any case."""
        for n, each in enumerate(stretches):
            if n and self.is_late:
                self.cut = True
                return
            yield each
