"""A step for a worker, and the values that later nodes can read from its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from bot.engine.workflow.nodes.contract import NodeRole, NodeShape, NodeTypeSpec

_JSON_BLOCK = re.compile(r"```json\s*\n(.*?)```", re.DOTALL)
_NAME_VALUE_PAIR = re.compile(
    r"\*{0,2}\b([A-Za-z_]\w{0,40})\*{0,2}\s*[:=]\s*\*{0,2}\s*(true|false|-?\d+(?:\.\d+)?)\b",
    re.IGNORECASE,
)
_MAX_READ = 20_000
_MAX_DEPTH = 30
_SCALARS = str | int | float | None
_RESERVED_NAMES = {"_raw", "summary", "files", "made", "left_out", "heard", "error"}


class TaskNode(NodeTypeSpec[None]):
    """Work for a worker in a session of the task. `prompt` adds instructions to the name. This is
    the default type."""

    name = "task"
    role = NodeRole.TASK
    shape = NodeShape.BOX
    planner_hint = "work for a worker"
    aliases = ("", "work", "agent", "subtask")
    markdown_names = ("任务",)
    example = """\
nodes:
  - {id: write, name: Write, prompt: "One page on {{inputs.topic}}", persona: writer}
inputs: [{name: topic}]
"""


@lru_cache(maxsize=256)
def parse_answer_values(text: str) -> Mapping[str, Any]:
    """Extract named values from a text: the first JSON block (a lone `result` is unwrapped), and
    pairs like `approved: true` or `score = 8`, which the block overrides. Values that are nested
    too deeply are dropped."""
    text = text[:_MAX_READ]
    pairs = {name: _parse_scalar(value) for name, value in _NAME_VALUE_PAIR.findall(text)}
    found = pairs | _parse_json_block(text)
    return MappingProxyType(
        {
            name: value
            for name, value in found.items()
            if not (name in _RESERVED_NAMES or name.startswith("@") or _is_too_deep(value))
        }
    )


def _parse_json_block(text: str) -> dict[str, Any]:
    found = _JSON_BLOCK.search(text)
    if found is None:
        return {}
    try:
        # NaN and infinities cannot be stored.
        value = json.loads(found[1], parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, dict) and set(value) == {"result"} and isinstance(value["result"], dict):
        value = value["result"]
    return value if isinstance(value, dict) else {}


def _parse_scalar(text: str) -> bool | int | float:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return float(text) if "." in text else int(text)


def _is_too_deep(value: Any) -> bool:
    level, depth = [value], 0
    while level and depth <= _MAX_DEPTH:
        depth += 1
        groups = [each.values() if isinstance(each, dict) else each for each in level]
        level = [part for each in groups if not isinstance(each, _SCALARS) for part in each]
    return depth > _MAX_DEPTH
