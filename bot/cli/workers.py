"""`shiftboss backend`, `session` and `skill`: backends, model sessions and skills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.chat_commands import (
    JsonOption,
    WordArgument,
    add_chat_command,
    command_line,
    execute,
    optional,
    required,
)
from bot.cli.failures import fail

backend_cli = typer.Typer(no_args_is_help=True, help="List and check backends.")
session_cli = typer.Typer(no_args_is_help=True, help="List and read model sessions.")
skill_cli = typer.Typer(no_args_is_help=True, help="Manage skills.")

_BACKEND = Annotated[
    str, typer.Argument(metavar="[NAME]", help="A backend to test; a coding CLI is started.")
]
_HASH = Annotated[
    str,
    typer.Argument(
        metavar="[HASH]", help="The hash that `show` prints, at least its first 8 characters."
    ),
]
_NAME = required("name", WordArgument)

add_chat_command(
    backend_cli, "list", "backend list", help="List backends and what they need to be ready."
)
add_chat_command(
    backend_cli,
    "check",
    "backend check",
    optional("name", _BACKEND),
    help="Check all backends, or start one; status 1 if not ready.",
)
add_chat_command(session_cli, "list", "transcript", help="List model sessions, last used first.")
add_chat_command(
    skill_cli, "list", "skill list", help="List skills with their state, and unreadable folders."
)
add_chat_command(
    skill_cli,
    "show",
    "skill show",
    _NAME,
    help="Show a skill: source, hash, files, scripts and text.",
)
add_chat_command(
    skill_cli,
    "enable",
    "skill enable",
    _NAME,
    optional("digest", _HASH),
    help="Enable a skill with this hash; without it, show the files.",
)
add_chat_command(skill_cli, "disable", "skill disable", _NAME, help="Disable a skill.")


@session_cli.command("export")
def export_session(
    session: WordArgument,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write it to this path instead of printing it.")
    ] = None,
) -> None:
    """Print a session as JSON lines, secrets masked."""

    def show(data: Any) -> tuple[str, Any]:
        try:
            text = Path(data["file"]).read_text(encoding="utf-8")
            if out is None:
                return text.removesuffix("\n"), data
            out.expanduser().write_text(text, encoding="utf-8")
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}")
        return f"{data['lines']} lines in {out}", data

    execute(command_line("transcript", session), present=show)


@skill_cli.command("validate")
def validate(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder that contains a SKILL.md.", exists=True)
    ],
    as_json: JsonOption = False,
) -> None:
    """Validate a skill's folder; status 1 and all errors if invalid."""
    # Imported here so that `--help` stays fast.
    from bot.engine.skills.skill_paths import load_skill
    from cards.catalog import catalog_for
    from cards.views.skills import skill_note_lines
    from storage.records.people import Language
    from storage.records.skills import InvalidSkill

    if not folder.is_dir():
        fail(f"{folder} is not a folder", as_json=as_json, status=2)
    words = catalog_for(Language.ENGLISH)
    found = load_skill(folder.resolve())
    faults, notes, ignored = (
        (skill_note_lines(found.errors, words), [], [])
        if isinstance(found, InvalidSkill)
        else ([], skill_note_lines(found.notes, words), list(found.ignored))
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
