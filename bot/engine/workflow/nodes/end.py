"""Where a workflow ends."""

from __future__ import annotations

from bot.engine.workflow.nodes.base import Instant


class End(Instant):
    """Nothing happens here; the flow sees that it was reached."""
