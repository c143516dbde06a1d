"""Seconds until a coding CLI has answered: in a new home, and going on with its session in another
process. Real ones where SHIFTBOSS_REAL_CLI names them, and the fake one to see what is ours."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.figures import MIB, p50
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.machine.process import MARK
from bot.engine.llm.base import Purpose, RunRequest
from tests.emulators.acp.cli import FakeCli
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Reply
from tests.real_cli.world import NAMES, is_here, real

_RUNS = 3
_PAGE = os.sysconf("SC_PAGE_SIZE")


async def measure() -> list[str]:
    lines = [await _line("fake", _fake)]
    for name in NAMES:
        if is_here(name):
            lines.append(await _line(name, lambda name=name: _real(name)))
        else:
            lines.append(f"{name}: not here (SHIFTBOSS_REAL_CLI)")
    return lines


async def _line(name: str, place: Callable[[], object]) -> str:
    cold, warm, memory = [], [], []
    for _ in range(_RUNS):
        async with place() as backend:
            first, session, used = await _run(backend, "")
            second, _, again = await _run(backend, session)
        cold.append(first)
        warm.append(second)
        memory.append(max(used, again))
    return (
        f"{name}: cold {p50(cold):.2f} s, warm {p50(warm):.2f} s to the first word;"
        f" {p50(memory) / MIB:.0f} MiB with all it starts"
    )


async def _run(backend: AcpBackend, external_id: str) -> tuple[float, str, int]:
    named = external_id

    async def on_external(id: str) -> None:
        nonlocal named
        named = id

    request = RunRequest(
        purpose=Purpose.CHAT,
        prompt="Hello.",
        system="",
        model="",
        language="en",
        external_id=external_id,
        on_external=on_external,
    )
    began, took, most = time.monotonic(), 0.0, 0
    async with backend.run(request) as run:
        async for _ in run.events:
            took = took or time.monotonic() - began
            most = max(most, await asyncio.to_thread(_memory))
    return took, named, most


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
            models.replies(lambda _: Reply(text="Hello."))
            found = real(name, models, Path(folder))
            yield found.backend()
