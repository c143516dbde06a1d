"""Where branches meet again: for all of them, the first, or so many, the frame counts."""

from __future__ import annotations

from bot.engine.workflow.nodes.base import Instant


class Join(Instant):
    """By its turn enough of them have come."""
