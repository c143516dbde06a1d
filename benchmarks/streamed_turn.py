"""One streamed turn of talk: our whole way from question to kept answer, against the bare SDK.

The same emulated server, in a process of its own; the two take turns, so that a slow moment hits
both. Ours includes what a turn is for: leave and tools, session and costs in a real SQLite file.
The server sends as fast as it can, which no model does: what is told per piece is what counts.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import SecretStr

from benchmarks.figures import p50
from benchmarks.model_server import WORDS
from bot.app.build import Core, build_core
from bot.config.settings import Settings
from bot.transports.web.ports import PLACE, SENDER
from handlers.ports import Question
from storage.db import Database
from storage.migrate import migrate
from storage.records.people import Language

_TURNS = 60
_WARM_UP = 10
_KEPT = 10
"""Turns of a session, ours and theirs: then both begin anew."""
_MODELS = {"anthropic": "claude-sonnet-5-5", "openai": "gpt-5.2"}
_SYSTEM = "You are short, concrete and kind."
_MOST = 1000
_ASKED = "What is new today, in two hundred words?"

Turn: TypeAlias = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Took:
    wall: float
    cpu: float


async def measure() -> list[str]:
    lines: list[str] = []
    async with _server() as (url, key):
        for api in _MODELS:
            with tempfile.TemporaryDirectory() as home:
                async with _ours(Path(home), api, url, key) as ours:
                    lines += await _compared(api, ours, _theirs(api, url, key))
    return lines


async def _compared(api: str, ours: Turn, theirs: Turn) -> list[str]:
    pairs = [(await _timed(ours), await _timed(theirs)) for _ in range(_TURNS)][_WARM_UP:]
    wall = p50([mine.wall for mine, _ in pairs]), p50([bare.wall for _, bare in pairs])
    cpu = p50([mine.cpu for mine, _ in pairs]), p50([bare.cpu for _, bare in pairs])
    return [_line(f"{api}, wall", *wall), _line(f"{api}, CPU", *cpu)]


def _line(name: str, ours: float, bare: float) -> str:
    each = 1000 * (ours - bare) / WORDS
    ratio = f"ratio {ours / bare:.2f}, {each:.0f} µs more for each piece of text"
    return f"{name}: {ours:.0f} ms against {bare:.0f} ms, {ratio}"


async def _timed(turn: Turn) -> _Took:
    wall, cpu = time.perf_counter(), time.process_time()
    said = await turn()
    took = _Took(wall=1000 * (time.perf_counter() - wall), cpu=1000 * (time.process_time() - cpu))
    assert said.endswith(f"word{WORDS - 1}"), said
    return took


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
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(migrate, settings.database)
        core = await build_core(settings, await Database.open(settings.database, stack))
        stack.push_async_callback(core.engine.models.aclose)
        yield await _asking(core)


def _access(home: Path, api: str, url: str, key: str) -> dict[str, object]:
    model = f"{api}:{_MODELS[api]}"
    if api == "anthropic":
        access = {"anthropic_api_key": SecretStr(key), "anthropic_base_url": url}
    else:
        access = {"openai_api_key": SecretStr(key), "openai_base_url": f"{url}/v1"}
    return {"home": home, "model": model, "cap_day": "", **access}


async def _asking(core: Core) -> Turn:
    store = core.store
    person = await store.people.who(PLACE.channel, SENDER.external_id)
    assert person is not None
    async with store.db.write() as tx:
        chat = await store.chats.meet(tx, PLACE, SENDER, core.clock.now())

    async def show(_text: str) -> None:
        """What a platform would do with it is not measured."""

    async def turn() -> str:
        question = Question(
            person=person, chat=chat, text=_ASKED, language=Language.ENGLISH, source="benchmark"
        )
        return (await core.engine.talk.answer(question, show)).text

    return turn


def _theirs(api: str, url: str, key: str) -> Turn:
    return _anthropic(url, key) if api == "anthropic" else _openai(url, key)


def _anthropic(url: str, key: str) -> Turn:
    client = AsyncAnthropic(api_key=key, base_url=url)
    said: list[MessageParam] = []

    async def turn() -> str:
        if len(said) >= 2 * _KEPT:
            said.clear()
        said.append({"role": "user", "content": _ASKED})
        parts: list[str] = []
        async with client.messages.stream(
            model=_MODELS["anthropic"], max_tokens=_MOST, system=_SYSTEM, messages=said
        ) as stream:
            parts += [text async for text in stream.text_stream]
        said.append({"role": "assistant", "content": "".join(parts)})
        return "".join(parts)

    return turn


def _openai(url: str, key: str) -> Turn:
    client = AsyncOpenAI(api_key=key, base_url=f"{url}/v1")
    said: list[ChatCompletionMessageParam] = [{"role": "system", "content": _SYSTEM}]

    async def turn() -> str:
        if len(said) > 2 * _KEPT:
            del said[1:]
        said.append({"role": "user", "content": _ASKED})
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

    return turn
