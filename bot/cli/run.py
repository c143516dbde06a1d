"""`shiftboss run`, `front`, `worker` and `dispatch`: run Shiftboss, its parts on several machines,
or only its queue."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.chat_commands import JsonOption
from bot.cli.failures import fail, report_start_failures
from bot.cli.serving import run_program

NameOption = Annotated[
    str, typer.Option("--name", help="The name of this process, as others see it.")
]


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
    run_program("run", *["--background"] * background, new_store=new_store, detach=background)


def front(*, name: NameOption = "") -> None:
    """Run the channels and the web, but no tasks: workers run those. Needs PostgreSQL."""
    run_program(*sys.argv[1:], role="front", name=name)


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
    forget: Annotated[
        str,
        typer.Option(
            "--forget",
            metavar="PLACE",
            help="Stop waiting for the data directory of a machine that is gone for good.",
        ),
    ] = "",
    list_all: Annotated[
        bool, typer.Option("--list", help="List the processes of the store and what they run.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run tasks of a store that several machines share. Needs PostgreSQL."""
    if drain or list_all or forget:
        with report_start_failures(as_json=as_json):
            if forget:
                _forget(forget, as_json=as_json)
            else:
                _look_after(drain, as_json=as_json)
        return
    folders = frozenset(str(each.expanduser().resolve()) for each in queue or ())
    run_program(*sys.argv[1:], role="worker", name=name, slots=slots, projects=folders)


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


def _forget(place: str, *, as_json: bool) -> None:
    from bot.app.processes import forget_place
    from bot.config.settings import load_settings
    from storage.errors import NotFound, WrongState

    try:
        owed = asyncio.run(forget_place(load_settings(), place))
    except NotFound:
        fail(f"no data directory is called {place}: see `shiftboss status`", as_json=as_json)
    except WrongState:
        fail(f"{place} is in use: stop Shiftboss there, and wait 5 minutes", as_json=as_json)
    text = f"{place}: not waited for any more. Its data directory keeps what it had: delete it"
    typer.echo(json.dumps({"forgotten": place, "erasures": owed}) if as_json else text)


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
        state = " ".join(["draining"] * process.draining + [f"lease:{s}" for s in each.services])
        typer.echo(
            f"{process.name}  {process.role}  {process.host}:{process.pid}  {process.version}"
            f"  {len(each.tasks)}/{process.slots}  {running}  {state}".rstrip()
        )
