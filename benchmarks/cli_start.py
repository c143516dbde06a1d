"""Seconds until a coding CLI can take a prompt, and until the model's first word is there."""

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

from benchmarks.figures import Figure, LeftOut, Measurement, Scale
from benchmarks.measurements import MIB, p50
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.acp.process import PROCESS_MARK_VARIABLE
from bot.engine.llm.backend import RunPurpose, RunRequest, TextDelta, TokenUsage
from tests.emulators.acp.fake_cli import FakeCli
from tests.emulators.models.emulator import ModelEmulator
from tests.real_cli.builders import NAMES, install_cli, is_installed, reply_with

_RUNS = 3
_KEPT_SECONDS = 600.0
_WORK = "task"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FIRST_WORD = "Hello"
_MAX_ANSWER = 100_000
_OpenBackend: TypeAlias = Callable[[], AbstractAsyncContextManager[AcpBackend]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CliRun:
    """Seconds until the prompt could be sent and until the model's word was there, and the most
    memory meanwhile. The next run continues from `session` and `history`."""

    ready: float
    word: float
    memory: int
    session: str
    history: tuple[Any, ...]


async def measure(scale: Scale) -> list[Measurement]:
    """A CLI is asked for one word, in a new home (cold), by another process that continues its
    session (resumed), and by the process that was kept for the next step (next step, warm). *Ready*
    is when the prompt can be sent. The memory is that of all processes the CLI starts: the most
    while it works, and while it is kept. The fake CLI shows what Shiftboss itself adds; real ones
    run where `SHIFTBOSS_REAL_CLI` names a folder that has them. Each figure is the median of three
    runs."""
    measured: list[Measurement] = [*await _measure_cli("fake", _fake, scale)]
    for name in scale.pick(NAMES, ()):
        if is_installed(name):
            measured += await _measure_cli(name, partial(_real, name), scale)
        else:
            measured.append(LeftOut(name, "not installed (SHIFTBOSS_REAL_CLI)"))
    return measured


async def _measure_cli(name: str, open_backend: _OpenBackend, scale: Scale) -> list[Figure]:
    cold, resumed, warm, idle = [], [], [], []
    for _ in range(scale.pick(_RUNS, 1)):
        async with open_backend() as backend:
            first = await _run(backend)
            second = await _run(backend, first, kept_for=_WORK)
            idle.append(await asyncio.to_thread(_memory))
            warm.append(await _run(backend, second, kept_for=_WORK))
            await backend.end_idle()
        cold.append(first)
        resumed.append(second)
    figures = []
    ways = {"cold": cold, "resumed": resumed, "next step, warm": warm}
    for way, runs in ways.items():
        figures += [
            Figure(f"{name}: {way}, ready", p50([run.ready for run in runs]), "s"),
            Figure(f"{name}: {way}, first word", p50([run.word for run in runs]), "s"),
        ]
    most = p50([max(each.memory for each in runs) for runs in zip(*ways.values(), strict=True)])
    return [
        *figures,
        Figure(f"{name}: memory", most / MIB, "MiB"),
        Figure(f"{name}: memory, kept", p50(idle) / MIB, "MiB"),
    ]


async def _run(
    backend: AcpBackend, before: _CliRun | None = None, *, kept_for: str = ""
) -> _CliRun:
    named = before.session if before else ""
    began = time.monotonic()
    ready, word, most, text = 0.0, 0.0, 0, ""

    async def on_external(id: str) -> None:
        nonlocal named
        named = id

    async def gate(model: str, input_tokens: int, spent: TokenUsage) -> int:  # noqa: ARG001 - BudgetGate's arguments
        nonlocal ready
        ready = ready or time.monotonic() - began
        return _MAX_ANSWER

    request = RunRequest(
        purpose=RunPurpose.CHAT,
        prompt="Hello.",
        system="",
        model="",
        language="en",
        external_id=named,
        history=before.history if before else (),
        on_external=on_external,
        gate=gate,
        kept_for=kept_for,
    )
    async with backend.run(request) as run:
        async for event in run.events:
            text += event.text if isinstance(event, TextDelta) else ""
            word = word or (time.monotonic() - began if _FIRST_WORD in text else 0.0)
            most = max(most, await asyncio.to_thread(_memory))
        history = run.result.new_history
    return _CliRun(ready=ready, word=word, memory=most, session=named, history=history)


def _memory() -> int:
    """Resident bytes of all processes that carry the mark of a CLI started by us."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{PROCESS_MARK_VARIABLE}=".encode() in (folder / "environ").read_bytes():
                total += int((folder / "statm").read_text().split()[1]) * _PAGE
        except OSError:
            continue
    return total


@asynccontextmanager
async def _fake() -> AsyncIterator[AcpBackend]:
    with tempfile.TemporaryDirectory() as folder:
        cli = FakeCli(Path(folder))
        cli.script([{"say": "Hello."}])
        yield cli.backend(idle=IdleProcess(_KEPT_SECONDS))


@asynccontextmanager
async def _real(name: str) -> AsyncIterator[AcpBackend]:
    with tempfile.TemporaryDirectory() as folder:
        async with ModelEmulator() as models:
            models.replies(reply_with("Hello."))
            found = install_cli(name, models, Path(folder))
            yield found.backend(idle=IdleProcess(_KEPT_SECONDS))
