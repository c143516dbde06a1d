"""How talk becomes work: the model proposes, the Boss decides by button."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.llm.answers import PROPOSE_TASK
from bot.engine.llm.base import Tool
from handlers.ports import Proposal, Question
from storage.records.tasks import Priority

_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "A short title, in the Boss's language."},
        "task": {
            "type": "string",
            "description": "The whole task, so that a worker who has not read this chat can do it.",
        },
        "priority": {"type": "string", "enum": ["urgent", "important", "normal"]},
        "when": {
            "type": "string",
            "description": "Only where the Boss wants it at a set time or again and again: their"
            " own words for it, such as “every Monday at 9”. The Boss is told honestly that there"
            " is no scheduler yet, and offered to have it done once, now.",
        },
    },
    "required": ["title", "task"],
    "additionalProperties": False,
}
_WHEN = 100


def propose_task(question: Question, proposals: list[Proposal]) -> Tool:
    """Nothing is begun by it: what was proposed is in `proposals`, for people to decide."""

    async def run(arguments: Mapping[str, Any]) -> str:
        proposals.append(
            Proposal(
                title=str(arguments["title"]),
                text=str(arguments["task"]) or question.text,
                priority=Priority.named(str(arguments.get("priority", ""))) or Priority.IMPORTANT,
                when=str(arguments.get("when", ""))[:_WHEN],
            )
        )
        return "The Boss is being asked. Say nothing more now."

    return Tool(
        name=PROPOSE_TASK,
        description="Ask the Boss, by button, whether to start this as a task.",
        schema=_SCHEMA,
        run=run,
    )
