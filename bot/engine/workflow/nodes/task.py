"""What a worker's answer is to the nodes behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

_BLOCK = re.compile(r"```json\s*\n(.*?)```", re.DOTALL)
_PAIR = re.compile(
    r"\*{0,2}\b([A-Za-z_]\w{0,40})\*{0,2}\s*[:=]\s*\*{0,2}\s*(true|false|-?\d+(?:\.\d+)?)\b",
    re.IGNORECASE,
)
_MOST_READ = 20_000
_MOST_DEEP = 30
_RESERVED = {"_raw", "summary", "files", "made", "left_out", "heard", "error"}


@lru_cache(maxsize=256)
def read(text: str) -> Mapping[str, Any]:
    """What a text says that can be asked about: the first JSON block, whose lone `result` is
    unfolded, and pairs like `approved: true` or `score = 8`, which never overrule the block. What
    is nested beyond all measure is left out."""
    text = text[:_MOST_READ]
    block = _block(text)
    pairs = {name: _value(value) for name, value in _PAIR.findall(text)}
    found = {**pairs, **block}
    fine = {name: value for name, value in found.items() if _may_name(name) and not _is_deep(value)}
    return MappingProxyType(fine)


def _block(text: str) -> Mapping[str, Any]:
    found = _BLOCK.search(text)
    if found is None:
        return {}
    try:
        # What is no number in JSON could not be stored again.
        value = json.loads(found[1], parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, dict) and set(value) == {"result"} and isinstance(value["result"], dict):
        value = value["result"]
    return value if isinstance(value, dict) else {}


def _value(text: str) -> bool | int | float:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return float(text) if "." in text else int(text)


def _is_deep(value: Any) -> bool:
    level, deep = [value], 0
    while level and deep <= _MOST_DEEP:
        deep += 1
        level = [part for each in level for part in _parts(each)]
    return deep > _MOST_DEEP


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _may_name(name: object) -> bool:
    return isinstance(name, str) and name not in _RESERVED and not name.startswith("@")
