"""Finds and escapes invisible characters, which can hide instructions, reverse text and control
terminals. Line ends and parts of emoji and scripts do not count."""

from __future__ import annotations

import re

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)


def strip_invisible(text: str) -> str:
    return _INVISIBLE.sub("", text)


def escape_invisible(text: str) -> str:
    """Escape invisible characters by number, as in JSON, for a terminal."""
    return _INVISIBLE.sub(lambda found: escape_by_number(found[0]), text)


def escape_by_number(text: str) -> str:
    """Escape every character by its number, as in JSON."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
