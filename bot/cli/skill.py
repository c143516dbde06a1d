"""`shiftboss skill`: what skills there are, whether one is well written, and which are let in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bot.cli import lines
from bot.cli.parameters import Json, Word
from bot.cli.speak import fail, speak

cli = typer.Typer(no_args_is_help=True, help="Ways of working that an owner has let in.")


@cli.command("list")
def list_skills(as_json: Json = False) -> None:
    """List all skills with their state, and folders that cannot be read."""
    speak("/skill list", as_json=as_json)


@cli.command("show")
def show(name: Word, as_json: Json = False) -> None:
    """Show a skill: source, hash, files, scripts, and its text."""
    speak(lines.line("skill", "show", name), as_json=as_json)


@cli.command("enable")
def enable(
    name: Word,
    digest: Annotated[
        str,
        typer.Argument(metavar="[HASH]", help="As `show` tells it, at least 8 characters of it."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Let in exactly the files with this hash; without it, show them."""
    speak(lines.line("skill", "enable", name, digest), as_json=as_json)


@cli.command("disable")
def disable(name: Word, as_json: Json = False) -> None:
    """Use a skill no more."""
    speak(lines.line("skill", "disable", name), as_json=as_json)


@cli.command("validate")
def validate(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with a SKILL.md.", exists=True)
    ],
    as_json: Json = False,
) -> None:
    """Check a skill's folder; status 1 and all its faults if it cannot be used."""
    # Loaded here and not above, so that `--help` stays quick.
    from bot.engine.skills.shelves import read_one
    from cards.views.workers.skills import told
    from cards.words import words_for
    from storage.records.people import Language
    from storage.records.workers.skills import BadSkill

    if not folder.is_dir():
        fail(f"{folder} is not a folder", as_json=as_json, status=2)
    words = words_for(Language.ENGLISH)
    found = read_one(folder.resolve())
    faults, notes, ignored = (
        (told(found.faults, words), [], [])
        if isinstance(found, BadSkill)
        else ([], told(found.notes, words), list(found.ignored))
    )
    if as_json:
        data = {"name": found.name, "good": not faults, "faults": faults, "notes": notes}
        typer.echo(json.dumps({**data, "ignored": ignored}, ensure_ascii=False, indent=2))
    else:
        without = [f"has no effect here: {', '.join(ignored)}"] if ignored else []
        first = f"{found.name}: {'cannot be used' if faults else 'good'}"
        typer.echo("\n".join((first, *faults, *notes, *without)))
    if faults:
        raise typer.Exit(1)
