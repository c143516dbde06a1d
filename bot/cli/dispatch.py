"""`shiftboss dispatch`: work the queue without a chat."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

from bot.cli.failures import told
from bot.cli.parameters import Json
from bot.cli.speak import fail


def dispatch(
    *,
    once: Annotated[
        bool, typer.Option("--once", help="One task, to its end or to where it waits.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the next task would be told; do nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Work the queue here: no channels, no web chat. Cards wait for the next `shiftboss run`."""
    with told(as_json=as_json):
        # Loaded here and not above, so that `--help` stays quick.
        from bot.app.terminal import dispatch as work
        from bot.config.settings import load_settings
        from storage.errors import HomeBusy

        settings = load_settings()
        try:
            if dry_run:
                _print_preview(asyncio.run(work.look(settings)), as_json=as_json)
            elif once:
                _print_view(asyncio.run(work.work_once(settings)), as_json=as_json)
            else:
                asyncio.run(work.work(settings, typer.echo))
        except HomeBusy as error:
            why = f"another Shiftboss (process {error.pid}) works on {settings.home}"
            if not once:
                fail(f"{why}: it has the queue", as_json=as_json, status=2)
            # As a heartbeat wants it: somebody is at work, and nothing is wrong.
            _print(f"{why}: nothing to do here", {"ran": None, "busy": True}, as_json=as_json)


def _print_view(view: Any, *, as_json: bool) -> None:
    if view is None:
        _print("Nothing waits that can start.", {"ran": None, "busy": False}, as_json=as_json)
        return
    from cards.plain import view_data

    task = view.task
    said = task.summary if task.status == "completed" else task.status_reason
    lines = [f"{task.id}  {task.status}  {task.title}", *filter(None, [said])]
    _print("\n".join(lines), {"ran": view_data(view), "busy": False}, as_json=as_json)


def _print_preview(found: Any, *, as_json: bool) -> None:
    if found is None:
        _print("Nothing waits that can start.", {"task": None}, as_json=as_json)
        return
    from cards.plain import task_data

    risk = f"({found.word})" if found.word else ""
    named = (found.task.id, found.kind, found.step, risk, found.task.title)
    head = "  ".join(filter(None, named))
    parts = [head, *filter(None, (found.system, found.prompt))]
    # The claim is taken back: the task is shown as it waits.
    data = {
        "task": {**task_data(found.task), "status": "pending"},
        "kind": found.kind,
        "step": found.step,
        "risk": found.word,
        "system": found.system,
        "prompt": found.prompt,
    }
    _print("\n\n".join(parts), data, as_json=as_json)


def _print(text: str, data: Any, *, as_json: bool) -> None:
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2) if as_json else text)
