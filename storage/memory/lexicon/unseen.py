"""Characters that nobody sees: they hide orders from people, turn lines around and steer
terminals. Parts of emoji and of scripts, and ends of lines, are none."""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)


def without_unseen(text: str) -> str:
    return _UNSEEN.sub("", text)


def revealed(text: str) -> str:
    """For a terminal: what would not be seen stands there by its number, as in JSON."""
    return _UNSEEN.sub(_number, text)


def _number(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
