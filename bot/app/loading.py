"""Loads the program's modules cheaply: they are most of what a start costs."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_M_ARENA_MAX = -8
"""As in glibc's malloc.h."""


@contextmanager
def loading_modules() -> Iterator[None]:
    """Modules loaded inside are looked at by garbage collection once at the end, instead of again
    and again: a tenth of a start. httpx's own command line, which would load rich and pygments
    (3 MiB), is left out."""
    _share_arena()
    gc.disable()
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None is "not there"
    try:
        yield
    finally:
        # With slots, each dataclass is made twice: the first ones go, the rest stays for good.
        gc.collect(0)
        gc.freeze()
        gc.enable()


def _share_arena() -> None:
    """By default, glibc gives each thread a heap of its own: 1 MiB at rest, 3 with a model."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
