"""Send off a helper, which works in the background and reports once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind
from storage.records.helpers import Helper
from storage.records.helping import HelperStatus

TOOL = "sessions_spawn"

_SCHEMA = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "The whole task: the helper knows nothing of your conversation. Say"
            " what to report.",
        },
        "label": {"type": "string", "description": "Two or three words, for people to see."},
        "persona": {"type": "string", "description": "Who does it. Default: like you."},
        "cleanup": {
            "type": "string",
            "enum": ["keep", "delete"],
            "description": "What becomes of its conversation once it has reported. Default keep.",
        },
    },
    "required": ["task", "label"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """`arguments` are the call's own words, by which it is known again."""

    task: str
    label: str
    persona: str
    keep: bool
    arguments: dict[str, Any]


class NotSent(Exception):
    """Why not, in one sentence for the model."""


def sessions_spawn(send: Callable[[Wish], Awaitable[Helper]]) -> Tool:
    """`send` has the helper on disk before it returns, or raises NotSent."""

    async def run(arguments: Mapping[str, Any]) -> str:
        wish = Wish(
            task=str(arguments["task"]),
            label=str(arguments["label"]),
            persona=str(arguments.get("persona") or "").strip().casefold(),
            keep=arguments.get("cleanup") != "delete",
            arguments=dict(arguments),
        )
        try:
            helper = await send(wish)
        except NotSent as error:
            return f"{ERROR}{error}"
        if helper.status is HelperStatus.DONE:
            return f"accepted {helper.id}: it has done exactly this, and reported"
        return f"accepted {helper.id}: it reports by itself, with your next turn; do not wait"

    async def detail(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("task", ""))

    return Tool(
        name=TOOL,
        description=(
            "Send off a helper with a task of its own. It works in your workspace, beside you and"
            " unseen, and its report reaches you by itself with your next step or turn: finish"
            " what you can without it, and say in your own report what is left to it. Only for"
            " work that is large, and independent of yours."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.OTHER,
        detail=detail,
    )
