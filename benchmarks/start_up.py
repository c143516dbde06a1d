"""CPU seconds from start to ready with both channels configured, and of `--help`."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import cpu_seconds, held, p50
from benchmarks.setting import both_channels

_RUNS = 5
_READY_BAR = 2.0
_HELP_BAR = 0.3


async def measure() -> list[str]:
    ready = []
    for _ in range(_RUNS):
        with tempfile.TemporaryDirectory() as home:
            # The second start counts: the first one makes the database, once in its life.
            async with both_channels(Path(home)) as first:
                await first.program.stop()
                await first.program.start()
                ready.append(cpu_seconds(first.program.pid))
    help_ = [_help() for _ in range(_RUNS)]
    return [
        held("start to ready, both channels", p50(ready), "s CPU", _READY_BAR),
        held("--help", p50(help_), "s CPU", _HELP_BAR),
    ]


def _help() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shiftboss = Path(sys.executable).parent / "shiftboss"
    subprocess.run([shiftboss, "--help"], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
