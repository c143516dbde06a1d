"""Small sums over measurements, and what the operating system says of a process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024


def p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1]


def p50(values: Sequence[float]) -> float:
    return median(values)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / MIB


def held(name: str, value: float, unit: str, bar: float) -> str:
    """One line: the figure, its bar, and whether it keeps it."""
    verdict = "kept" if value <= bar else "MISSED"
    return f"{name}: {value:.2f} {unit} (bar {bar:g}: {verdict})"
