"""Where one way is chosen: the first of its edges whose condition holds, else the one without."""

from __future__ import annotations

from bot.engine.workflow.nodes.base import Instant


class Condition(Instant):
    """Its edges do the work; `routing.choice` looks at them in order."""
