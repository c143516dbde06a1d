"""What counts against a card's limits, and text that no JSON can carry."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_TABLES = 5
MAX_MARKDOWN_TABLES = 3
# 30 KB and 200 components are allowed; what is kept back is for header, config and the
# platform's own counting.
PART_BYTES = 27_000
PART_COMPONENTS = 190

# All controls but tab and newline; lone surrogates, which have no bytes.
_UNFIT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def dumps(node: Any) -> str:
    return json.dumps(node, ensure_ascii=False, separators=(",", ":"))


def weight(node: Any) -> int:
    """Bytes of the node as JSON."""
    return len(dumps(node).encode())


def count(node: Any) -> int:
    """Components in the node; plain texts count too."""
    if isinstance(node, dict):
        return ("tag" in node) + sum(count(value) for value in node.values())
    if isinstance(node, list):
        return sum(count(value) for value in node)
    return 0


def scrub(text: str) -> str:
    return _UNFIT.sub("", text)


def cut(text: str, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(scrub(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
