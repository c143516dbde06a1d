"""When the heartbeat may run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bot.engine.timing import DayHours

_MAX_MOVES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveHours:
    """Inside `active` and outside `quiet`; None for no such hours."""

    active: DayHours | None
    quiet: DayHours | None

    def contains(self, at: datetime) -> bool:
        is_active = self.active is None or self.active.contains(at)
        return is_active and not (self.quiet is not None and self.quiet.contains(at))

    def next_opening(self, at: datetime) -> datetime:
        """`at` itself if it is inside, else the next time that is. Where the two leave nothing of a
        day, the last one tried."""
        for _ in range(_MAX_MOVES):
            if self.active is not None and not self.active.contains(at):
                at = self.active.next_start(at)
            elif self.quiet is not None and self.quiet.contains(at):
                at = self.quiet.next_end(at)
            else:
                break
        return at
