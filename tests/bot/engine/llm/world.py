"""What the tests of the API backends share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.llm.access import Access, Api
from bot.engine.llm.api import ApiBackend
from bot.engine.llm.base import Backend, Purpose, RunRequest, RunResult, Tool
from bot.engine.llm.events import AgentEvent, TextDelta
from tests.emulators.models.emulator import Models

MODELS = {Api.ANTHROPIC: "claude-sonnet-5-5", Api.OPENAI: "gpt-5.2"}


def backend_of(models: Models, api: Api, *, key: str = "", silence: float = 30.0) -> ApiBackend:
    url = models.url if api is Api.ANTHROPIC else models.openai_url
    access = Access(api=api, key=key or models.key, base_url=url, silence=silence)
    return ApiBackend(access, (MODELS[api],))


def request_to(api: Api, prompt: str = "hello", **more: Any) -> RunRequest:
    asked: dict[str, Any] = {
        "purpose": Purpose.CHAT,
        "prompt": prompt,
        "system": "You are a test.",
        "model": MODELS[api],
        "language": "en",
    }
    return RunRequest(**(asked | more))


async def run_to_end(backend: Backend, request: RunRequest) -> tuple[list[AgentEvent], RunResult]:
    async with backend.run(request) as run:
        events = [event async for event in run.events]
        return events, run.result


def text_of(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def tool_that(answer: str, calls: list[Mapping[str, Any]], name: str = "write") -> Tool:
    """A tool that records its calls and always answers the same."""

    async def run(arguments: Mapping[str, Any]) -> str:
        calls.append(arguments)
        return answer

    schema = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    }
    return Tool(name=name, description="Write a file.", schema=schema, run=run)
