"""Shared by the tests of the API backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.engine.llm.api.access import ApiAccess, ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import AgentEvent, Backend, RunPurpose, RunRequest, RunResult, TextDelta
from bot.engine.llm.tool_calls import AgentTool
from tests.emulators.models.emulator import ModelEmulator

MODELS = {ApiProvider.ANTHROPIC: "claude-sonnet-5-5", ApiProvider.OPENAI: "gpt-5.2"}


def build_backend(
    models: ModelEmulator,
    api: ApiProvider,
    *,
    key: str = "",
    max_silence: float = 30.0,
    silence_notice: float = 30.0,
) -> ApiBackend:
    url = models.url if api is ApiProvider.ANTHROPIC else models.openai_url
    access = ApiAccess(
        provider=api,
        key=key or models.key,
        base_url=url,
        max_silence=max_silence,
        silence_notice=silence_notice,
    )
    return ApiBackend(access, (MODELS[api],))


def build_request(api: ApiProvider, prompt: str = "hello", **more: Any) -> RunRequest:
    asked: dict[str, Any] = {
        "purpose": RunPurpose.CHAT,
        "prompt": prompt,
        "system": "You are a test.",
        "model": MODELS[api],
        "language": "en",
    }
    return RunRequest(**(asked | more))


async def collect_run(backend: Backend, request: RunRequest) -> tuple[list[AgentEvent], RunResult]:
    async with backend.run(request) as run:
        events = [event async for event in run.events]
        return events, run.result


def joined_text(events: list[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def recording_tool(result: str, calls: list[Mapping[str, Any]], name: str = "write") -> AgentTool:
    """A tool that records its calls and always answers the same."""

    async def run(arguments: Mapping[str, Any]) -> str:
        calls.append(arguments)
        return result

    schema = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    }
    return AgentTool(name=name, description="Write a file.", schema=schema, run=run)
