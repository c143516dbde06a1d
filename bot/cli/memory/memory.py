"""`shiftboss memory`: what is remembered, seen and changed from a shell."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli import lines
from bot.cli.memory import bulk, files
from bot.cli.memory.scopes import Scope, named
from bot.cli.parameters import Json, TextCommand, Word
from bot.cli.speak import speak

cli = typer.Typer(no_args_is_help=True, help="What is remembered.")
cli.command("import")(bulk.import_rows)
cli.command("search")(bulk.search)

Text = Annotated[list[str], typer.Argument(metavar="TEXT")]


@cli.command("list")
def list_entries(
    kind: Annotated[str, typer.Argument(help="handbook, profile, longterm, facts, cells, …")] = "",
    scope: Scope = "",
    page: Annotated[int, typer.Option("--page", min=1)] = 1,
    as_json: Json = False,
) -> None:
    """List what is remembered, the newest first."""
    options = (lines.flag("--scope", named(scope)), lines.flag("--page", page))
    speak(lines.line("memory", "list", *options, kind), as_json=as_json)


@cli.command("add", cls=TextCommand)
def add(text: Text, scope: Scope = "", as_json: Json = False) -> None:
    """Remember something for good."""
    told = " ".join(text)
    speak(
        lines.line("memory", "add", lines.flag("--scope", named(scope)), "--", told),
        as_json=as_json,
    )


@cli.command("show")
def show(entry_id: Word, as_json: Json = False) -> None:
    """Show one memory with all that is known about it."""
    speak(lines.line("memory", "show", entry_id), as_json=as_json)


@cli.command("edit", cls=TextCommand)
def edit(entry_id: Word, text: Text, as_json: Json = False) -> None:
    """Change what a memory says."""
    speak(lines.line("memory", "edit", entry_id, " ".join(text)), as_json=as_json)


@cli.command("forget")
def forget(entry_id: Word, as_json: Json = False) -> None:
    """Forget it: it goes from memory, and stays in conversations, exports and backups."""
    speak(lines.line("memory", "forget", entry_id), as_json=as_json)


@cli.command("pin")
def pin(
    entry_id: Word,
    off: Annotated[bool, typer.Option("--off", help="Pin it no more.")] = False,
    as_json: Json = False,
) -> None:
    """Keep it whatever happens."""
    speak(lines.line("memory", "unpin" if off else "pin", entry_id), as_json=as_json)


@cli.command("move")
def move(entry_id: Word, scope: Word, as_json: Json = False) -> None:
    """Make it for others than it was."""
    speak(lines.line("memory", "move", entry_id, named(scope)), as_json=as_json)


@cli.command("stats")
def stats(as_json: Json = False) -> None:
    """Memory in figures."""
    speak("/memory stats", as_json=as_json)


@cli.command("clean")
def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Json = False,
) -> None:
    """Take out noise, doubles and what has faded, after a backup of everything."""
    speak("/memory clean" if dry_run else "/memory clean yes", as_json=as_json)


@cli.command("export")
def export(
    file: Annotated[
        str,
        typer.Argument(
            metavar="[FILE]", help="- for standard output; without one it is below the data folder."
        ),
    ] = "",
    as_json: Json = False,
) -> None:
    """Write everything out as JSON lines."""
    speak("/memory export", as_json=as_json, show=lambda data: files.taken_out(data, file))


@cli.command("restore")
def restore(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A backup or an export.")],
    as_json: Json = False,
) -> None:
    """Put back what a backup holds and what is not there; what was forgotten stays forgotten."""
    with files.brought_in(file, as_json=as_json) as name:
        speak(lines.line("memory", "restore", name), as_json=as_json)


@cli.command("candidates")
def candidates(as_json: Json = False) -> None:
    """List memories that wait for a word of yours."""
    speak("/candidates", as_json=as_json)


@cli.command("keep")
def keep(entry_id: Word, as_json: Json = False) -> None:
    """Keep a candidate for good."""
    speak(lines.line("candidates", "keep", entry_id), as_json=as_json)


@cli.command("drop")
def drop(entry_id: Word, as_json: Json = False) -> None:
    """Drop a candidate; it is not proposed again."""
    speak(lines.line("candidates", "drop", entry_id), as_json=as_json)
