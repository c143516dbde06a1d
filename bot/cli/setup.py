"""`shiftboss setup`: writes instruction files for agents and workers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bot.cli.chat_commands import fail, report_start_failures


def setup(
    *,
    inject_agents: Annotated[
        bool, typer.Option("--inject-agents", help="Add the working method to AGENTS.md.")
    ] = False,
    context: Annotated[
        bool,
        typer.Option("--context", help="Write templates for the workers' context files."),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="The file to use instead of AGENTS.md here or in $OPENCLAW_WORKSPACE."
        ),
    ] = None,
    language: Annotated[
        str, typer.Option("--language", help="en or zh; by default the file's language.")
    ] = "",
) -> None:
    """Add working rules to AGENTS.md, or write worker context templates."""
    if not (inject_agents or context):
        fail("say what to set up: --inject-agents, --context", status=2)
    if language not in {"", "en", "zh"}:
        raise typer.BadParameter("must be en or zh", param_hint="--language")
    if context:
        _write_context(language)
    if inject_agents:
        _add_rules(file, language)


def _add_rules(file: Path | None, language: str) -> None:
    # Imported here so that `--help` stays fast.
    from bot.cli.setup_files import AgentsFileFailure, add_agents_rules, find_agents_file

    try:
        typer.echo(add_agents_rules(file or find_agents_file(), language))
    except AgentsFileFailure as error:
        fail(str(error))


def _write_context(language: str) -> None:
    with report_start_failures(as_json=False):
        from bot.cli.setup_files import ContextFilesFailure, write_context_templates
        from bot.config.settings import load_settings

        settings = load_settings()
        own = "en" if settings.language == "auto" else settings.language
        try:
            folder, made = write_context_templates(settings.home, language or own)
        except ContextFilesFailure as error:
            fail(str(error))
    typer.echo(f"{folder}: {', '.join(made) or 'all there already'}")
