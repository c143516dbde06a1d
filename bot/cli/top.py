"""Short commands: what to do now, how things stand, what they cost, what waits for a decision."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import lines
from bot.cli.parameters import Json, MaybeSaid, TextCommand, Word
from bot.cli.speak import speak
from bot.cli.task import next_task
from bot.cli.task import resume as resume_task
from bot.cli.traces.trace import trace

MaybeApproval = Annotated[
    str, typer.Argument(metavar="[ID]", help="The request; may be left out where one waits.")
]


def status(as_json: Json = False) -> None:
    """Show how the program, its channels and its tasks are doing."""
    speak("/status", as_json=as_json, needs_worker=True)


def cost(
    what: Annotated[
        str, typer.Argument(metavar="[PERIOD|ID|MODEL]", help="today, week, month, all, 7d, a task")
    ] = "",
    model: Annotated[str, typer.Argument(metavar="[MODEL]")] = "",
    as_json: Json = False,
) -> None:
    """Show what was spent, by period, model or task, and what the caps still allow."""
    speak(lines.line("cost", what, model), as_json=as_json)


def persona(
    words: Annotated[list[str] | None, typer.Argument(metavar="[NAME|show NAME|auto]")] = None,
    as_json: Json = False,
) -> None:
    """Show who there is to do the work, or choose who does it."""
    speak(lines.line("persona", *(words or ())), as_json=as_json)


def approvals(as_json: Json = False) -> None:
    """List what waits for your decision."""
    speak("/approvals", as_json=as_json)


def approve(request: MaybeApproval = "", as_json: Json = False) -> None:
    """Approve what waits, or the request named."""
    speak(lines.line("approve", request), as_json=as_json)


def reject(request: Word, reason: MaybeSaid = "", as_json: Json = False) -> None:
    """Reject a request, with a reason if you like."""
    speak(lines.line("reject", request, reason), as_json=as_json)


def add_to(cli: typer.Typer) -> None:
    cli.command("next")(next_task)
    cli.command("resume", cls=TextCommand)(resume_task)
    cli.command("status")(status)
    cli.command("cost")(cost)
    cli.command("trace")(trace)
    cli.command("persona")(persona)
    cli.command("approvals")(approvals)
    cli.command("approve")(approve)
    cli.command("reject", cls=TextCommand)(reject)
