"""What holding a command in costs: `true` in each sandbox against `true` by itself."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import p50, p95
from bot.engine.agent.sandbox.base import Launch, Sandbox, SandboxKind
from bot.engine.agent.sandbox.kept import Kept
from bot.engine.agent.sandbox.limits import limits_here
from bot.engine.agent.sandbox.probe import Machine, holds, probe
from bot.engine.agent.sandbox.processes import run
from bot.engine.agent.sandbox.view import view_of

_RUNS = 60
_WARM_UP = 5
_ENV = {"PATH": os.defpath}


async def measure() -> list[str]:
    """They take turns, so that a slow moment hits all."""
    begun = time.perf_counter()
    found = await asyncio.to_thread(probe, Machine())
    lines = [f"probe: {found.kind} in {1000 * (time.perf_counter() - begun):.0f} ms"]
    view, limits = view_of(), limits_here()
    kept = [Kept(kind=kind, view=view, limits=limits) for kind in list(SandboxKind)[1:]]
    rivals: list[Sandbox] = [
        each for each in (found, *kept) if not each.kind.confines or holds(each)
    ]
    rivals = list({each.kind: each for each in rivals}.values())
    with tempfile.TemporaryDirectory() as folder:
        workspace, home = Path(folder).resolve() / "work", Path(folder).resolve() / "home"
        workspace.mkdir()
        home.mkdir()
        times = await _turns(rivals, workspace, home)
    bare = p50(times["bare"])
    for name, took in times.items():
        lines.append(
            f"{name}: p50 {p50(took):.1f} ms, p95 {p95(took):.1f} ms, ratio {p50(took) / bare:.1f}"
        )
    return lines


async def _turns(rivals: Sequence[Sandbox], workspace: Path, home: Path) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    argv = ("bash", "-c", "true")
    for turn in range(_RUNS + _WARM_UP):
        for rival in (None, *rivals):
            begun = time.perf_counter()
            if rival is None:
                launch = Launch(argv=argv, env=_ENV, cwd=workspace)
            else:
                launch = rival.wrap(argv, workspace=workspace, network=False, env=_ENV, home=home)
            await run(launch, seconds=30)
            if turn >= _WARM_UP:
                took = 1000 * (time.perf_counter() - begun)
                times.setdefault(str(rival.kind) if rival else "bare", []).append(took)
    return times
