"""A room fairly divided among those who want some of it."""

from __future__ import annotations

from collections.abc import Sequence


def divided(room: float, needs: Sequence[float], shares: Sequence[float]) -> list[float]:
    """What each gets: as much as it needs where that is no more than its share of the room, and
    of what others leave over its share again. Nobody gets more than they need, nor less than the
    smaller of their need and their share."""
    given = [0.0] * len(needs)
    hungry = {at for at, need in enumerate(needs) if need > 0 and shares[at] > 0}
    left = max(0.0, room)
    while hungry and left > 0:
        total = sum(shares[at] for at in hungry)
        portions = {at: left * shares[at] / total for at in hungry}
        full = {at for at in hungry if needs[at] <= portions[at]}
        if not full:
            for at, portion in portions.items():
                given[at] = portion
            break
        for at in full:
            given[at] = needs[at]
        left -= sum(needs[at] for at in full)
        hungry -= full
    return given
