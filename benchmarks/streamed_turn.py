"""One streamed turn of a chat, from the question to the stored answer, against the bare SDK."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import SecretStr

from benchmarks.figures import Figure, Measurement, Scale
from benchmarks.measurements import p50
from benchmarks.model_server import WORDS
from bot.app.container import Container, open_container
from bot.config.settings import MemorySettings, Settings
from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
from handlers.ports import ChatQuestion
from storage.migrate import migrate
from storage.records.people import Language

_TURNS = 50
_WARM_UP = 10
_SESSION_TURNS = 10
"""After so many turns both sides begin a new session."""
_MODELS = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-5.2"}
_SYSTEM = "You are short, concrete and kind."
_MAX_TOKENS = 1000
_QUESTION = "What is new today, in two hundred words?"

Turn: TypeAlias = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TurnTime:
    """Milliseconds of one turn."""

    wall: float
    cpu: float


async def measure(scale: Scale) -> list[Measurement]:
    """A chat turn of 200 words, streamed by an emulated server in a process of its own. Our side
    includes everything a turn is for: permissions and tools, session, memory and costs in a real
    SQLite file. The bare SDK streams the same answer and keeps its history in memory. The two take
    turns, so that a slow moment hits both. The server sends as fast as it can; a real one sends
    some fifty pieces a second, so the time for each piece is the figure to look at."""
    figures: list[Measurement] = []
    async with _server() as (url, key):
        for api in _MODELS:
            with tempfile.TemporaryDirectory() as home:
                async with (
                    _ours(Path(home), api, url, key) as ours,
                    _theirs(api, url, key) as theirs,
                ):
                    figures += await _compare(api, ours, theirs, scale)
    return figures


async def _compare(api: str, ours: Turn, theirs: Turn, scale: Scale) -> list[Figure]:
    warm_up, turns = scale.pick((_WARM_UP, _TURNS), (1, 2))
    pairs = [(await _time(ours), await _time(theirs)) for _ in range(warm_up + turns)][warm_up:]
    wall = p50([mine.wall for mine, _ in pairs]), p50([bare.wall for _, bare in pairs])
    cpu = p50([mine.cpu for mine, _ in pairs]), p50([bare.cpu for _, bare in pairs])
    return [*_figures(f"{api}, wall", *wall), *_figures(f"{api}, CPU", *cpu)]


def _figures(name: str, ours: float, bare: float) -> list[Figure]:
    return [
        Figure(f"{name}: a turn", ours, "ms"),
        Figure(f"{name}: bare SDK", bare, "ms"),
        Figure(f"{name}: ratio", ours / bare, "×"),
        Figure(f"{name}: more for each piece of text", 1000 * (ours - bare) / WORDS, "µs"),
    ]


async def _time(turn: Turn) -> _TurnTime:
    wall, cpu = time.perf_counter(), time.process_time()
    said = await turn()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert said.endswith(f"word{WORDS - 1}"), said
    return _TurnTime(wall=1000 * wall, cpu=1000 * cpu)


@asynccontextmanager
async def _server() -> AsyncGenerator[tuple[str, str], None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.model_server",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        url, key = (await process.stdout.readline()).decode().split()
        yield url, key
    finally:
        process.stdin.close()
        await process.wait()


@asynccontextmanager
async def _ours(home: Path, api: str, url: str, key: str) -> AsyncGenerator[Turn, None]:
    settings = Settings.model_construct(
        **{name: field.default for name, field in Settings.model_fields.items()}
    ).model_copy(update=_access(home, api, url, key))
    await asyncio.to_thread(migrate, settings.database)
    async with open_container(settings) as core:
        yield await _asking(core)


def _access(home: Path, api: str, url: str, key: str) -> dict[str, object]:
    model = f"{api}:{_MODELS[api]}"
    if api == "anthropic":
        access = {"anthropic_api_key": SecretStr(key), "anthropic_base_url": url}
    else:
        access = {"openai_api_key": SecretStr(key), "openai_base_url": f"{url}/v1"}
    memory = MemorySettings(session_turns=_SESSION_TURNS)
    return {"home": home, "model": model, "cap_day": "", "memory": memory, **access}


async def _asking(core: Container) -> Turn:
    store = core.repositories
    person = await store.people.find_by_account(LOCAL_PLACE.channel, LOCAL_SENDER.external_id)
    assert person is not None
    chat = await core.get_local_chat()

    async def show(_text: str) -> None:
        """Discard the text: the platform's part is not measured."""

    async def turn() -> str:
        question = ChatQuestion(
            person=person, chat=chat, text=_QUESTION, language=Language.ENGLISH, source="benchmark"
        )
        return (await core.engine.conversations.answer(question, show)).text

    return turn


def _theirs(api: str, url: str, key: str) -> AbstractAsyncContextManager[Turn]:
    return _anthropic(url, key) if api == "anthropic" else _openai(url, key)


@asynccontextmanager
async def _anthropic(url: str, key: str) -> AsyncGenerator[Turn, None]:
    said: list[MessageParam] = []

    async def turn() -> str:
        if len(said) >= 2 * _SESSION_TURNS:
            said.clear()
        said.append({"role": "user", "content": _QUESTION})
        parts: list[str] = []
        async with client.messages.stream(
            model=_MODELS["anthropic"], max_tokens=_MAX_TOKENS, system=_SYSTEM, messages=said
        ) as stream:
            parts += [text async for text in stream.text_stream]
        said.append({"role": "assistant", "content": "".join(parts)})
        return "".join(parts)

    async with AsyncAnthropic(api_key=key, base_url=url) as client:
        yield turn


@asynccontextmanager
async def _openai(url: str, key: str) -> AsyncGenerator[Turn, None]:
    said: list[ChatCompletionMessageParam] = [{"role": "system", "content": _SYSTEM}]

    async def turn() -> str:
        if len(said) > 2 * _SESSION_TURNS:
            del said[1:]
        said.append({"role": "user", "content": _QUESTION})
        stream = await client.chat.completions.create(
            model=_MODELS["openai"],
            messages=said,
            stream=True,
            stream_options={"include_usage": True},
        )
        parts: list[str] = []
        async for chunk in stream:
            parts += [choice.delta.content or "" for choice in chunk.choices]
        said.append({"role": "assistant", "content": "".join(parts)})
        return "".join(parts)

    async with AsyncOpenAI(api_key=key, base_url=f"{url}/v1") as client:
        yield turn
