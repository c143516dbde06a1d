"""`shiftboss front` and `shiftboss worker`: the parts of Shiftboss on several machines."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from socket import gethostname
from typing import Annotated, Any

import typer

from bot.cli.chat_commands import JsonOption
from bot.cli.failures import fail, report_start_failures
from bot.cli.run import announce, loading_modules, start_again, tell_service_manager

_NAME_LENGTH = 64

NameOption = Annotated[
    str, typer.Option("--name", help="The name of this process, as others see it.")
]


def front(*, name: NameOption = "") -> None:
    """Run the channels and the web, but no tasks: workers run those. Needs PostgreSQL."""
    _serve("front", name=name)


def worker(
    *,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, max=64, help="Tasks at the same time.")
    ] = None,
    queue: Annotated[
        list[Path] | None,
        typer.Option("--queue", help="Only take tasks of this project folder; may be repeated."),
    ] = None,
    name: NameOption = "",
    drain: Annotated[
        str, typer.Option("--drain", help="Let the worker of this name finish and stop.")
    ] = "",
    list_all: Annotated[
        bool, typer.Option("--list", help="List the processes of the store and what they run.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run tasks of a store that several machines share. Needs PostgreSQL."""
    if drain or list_all:
        with report_start_failures(as_json=as_json):
            _look_after(drain, as_json=as_json)
        return
    folders = frozenset(str(each.expanduser().resolve()) for each in queue or ())
    _serve("worker", name=name, slots=slots, projects=folders)


def _serve(role: str, *, name: str, **plan: Any) -> None:
    with report_start_failures():
        with ExitStack() as start:
            start.enter_context(loading_modules())
            # Imported here so that `--help` stays fast.
            from bot.app.parts import ProcessPlan
            from bot.app.program import serve, serve_tasks
            from bot.config.settings import load_settings
            from storage.records.processes import ProcessRole

            settings = load_settings()
            planned = ProcessPlan(
                role=ProcessRole(role), name=(name or gethostname())[:_NAME_LENGTH], **plan
            )

            def on_ready() -> None:
                start.close()
                tell_service_manager()

            run = serve if planned.role.has_channels else serve_tasks
            restarts = asyncio.run(run(settings, announce, on_ready, planned))
        if restarts:
            start_again(*sys.argv[1:])


def _look_after(drained: str, *, as_json: bool) -> None:
    from bot.app.processes import drain_processes, list_processes
    from bot.config.settings import load_settings
    from cards.json_data import process_data

    settings = load_settings()
    if drained:
        found = asyncio.run(drain_processes(settings, drained))
        if not found:
            fail(f"no process of the name {drained} runs", as_json=as_json)
        typer.echo(json.dumps({"drained": found}) if as_json else f"{drained}: finishing its steps")
        return
    situations = asyncio.run(list_processes(settings))
    if as_json:
        shown = [process_data(each) for each in situations]
        typer.echo(json.dumps({"processes": shown}, ensure_ascii=False, indent=2))
        return
    for each in situations:
        process = each.process
        running = ", ".join(task for task, _ in each.tasks) or "-"
        state = "draining" if process.draining else ""
        typer.echo(
            f"{process.name}  {process.role}  {process.host}:{process.pid}  {process.version}"
            f"  {len(each.tasks)}/{process.slots}  {running}  {state}".rstrip()
        )
