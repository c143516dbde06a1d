"""`shiftboss session`: what was said to models, and by them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli import lines
from bot.cli.parameters import Json, Word
from bot.cli.speak import fail, speak

cli = typer.Typer(no_args_is_help=True, help="Read what was said to models, and by them.")


@cli.command("list")
def list_sessions(as_json: Json = False) -> None:
    """List sessions, those used last first."""
    speak("/transcript", as_json=as_json)


@cli.command("export")
def export(
    session: Word,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write it there instead of printing it.")
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

    speak(lines.line("transcript", session), show=show)
