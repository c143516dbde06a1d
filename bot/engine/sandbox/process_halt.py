"""Halts the coding CLIs and MCP servers that could change a folder while an approved command runs
there."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from bot.engine.llm.folder_processes import FOLDER_PROCESSES
from bot.engine.sandbox import supervisor

_TRIES, _TRY_SECONDS = 5, 1.0
_PAUSE = 0.002
_HALTED_STATES = frozenset("TtZXx")

# One halts or resumes at a time: what one resumes, another may just have halted.
_signals = threading.Lock()
# Stopped for any command: the last that holds a process resumes what another has stopped.
_stopped: set[int] = set()


@asynccontextmanager
async def halted_processes(folder: Path) -> AsyncGenerator[bool, None]:
    """Stop the processes (SIGSTOP) until the end, and start none there. Yields False if one cannot
    be stopped, as in a system call that does not return: then the folder may still change."""
    pids: list[int] = []
    try:
        async with FOLDER_PROCESSES.hold(folder):
            pids = FOLDER_PROCESSES.find(folder)
            # With nobody to halt, and that is nearly always, no thread is needed.
            yield not pids or await asyncio.to_thread(_halt, pids)
    finally:
        if pids:
            await asyncio.shield(asyncio.to_thread(_resume, pids))


def _halt(pids: Sequence[int]) -> bool:
    """Blocking."""
    with _signals:
        for _ in range(_TRIES):
            halted: set[int] = set()
            if _halt_once(pids, halted):
                _stopped.update(halted)
                return True
            # A child that is stopped before it runs its program keeps its parent from stopping.
            _signal(halted, signal.SIGCONT)
        return False


def _halt_once(pids: Sequence[int], halted: set[int]) -> bool:
    until = time.monotonic() + _TRY_SECONDS
    before: set[int] = set()
    while time.monotonic() < until:
        found = _descendants(pids)
        running = {each for each in found if not _is_halted(each)}
        # Whoever was stopped at the last look has no new children.
        if not running and found == before:
            return True
        before = found
        halted |= running
        _signal(running, signal.SIGSTOP)
        time.sleep(_PAUSE)
    return False


def _resume(pids: Sequence[int]) -> None:
    """All but those that another command holds. Blocking."""
    with _signals:
        free = [each for each in pids if not FOLDER_PROCESSES.is_held(each)]
        there = _stopped & _descendants(free)
        _signal(there, signal.SIGCONT)
        ended = {each for each in _stopped if not Path(f"/proc/{each}").exists()}
        _stopped.difference_update(there, ended)


def _descendants(pids: Iterable[int]) -> set[int]:
    """Not the processes themselves: those are the sandbox's, which has to end what is in it."""
    return {each for pid in pids for each in supervisor.descendants(pid)}


def _is_halted(pid: int) -> bool:
    """Whether no thread runs, or is within a system call that may still write."""
    try:
        threads = [*Path(f"/proc/{pid}/task").iterdir()]
        return all(_state(each) in _HALTED_STATES for each in threads)
    except (FileNotFoundError, ProcessLookupError):
        return True


def _state(thread: Path) -> str:
    return (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
