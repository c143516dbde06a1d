"""`shiftboss run` and `shiftboss dispatch`: run Shiftboss, or only its queue."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from bot.cli.chat_commands import JsonOption, program_command
from bot.cli.failures import fail, report_start_failures

_M_ARENA_MAX = -8
"""As in glibc's malloc.h."""


def run(
    *,
    new_store: Annotated[
        bool,
        typer.Option(
            "--new-store",
            help="Move the database aside under a dated name and start with an empty one.",
        ),
    ] = False,
    background: Annotated[bool, typer.Option("--background", hidden=True)] = False,
) -> None:
    """Start Shiftboss with the web chat and all configured channels."""
    with report_start_failures():
        with ExitStack() as start:
            start.enter_context(loading_modules())
            # Imported here so that `--help` stays fast.
            from bot.app.preflight import start_afresh
            from bot.app.program import serve
            from bot.config.settings import load_settings

            settings = load_settings()
            if new_store:
                for name in start_afresh(settings):
                    announce(f"Set aside: {name}")

            def on_ready() -> None:
                start.close()
                tell_service_manager()
                if background:
                    _leave_terminal()

            restarts = asyncio.run(serve(settings, announce=announce, on_ready=on_ready))
        if restarts:
            start_again("run", *(["--background"] if background else []))


@contextmanager
def loading_modules() -> Iterator[None]:
    """Modules loaded inside are looked at by garbage collection once at the end, instead of again
    and again: a tenth of a start."""
    with suppress(OSError, AttributeError):
        # By default, glibc gives each thread a heap of its own: 1 MiB at rest, 3 with a model.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    gc.disable()
    # The command line of httpx, with rich and pygments (3 MiB): None is "not there".
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    try:
        yield
    finally:
        # With slots, each dataclass is made twice: the first ones go, the rest stays for good.
        gc.collect(0)
        gc.freeze()
        gc.enable()


def start_again(*arguments: str) -> NoReturn:
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


def tell_service_manager() -> None:
    """Tell systemd that the start is over (`Type=notify`), where it is systemd that started us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # `@` is for a name without a file.
    address = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(b"READY=1", address)


def announce(line: str) -> None:
    """The terminal may be closed."""
    with suppress(OSError):
        typer.echo(line)


def dispatch(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="Run one task until it ends or waits.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the next task's prompt; run nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the queue without channels; cards wait for `shiftboss run`."""
    with report_start_failures(as_json=as_json):
        # Imported here so that `--help` stays fast.
        from bot.app import program as work
        from bot.config.settings import load_settings
        from storage.errors import DataDirectoryInUse

        settings = load_settings()
        try:
            if dry_run:
                _print_preview(asyncio.run(work.preview_next_task(settings)), as_json=as_json)
            elif once:
                _print_view(asyncio.run(work.run_one_task(settings)), as_json=as_json)
            else:
                asyncio.run(work.run_queue(settings, typer.echo))
        except DataDirectoryInUse as error:
            why = f"another Shiftboss (process {error.pid}) uses {settings.home}"
            if not once:
                fail(f"{why} and already runs its queue", as_json=as_json, status=2)
            # A lock held by another Shiftboss is a success for periodic callers.
            _print_result(
                f"{why}: nothing to do here", {"ran": None, "busy": True}, as_json=as_json
            )


def _print_view(view: Any, *, as_json: bool) -> None:
    if view is None:
        _print_result("No task is ready to start.", {"ran": None, "busy": False}, as_json=as_json)
        return
    from cards.json_data import task_view_data

    task = view.task
    said = task.summary if task.status == "completed" else task.status_reason
    lines = [f"{task.id}  {task.status}  {task.title}", *filter(None, [said])]
    _print_result("\n".join(lines), {"ran": task_view_data(view), "busy": False}, as_json=as_json)


def _print_preview(found: Any, *, as_json: bool) -> None:
    if found is None:
        _print_result("No task is ready to start.", {"task": None}, as_json=as_json)
        return
    from cards.json_data import task_data

    risk = f"({found.word})" if found.word else ""
    named = (found.task.id, found.kind, found.step, risk, found.task.title)
    head = "  ".join(filter(None, named))
    parts = [head, *filter(None, (found.system, found.prompt))]
    # The claim was rolled back, so the task is shown as queued.
    data = {
        "task": {**task_data(found.task), "status": "pending"},
        "kind": found.kind,
        "step": found.step,
        "risk": found.word,
        "system": found.system,
        "prompt": found.prompt,
    }
    _print_result("\n\n".join(parts), data, as_json=as_json)


def _print_result(text: str, data: Any, *, as_json: bool) -> None:
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2) if as_json else text)
