"""Death at every commit and every platform call of one story, before and after: what was broken."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.journeys.crash.story import Told, fresh_home, tell

_AT_ONCE = 2
_BUDGET = 900.0
# The story's moments fall differently each time: a few more points than the first telling had.
_MARGIN = 3


async def measure() -> list[str]:
    """All points if the time allows, else as many, spread over the story."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        template = await fresh_home(base / "template")
        calm = await tell(base / "calm", (), template=template)
        points = list(_spread(list(_points(calm))))
        told = await _tell_all(base, template, points)
    return [*_table(told), *_summary(calm, points, told)]


async def _tell_all(base: Path, template: Path, points: Sequence[str]) -> list[Told]:
    todo = iter(enumerate(points))
    told: list[Told] = []
    end = time.monotonic() + float(os.environ.get("KILLS_SECONDS", _BUDGET))

    async def work() -> None:
        for n, point in todo:
            if time.monotonic() > end:
                return
            home = base / f"home{n}"
            told.append(await tell(home, (point,), template=template))
            shutil.rmtree(home)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(work())
    return told


def _points(calm: Told) -> Iterator[str]:
    for kind in ("commit", "call"):
        passed = sum(line.startswith(f"{kind} ") for line in calm.points)
        for n in range(1, passed + _MARGIN + 1):
            yield f"{kind}:before:{n}"
            yield f"{kind}:after:{n}"


def _spread(points: Sequence[str]) -> Iterator[str]:
    """All of them, so that any beginning is a fair sample."""
    step = 13
    for start in range(step):
        yield from points[start * 5 % step :: step]


def _table(told: Sequence[Told]) -> list[str]:
    rows: dict[tuple[str, str], list[Told]] = defaultdict(list)
    for each in told:
        if each.deaths:
            kind, when, _ = each.point.split(":")
            rows[f"{each.label} ({kind})", when].append(each)
    lines = [f"{'where':38} {'when':7} {'deaths':>6} {'marked repeats':>14} {'broken':>6}"]
    for (label, when), group in sorted(rows.items()):
        repeats, broken = sum(t.repeats for t in group), sum(bool(t.wrong) for t in group)
        lines.append(f"{label:38} {when:7} {len(group):6} {repeats:14} {broken:6}")
    lines += [f"BROKEN {t.point} {t.label}: {'; '.join(t.wrong)}" for t in told if t.wrong]
    return lines


def _summary(calm: Told, points: Sequence[str], told: Sequence[Told]) -> list[str]:
    died = sum(bool(each.deaths) for each in told)
    broken = sum(bool(each.wrong) for each in told)
    verdict = "kept" if not broken and not calm.wrong else "MISSED"
    deaths = f"{died} deaths at {len(told)} of {len(points)} points"
    return [
        f"untouched: {'; '.join(calm.wrong) or 'nothing wrong'}",
        f"{deaths}, broken promises: {broken} (bar 0: {verdict})",
    ]
