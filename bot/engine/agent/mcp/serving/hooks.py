"""What coding CLIs are told at their hooks, and what they are asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from bot.engine.agent.mcp.serving.offered import HEAD
from bot.engine.agent.mcp.serving.shelf import Shelf
from storage.records.memory.shown import FoundEntry

SHORTEST, LONGEST_QUERY = 3, 500
HITS, MOST, SHOWN = 5, 8_000, 300
_CUT = 0.4
"""Nobody has asked: only what has this share of the best."""


class Hook(StrEnum):
    USER_PROMPT = "user-prompt"
    SESSION_START = "session-start"


async def told(hook: Hook, shelf: Shelf, text: str) -> str:
    """Empty for nothing. `text` is the prompt, or what the folder is called."""
    query = text.strip()[:LONGEST_QUERY]
    match hook:
        case Hook.USER_PROMPT:
            if len(query) < SHORTEST:
                return ""
            return _listed(await shelf.search(query, HITS, cut=_CUT))[:MOST]
        case Hook.SESSION_START:
            standing = await shelf.standing()
            found = await shelf.search(query, HITS) if query else ()
            fresh = [each for each in found if each.entry.text not in standing]
            return "\n\n".join(part for part in (standing, _listed(fresh)) if part)[:MOST]


def _listed(found: Sequence[FoundEntry]) -> str:
    if not found:
        return ""
    lines = [
        f"- [{each.entry.category.value}|{each.entry.tier.value}] ({each.score:.4f})"
        f" {' '.join(each.entry.text.split())[:SHOWN]}"
        for each in found
    ]
    return "\n".join([HEAD, *lines])
