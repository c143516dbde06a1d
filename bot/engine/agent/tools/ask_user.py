"""Ask a person, and go on with what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.llm.base import ERROR, Tool
from bot.engine.llm.calls import CallKind

_SCHEMA = {
    "type": "object",
    "properties": {
        "question": {
            "type": "string",
            "description": "One question, in the language of the person, that can be understood"
            " without having seen your work.",
        },
        "options": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Up to 8 short answers to choose from, the one you advise first. The"
            " person may also answer in their own words.",
        },
    },
    "required": ["question"],
    "additionalProperties": False,
}


def ask_user() -> Tool:
    """Never run: whoever gives leave has the person's answer, and gives that instead."""

    async def run(arguments: Mapping[str, Any]) -> str:
        return f"{ERROR}there is nobody here to ask: {arguments.get('question', '')}"

    async def question(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("question", ""))

    return Tool(
        name="ask_user",
        description=(
            "Ask the person you work for, and get their answer. Only what you cannot find out or"
            " sensibly decide yourself: people have other things to do."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.ASK,
        detail=question,
    )
