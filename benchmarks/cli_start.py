"""Seconds until a coding CLI can be asked and has answered: in a new home (cold), and going on with
its session in another process (warm). Real ones where SHIFTBOSS_REAL_CLI names them, and the fake
one to see what is ours."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.figures import MIB, p50
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.machine.process import MARK
from bot.engine.llm.base import Purpose, RunRequest, Usage
from bot.engine.llm.events import TextDelta
from tests.emulators.acp.cli import FakeCli
from tests.emulators.models.emulator import Models
from tests.real_cli.world import NAMES, is_here, real, says

_RUNS = 3
_PAGE = os.sysconf("SC_PAGE_SIZE")
_WORD = "Hello"
_MANY = 100_000
_Place: TypeAlias = AbstractAsyncContextManager[AcpBackend]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Took:
    """Seconds until the prompt could be sent and until the model's word was there; what a process
    kept for the next step would save is the first. `told` is what the next run goes on with."""

    ready: float
    word: float
    memory: int
    session: str
    told: tuple[Any, ...]


async def measure() -> list[str]:
    lines = [await _line("fake", _fake)]
    for name in NAMES:
        if is_here(name):
            lines.append(await _line(name, partial(_real, name)))
        else:
            lines.append(f"{name}: not here (SHIFTBOSS_REAL_CLI)")
    return lines


async def _line(name: str, place: Callable[[], _Place]) -> str:
    cold, warm = [], []
    for _ in range(_RUNS):
        async with place() as backend:
            first = await _run(backend)
            warm.append(await _run(backend, first))
        cold.append(first)
    most = p50([max(one.memory, two.memory) for one, two in zip(cold, warm, strict=True)])
    size = f"{most / MIB:.0f} MiB with all it starts"
    return f"{name}: cold {_told(cold)}; warm {_told(warm)}; {size}"


def _told(runs: list[_Took]) -> str:
    ready, word = p50([run.ready for run in runs]), p50([run.word for run in runs])
    return f"ready {ready:.2f} s, first word {word:.2f} s"


async def _run(backend: AcpBackend, before: _Took | None = None) -> _Took:
    named = before.session if before else ""
    began = time.monotonic()
    ready, word, most, text = 0.0, 0.0, 0, ""

    async def on_external(id: str) -> None:
        nonlocal named
        named = id

    async def gate(model: str, input_tokens: int, spent: Usage) -> int:  # noqa: ARG001 - as it is asked
        nonlocal ready
        ready = ready or time.monotonic() - began
        return _MANY

    request = RunRequest(
        purpose=Purpose.CHAT,
        prompt="Hello.",
        system="",
        model="",
        language="en",
        external_id=named,
        history=before.told if before else (),
        on_external=on_external,
        gate=gate,
    )
    async with backend.run(request) as run:
        async for event in run.events:
            text += event.text if isinstance(event, TextDelta) else ""
            word = word or (time.monotonic() - began if _WORD in text else 0.0)
            most = max(most, await asyncio.to_thread(_memory))
        told = run.result.new_history
    return _Took(ready=ready, word=word, memory=most, session=named, told=told)


def _memory() -> int:
    """Resident bytes of all processes that carry our mark."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}=".encode() in (folder / "environ").read_bytes():
                total += int((folder / "statm").read_text().split()[1]) * _PAGE
        except OSError:
            continue
    return total


@asynccontextmanager
async def _fake() -> AsyncIterator[AcpBackend]:
    with tempfile.TemporaryDirectory() as folder:
        cli = FakeCli(Path(folder))
        cli.will([{"say": "Hello."}])
        yield cli.backend()


@asynccontextmanager
async def _real(name: str) -> AsyncIterator[AcpBackend]:
    with tempfile.TemporaryDirectory() as folder:
        async with Models() as models:
            models.replies(says("Hello."))
            found = real(name, models, Path(folder))
            yield found.backend()
