"""CPU seconds of a start with both channels, and of `--help`."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figure, Measurement, Scale, at_most
from benchmarks.measurements import cpu_seconds, p50
from benchmarks.running_program import both_channels

_RUNS = 5


async def measure(scale: Scale) -> list[Measurement]:
    """The program starts with Telegram and Feishu configured and is ready when it prints the
    address of its web chat. The second start on a home counts: the first one makes the database,
    once in its life. Each figure is the median of five runs."""
    runs = scale.pick(_RUNS, 1)
    ready = [await _start() for _ in range(runs)]
    help_ = [_help() for _ in range(runs)]
    return [
        Figure("start to ready, both channels", p50(ready), "s CPU", at_most(1.6)),
        Figure("`shiftboss --help`", p50(help_), "s CPU", at_most(0.3)),
    ]


async def _start() -> float:
    with tempfile.TemporaryDirectory() as home:
        async with both_channels(Path(home)) as running:
            await running.program.stop()
            await running.program.start()
            return cpu_seconds(running.program.pid)


def _help() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shiftboss = Path(sys.executable).parent / "shiftboss"
    subprocess.run([shiftboss, "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
