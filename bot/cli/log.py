"""`shiftboss log`: what is found out, decided and done, written down at once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bot.cli import lines
from bot.cli.parameters import Json, MaybeSaid, Said, TaskId, TextCommand
from bot.cli.speak import fail, speak

cli = typer.Typer(no_args_is_help=True, help="What is found out, decided and done.")


@cli.command("add", cls=TextCommand)
def add(
    task: TaskId,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="TYPE", help="plan, finding, decision, error, resource, milestone or progress."
        ),
    ],
    text: MaybeSaid = "",
    *,
    stage: Annotated[str, typer.Option("--phase", help="The phase it belongs to.")] = "",
    attempt: Annotated[int | None, typer.Option("--attempt", min=0, help="Which try it was.")] = (
        None
    ),
    file: Annotated[str, typer.Option("--file", help="A file to keep with it.")] = "",
    as_json: Json = False,
) -> None:
    """Write something down. Longer than 500 characters is cut and kept whole as a file."""
    if not text.strip() and not file:
        fail("there is nothing to write down: give TEXT, or --file", as_json=as_json, status=2)
    if len(kind.split()) != 1:
        fail("TYPE must be one word", as_json=as_json, status=2)
    said = lines.log(task, kind, text, stage=stage, attempt=attempt, file=file)
    speak(said, as_json=as_json)


@cli.command("ls")
def ls(
    task: TaskId,
    kind: Annotated[str, typer.Option("--type", help="Only logs of this type.")] = "",
    last: Annotated[int, typer.Option("--last", min=1, max=200, help="How many.")] = 20,
    as_json: Json = False,
) -> None:
    """List a task's logs."""
    speak(lines.line("log", task, kind, lines.flag("--last", last)), as_json=as_json)


@cli.command("search", cls=TextCommand)
def search(
    words: Said,
    last: Annotated[int, typer.Option("--last", min=1, max=15, help="How many.")] = 15,
    as_json: Json = False,
) -> None:
    """Find logs of all tasks that say all these words, newest first."""

    def show(data: Any) -> tuple[str, Any]:
        found = data["logs"][:last]
        rows = [f"{each['task']}  {each['kind']}  {each['text']}" for each in found]
        return "\n".join(rows) or "—", {"logs": found}

    speak(lines.line("log", "search", words), as_json=as_json, show=show)
