"""Drawings of a workflow: Mermaid text, and a picture for pages that show one."""

from __future__ import annotations

from bot.engine.workflow.shown.mermaid import mermaid
from bot.engine.workflow.shown.svg import svg

__all__ = ["mermaid", "svg"]
