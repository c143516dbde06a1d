"""Running benchmarks, and keeping what each run gave in `results.json`."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Bar, Figure, LeftOut, Measurement, Scale
from benchmarks.registry import Benchmark

RESULTS_FILE = Path(__file__).with_name("results.json")
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """When, where and on what a benchmark ran. `load` is the machine's before it began."""

    date: str
    machine: str
    commit: str
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """The result of one run. `failure` says why there are no figures; it is empty otherwise."""

    conditions: RunConditions
    seconds: float
    measured: tuple[Measurement, ...] = ()
    failure: str = ""

    @property
    def figures(self) -> list[Figure]:
        return [each for each in self.measured if isinstance(each, Figure)]

    @property
    def missed(self) -> list[Figure]:
        return [each for each in self.figures if each.is_met is False]


def run_benchmark(benchmark: Benchmark, scale: Scale) -> BenchmarkResult:
    """Run it to its end on an event loop of its own.

    An exception becomes the result's `failure`, with the traceback on standard error."""
    conditions = current_conditions()
    begun = datetime.now(UTC)
    measured: tuple[Measurement, ...] = ()
    failure = ""
    try:
        measured = tuple(asyncio.run(_measure(benchmark, scale)))
    except Exception as error:  # noqa: BLE001 - one failure must not end the other benchmarks
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return BenchmarkResult(
        conditions=conditions,
        seconds=(datetime.now(UTC) - begun).total_seconds(),
        measured=measured,
        failure=failure,
    )


async def _measure(benchmark: Benchmark, scale: Scale) -> list[Measurement]:
    async with asyncio.timeout(60 * benchmark.minutes):
        return list(await benchmark.load()(scale))


def current_conditions() -> RunConditions:
    return RunConditions(
        date=datetime.now(UTC).date().isoformat(),
        machine=_machine(),
        commit=_commit(),
        load=round(os.getloadavg()[0], 1),
    )


def load_results(path: Path = RESULTS_FILE) -> dict[str, BenchmarkResult]:
    """The last result of each benchmark by its name; empty where nothing has been measured."""
    if not path.exists():
        return {}
    kept: Mapping[str, Any] = json.loads(path.read_text("utf-8"))
    return {name: _result_from_json(each) for name, each in kept.items()}


def save_results(results: Mapping[str, BenchmarkResult], path: Path = RESULTS_FILE) -> None:
    kept = {name: _result_to_json(results[name]) for name in sorted(results)}
    path.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", "utf-8")


def _result_to_json(result: BenchmarkResult) -> dict[str, Any]:
    conditions = result.conditions
    return {
        "date": conditions.date,
        "machine": conditions.machine,
        "commit": conditions.commit,
        "load": conditions.load,
        "seconds": round(result.seconds, 1),
        "failure": result.failure,
        "measured": [_measurement_to_json(each) for each in result.measured],
    }


def _measurement_to_json(measured: Measurement) -> dict[str, Any]:
    if isinstance(measured, LeftOut):
        return {"name": measured.name, "left_out": measured.reason}
    told: dict[str, Any] = {"name": measured.name, "value": measured.value, "unit": measured.unit}
    if measured.bar is not None:
        told["at_least" if measured.bar.is_minimum else "at_most"] = measured.bar.limit
    return told


def _result_from_json(kept: Mapping[str, Any]) -> BenchmarkResult:
    return BenchmarkResult(
        conditions=RunConditions(
            date=kept["date"], machine=kept["machine"], commit=kept["commit"], load=kept["load"]
        ),
        seconds=kept["seconds"],
        measured=tuple(_measurement_from_json(each) for each in kept["measured"]),
        failure=kept["failure"],
    )


def _measurement_from_json(kept: Mapping[str, Any]) -> Measurement:
    if "left_out" in kept:
        return LeftOut(kept["name"], kept["left_out"])
    bar = None
    if "at_least" in kept:
        bar = Bar(kept["at_least"], is_minimum=True)
    elif "at_most" in kept:
        bar = Bar(kept["at_most"])
    return Figure(kept["name"], kept["value"], kept["unit"], bar)


def _machine() -> str:
    python = platform.python_version()
    return f"{os.cpu_count()} cores ({_processor()}), {platform.system()}, Python {python}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _commit() -> str:
    """The commit's short name, with a `+` where files differ from it."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip() or "unknown"
