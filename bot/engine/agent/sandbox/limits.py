"""How much of the machine one command may take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_GIB = 1 << 30
_SPARE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of each process: the bytes it may hold and write to one file. `processes` is how many its
    user may have, all together with those outside: no limit for root, whom the kernel exempts."""

    memory: int
    file_size: int = 4 * _GIB
    processes: int

    @property
    def shell(self) -> str:
        """Takes them on, offers itself first should memory run out, and becomes its arguments.
        A limit that the shell does not know is left out."""
        most = (("-c", 0), ("-d", self.memory // 1024), ("-f", self.file_size // 512))
        own = "".join(f"ulimit {flag} {value} 2>/dev/null; " for flag, value in most)
        # Shells do not agree on the letter; with the other one they mean something harmless.
        many = "".join(
            f"(ulimit {flag} {self.processes}) 2>/dev/null && ulimit {flag} {self.processes}; "
            for flag in ("-p", "-u")
        )
        first = "echo 1000 2>/dev/null >/proc/self/oom_score_adj; "
        return f'{first}{own}{many}exec "$@"'


def limits_here() -> Limits:
    """Three quarters of the machine's memory; some thousand processes beside those there are."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits(memory=max(_GIB, total * 3 // 4), processes=sum(_threads(os.getuid())) + _SPARE)


def _threads(user: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == user:
                yield len(list((folder / "task").iterdir()))
        except OSError:
            # It has ended meanwhile.
            continue
