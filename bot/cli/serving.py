"""Serves until the program ends. Loads no command line, which `shiftboss run` would keep in its
memory."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from socket import gethostname
from types import ModuleType
from typing import Any, NoReturn

from bot.cli.failures import report_start_failures

_UNUSED_MODULES = {
    "apscheduler.executors.pool": ("ThreadPoolExecutor",),
    "pydantic_settings.sources.providers.cli": (
        *("CLI_SUPPRESS", "CliDualFlag", "CliExplicitFlag", "CliImplicitFlag"),
        *("CliMutuallyExclusiveGroup", "CliPositionalArg", "CliSettingsSource", "CliSubCommand"),
        *("CliSuppress", "CliToggleFlag", "CliUnknownArgs", "CliVariadicArg"),
    ),
    "uvicorn.main": ("Server", "main", "run"),
}
"""With the names that their packages import."""

_UNUSED_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "pydantic_settings.main": {"argparse": ("Namespace",)},
    "uvicorn.config": {"configparser": ("RawConfigParser",), "logging.config": ()},
}
"""What one library loads for settings that we do not make, and others may need."""

_M_ARENA_MAX = -8
"""As in glibc's malloc.h."""
_NAME_LENGTH = 64


def run_program(
    *again: str,
    new_store: bool = False,
    detach: bool = False,
    role: str = "run",
    name: str = "",
    **plan: Any,
) -> None:
    """Serve to the end; `again` is the command that starts it anew after a restart. With `detach`
    it leaves the terminal once it is ready."""
    with ExitStack() as start:
        start.enter_context(loading_modules())
        with report_start_failures():
            # Imported here so that `--help` stays fast.
            from bot.app.parts import ProcessPlan
            from bot.app.preflight import start_afresh
            from bot.app.program import serve, serve_tasks
            from bot.config.settings import load_settings
            from storage.records.processes import ProcessRole

            settings = load_settings()
            if new_store:
                for each in start_afresh(settings):
                    _announce(f"Set aside: {each}")
            name = (name or gethostname())[:_NAME_LENGTH]
            planned = ProcessPlan(role=ProcessRole(role), name=name, **plan)

            def on_ready() -> None:
                start.close()
                _tell_service_manager()
                if detach:
                    _leave_terminal()

            work = serve if planned.role.has_channels else serve_tasks
            restarts = asyncio.run(work(settings, _announce, on_ready, planned))
    if restarts:
        _start_again(*again)


@contextmanager
def loading_modules() -> Iterator[None]:
    """Modules loaded inside are looked at by garbage collection once at the end, instead of again
    and again: a tenth of a start."""
    with suppress(OSError, AttributeError):
        # By default, glibc gives each thread a heap of its own: 1 MiB at rest, 3 with a model.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    gc.disable()
    _leave_out_unused_modules()
    try:
        yield
    finally:
        # With slots, each dataclass is made twice: the first ones go, the rest stays for good.
        gc.collect(0)
        gc.freeze()
        gc.enable()


def _leave_out_unused_modules() -> None:
    """Command lines, process pools and formats of settings that libraries load with what we use of
    them: 7 MiB."""
    # With rich and pygments; None is "not there", which httpx allows.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    _put_empty(_UNUSED_MODULES)
    for library, unused in _UNUSED_BY.items():
        put = _put_empty(unused)
        try:
            import_module(library)
        finally:
            for name in put:
                del sys.modules[name]


def _put_empty(modules: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Empty modules where none is loaded; their names."""
    put = [name for name in modules if name not in sys.modules]
    for name in put:
        sys.modules[name] = empty = ModuleType(name)
        vars(empty).update({each: type(each, (), {}) for each in modules[name]})
    return put


def _start_again(*arguments: str) -> NoReturn:
    """As the same process, which whoever started it goes on to watch: a service manager, a
    container, a terminal. The data directory is free by now."""
    command = [*program_command(), *arguments]
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - our own program


def _leave_terminal() -> None:
    """Tell whoever started it that it is ready, by closing what they read."""
    sys.stdout.flush()
    with Path(os.devnull).open("r+b", buffering=0) as nowhere:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            os.dup2(nowhere.fileno(), stream.fileno())


def _tell_service_manager() -> None:
    """Tell systemd that the start is over (`Type=notify`), where it is systemd that started us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # `@` is for a name without a file.
    address = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(b"READY=1", address)


def _announce(line: str) -> None:
    """The terminal may be closed."""
    with suppress(OSError):
        print(line, flush=True)


def program_command() -> list[str]:
    """This program by its absolute path, for commands that others start."""
    script = Path(sys.executable).parent / "shiftboss"
    return [str(script)] if script.is_file() else [sys.executable, "-m", "bot"]
