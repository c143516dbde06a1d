"""Loads the program's modules cheaply: they are most of what a start costs."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType

_M_ARENA_MAX = -8
"""As in glibc's malloc.h."""
_UNUSED = {
    "uvicorn.main": ("main", "run"),
    "apscheduler.executors.pool": ("ThreadPoolExecutor", "ProcessPoolExecutor"),
}
"""What other modules import from them."""


@contextmanager
def loading_modules() -> Iterator[None]:
    """Modules loaded inside are looked at by garbage collection once at the end, instead of again
    and again: a tenth of a start."""
    _share_arena()
    gc.disable()
    _leave_out()
    try:
        yield
    finally:
        # With slots, each dataclass is made twice: the first ones go, the rest stays for good.
        gc.collect(0)
        gc.freeze()
        gc.enable()


def _leave_out() -> None:
    """Parts of libraries that they load and we never use: the command lines of httpx (with rich and
    pygments, 3 MiB) and of uvicorn (with click, 1 MiB), and the pools of threads and processes of
    APScheduler (with multiprocessing, 1 MiB), whose scheduler here runs on the event loop."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None is "not there"
    for name, exported in _UNUSED.items():
        module = ModuleType(name)
        module.__dict__.update(dict.fromkeys(exported))
        sys.modules.setdefault(name, module)
    # sse-starlette, which comes with MCP, wants the server from here.
    sys.modules["uvicorn.main"].__dict__.setdefault("__getattr__", _find_server)


def _find_server(name: str) -> object:
    if name != "Server":
        raise AttributeError(name)
    return import_module("uvicorn.server").Server


def _share_arena() -> None:
    """By default, glibc gives each thread a heap of its own: 1 MiB at rest, 3 with a model."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
