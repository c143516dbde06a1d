"""Where what somebody says ends, and what they ask at the end of it begins."""

from __future__ import annotations

import re

_ASKS = re.compile(r"[?？][^\w?？]{0,8}$")
_END = re.compile(r"[.!?…]+[\"'”’)]*\s+|[。！？\n]+")


def parted(text: str) -> tuple[str, str]:
    """What is said, and the questions that it ends with: somebody else answers those."""
    if not _ASKS.search(text):
        return text, ""
    at = len(text)
    for start in reversed([0, *(end.end() for end in _END.finditer(text))]):
        sentence = text[start:at]
        if any(map(str.isalnum, sentence)) and not _ASKS.search(sentence):
            break
        at = start
    return text[:at], text[at:]
