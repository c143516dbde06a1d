"""Where branches part: every edge behind it is taken."""

from __future__ import annotations

from bot.engine.workflow.nodes.base import Instant


class Parallel(Instant):
    """Its edges do the work."""
