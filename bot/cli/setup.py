"""`shiftboss setup`: the files by which workers, ours and others, are told how to work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.failures import told
from bot.cli.speak import fail


def setup(
    *,
    inject_agents: Annotated[
        bool, typer.Option("--inject-agents", help="Add the working method to AGENTS.md.")
    ] = False,
    context: Annotated[
        bool,
        typer.Option("--context", help="Write templates of what our own workers are told first."),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Instead of AGENTS.md here or in $OPENCLAW_WORKSPACE."),
    ] = None,
    language: Annotated[
        str, typer.Option("--language", help="en or zh; else the file's own language.")
    ] = "",
) -> None:
    """Add the rules of the working method to an AGENTS.md, or write templates for our own workers.
    Doing it again changes nothing."""
    if not (inject_agents or context):
        fail("say what to set up: --inject-agents, --context", status=2)
    if language not in {"", "en", "zh"}:
        raise typer.BadParameter("must be en or zh", param_hint="--language")
    if context:
        _context(language)
    if inject_agents:
        _inject(file, language)


def _inject(file: Path | None, language: str) -> None:
    # Loaded here and not above, so that `--help` stays quick.
    from bot.app.terminal.agents_file import AgentsFileFailure, agents_file, inject

    try:
        typer.echo(inject(file or agents_file(), language))
    except AgentsFileFailure as error:
        fail(str(error))


def _context(language: str) -> None:
    with told(as_json=False):
        from bot.app.terminal.context_files import ContextFilesFailure, write_templates
        from bot.config.settings import load_settings

        settings = load_settings()
        own = "en" if settings.language == "auto" else settings.language
        try:
            folder, made = write_templates(settings.home, language or own)
        except ContextFilesFailure as error:
            fail(str(error))
    typer.echo(f"{folder}: {', '.join(made) or 'all there already'}")
