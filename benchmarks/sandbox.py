"""The time of a command in each sandbox, against the same command without one."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figure, LeftOut, Measurement, Scale
from benchmarks.measurements import p50, p95
from bot.engine.sandbox.backends import SupervisedSandbox, detect_sandbox, is_confining
from bot.engine.sandbox.process_runner import run_process
from bot.engine.sandbox.spec import (
    Sandbox,
    SandboxedCommand,
    SandboxKind,
    SandboxLaunch,
    build_view,
    default_limits,
)

_RUNS = 60
_WARM_UP = 5
_ENV = {"PATH": os.defpath}


async def measure(scale: Scale) -> list[Measurement]:
    """`bash -c true` runs in every sandbox that works here and without one. They take turns, so
    that a slow moment hits all. The probe finds out which sandbox works, once for each start."""
    begun = time.perf_counter()
    found = await asyncio.to_thread(detect_sandbox)
    probe = Figure(f"probe, which found {found.kind}", 1000 * (time.perf_counter() - begun), "ms")
    rivals, left_out = _rivals(found)
    with tempfile.TemporaryDirectory() as folder:
        workspace, home = Path(folder).resolve() / "work", Path(folder).resolve() / "home"
        workspace.mkdir()
        home.mkdir()
        times = await _take_turns(rivals, workspace, home, scale)
    figures: list[Measurement] = [probe]
    for name, took in times.items():
        figures += [
            Figure(f"{name}, p50", p50(took), "ms"),
            Figure(f"{name}, p95", p95(took), "ms"),
            Figure(f"{name}, p50 against bare", p50(took) / p50(times["bare"]), "×"),
        ]
    return [*figures, *left_out]


def _rivals(found: Sandbox) -> tuple[list[Sandbox], list[LeftOut]]:
    """A sandbox of each kind that works here, and the kinds that do not."""
    view, limits = build_view(), default_limits()
    others = [SupervisedSandbox(kind=kind, view=view, limits=limits) for kind in SandboxKind]
    rivals: dict[SandboxKind, Sandbox] = {found.kind: found}
    for each in others[1:]:
        if not each.kind.confines or is_confining(each):
            rivals[each.kind] = each
    missing = [kind for kind in SandboxKind if kind not in rivals]
    return [*rivals.values()], [LeftOut(str(kind), "does not work here") for kind in missing]


async def _take_turns(
    rivals: Sequence[Sandbox], workspace: Path, home: Path, scale: Scale
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    argv = ("bash", "-c", "true")
    warm_up, runs = scale.pick((_WARM_UP, _RUNS), (0, 2))
    for turn in range(warm_up + runs):
        for rival in (None, *rivals):
            begun = time.perf_counter()
            if rival is None:
                launch = SandboxLaunch(argv=argv, env=_ENV, cwd=workspace)
            else:
                launch = rival.wrap(
                    SandboxedCommand(argv=argv, workspace=workspace, env=_ENV, home=home)
                )
            await run_process(launch, seconds=30)
            if turn >= warm_up:
                took = 1000 * (time.perf_counter() - begun)
                times.setdefault(str(rival.kind) if rival else "bare", []).append(took)
    return times
