"""Where a workflow begins."""

from __future__ import annotations

from bot.engine.workflow.nodes.base import Instant


class Start(Instant):
    """Nothing happens here."""
