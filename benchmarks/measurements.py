"""Quantiles of measurements, and what the operating system says of a process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024
_MAX_QUIET_CHECKS = 30


def p95(values: Sequence[float]) -> float:
    """The 95th percentile; of a single value, that value."""
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def p50(values: Sequence[float]) -> float:
    return median(values)


def p95_of_quietest_quarter(values: Sequence[float]) -> float:
    """The 95th percentile of the best quarter of a run: other work on the machine only slows."""
    size = max(1, len(values) // 4)
    return min(p95(values[at : at + size]) for at in range(0, 4 * size, size) if values[at:])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def wait_until_quiet(pid: int, seconds: float) -> None:
    """Wait until a process has used no processor time for so long, or for thirty times as long."""
    before = -1.0
    for _ in range(_MAX_QUIET_CHECKS):
        now = cpu_seconds(pid)
        if now == before:
            return
        before = now
        await asyncio.sleep(seconds)


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / MIB
