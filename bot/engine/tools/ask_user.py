"""Tool that asks a person a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.llm.tool_calls import ERROR_PREFIX, AgentTool, CallKind, object_schema

_SCHEMA = object_schema(
    "question",
    question=(
        "One question, in the language of the person, that can be understood"
        " without having seen your work."
    ),
    options={
        "type": "array",
        "items": {"type": "string"},
        "description": "Up to 8 short answers to choose from, the one you advise first. The"
        " person may also answer in their own words.",
    },
)


def ask_user_tool() -> AgentTool:
    """Never executed: the authorizer returns the person's answer instead."""

    async def run(arguments: Mapping[str, Any]) -> str:
        return f"{ERROR_PREFIX}no person can be asked here: {arguments.get('question', '')}"

    async def question(arguments: Mapping[str, Any]) -> str:
        return str(arguments.get("question", ""))

    return AgentTool(
        name="ask_user",
        description=(
            "Ask the person you work for, and get their answer. Only what you cannot find out or"
            " sensibly decide yourself."
        ),
        schema=_SCHEMA,
        run=run,
        kind=CallKind.ASK,
        detail=question,
    )
