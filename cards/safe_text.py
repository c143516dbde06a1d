"""Text fit to be shown, whatever it holds: for renderers whose output is read as it is."""

from __future__ import annotations

import re

# Escape sequences would drive a reader's terminal; \n and \t stay.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Marks that reverse what stands around them: harmless in prose, a disguise in a name or label.
_OVERRIDES = re.compile(r"[\u202a-\u202e\u2066-\u2069]")


def whole(text: str) -> str:
    """Without lone surrogates, which no UTF-8 stream can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def clean(text: str) -> str:
    """Without control characters; line ends are `\\n`."""
    return _CONTROLS.sub("", whole(text).replace("\r\n", "\n").replace("\r", "\n"))


def in_line(text: str) -> str:
    """One clean line that reads in the order it is written."""
    return " ".join(without_overrides(clean(text)).split())


def without_overrides(text: str) -> str:
    return _OVERRIDES.sub("", text)
