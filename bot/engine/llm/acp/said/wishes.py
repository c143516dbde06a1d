"""Requests for permission: which of the CLI's own options says what we mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By kind, never by name or place: some offer two of a kind, and any of them will do.
_YES = ("allow_once",)
_NO = ("reject_once", "reject_always")

CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}


def outcome(options: object, *, allow: bool) -> Mapping[str, Any]:
    """The answer on the wire. Where there is no such option the turn is given up: it is never
    allowed for longer than once."""
    listed = options if isinstance(options, list) else []
    offered = [each for each in listed if isinstance(each, dict)]
    for kind in _YES if allow else _NO:
        for option in offered:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
    return CANCELLED


def is_change_of_mode(told: Mapping[str, Any]) -> bool:
    """How much it may do is not for the CLI to change."""
    return told.get("kind") == "switch_mode"
