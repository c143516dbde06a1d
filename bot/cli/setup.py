"""`shiftboss setup`: writes instruction files for agents and workers."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.failures import fail, report_start_failures
from cards.catalog import catalog_for
from storage.data_directory import write_private_file
from storage.records.people import Language

_MENTION = re.compile(r"\bshiftboss\s+task\b")
_WORKSPACE_VARIABLE = "OPENCLAW_WORKSPACE"
_NEW_MODE = 0o644


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
        fail("choose --inject-agents or --context", status=2)
    if language not in {"", "en", "zh"}:
        raise typer.BadParameter("must be en or zh", param_hint="--language")
    if context:
        _write_context(language)
    if inject_agents:
        _add_rules(file, language)


def _add_rules(file: Path | None, language: str) -> None:
    try:
        typer.echo(add_agents_rules(file or find_agents_file(), language))
    except AgentsFileFailure as error:
        fail(str(error))


def _write_context(language: str) -> None:
    with report_start_failures(as_json=False):
        # Imported here so that `--help` stays fast.
        from bot.config.settings import load_settings

        settings = load_settings()
        own = "en" if settings.language == "auto" else settings.language
        try:
            folder, made = write_context_templates(settings.home, language or own)
        except ContextFilesFailure as error:
            fail(str(error))
    typer.echo(f"{folder}: {', '.join(made) or 'all files exist already'}")


class AgentsFileFailure(Exception):
    """The file was not changed. The text says why and what to do."""


def find_agents_file() -> Path:
    """The AGENTS.md of the configured workspace, or of the working directory."""
    workspace = os.environ.get(_WORKSPACE_VARIABLE, "").strip()
    return (Path(workspace).expanduser() if workspace else Path.cwd()) / "AGENTS.md"


def add_agents_rules(path: Path, language: str = "") -> str:
    """Append the rules unless the file mentions `shiftboss task`; returns a one-line result. The
    file is replaced atomically. An empty `language` means that of the file."""
    from handlers.language import guess_language

    path = path.expanduser()
    try:
        before = _read_text(path)
        chosen = Language(language) if language else guess_language(before) or Language.ENGLISH
        words = catalog_for(chosen)
        if _MENTION.search(before):
            return words("agents.there", path=path)
        # Resolve links, so that the target is replaced.
        _replace_file(path.resolve(), _append_rules(before, words("agents.rules")))
    except UnicodeDecodeError as error:
        raise AgentsFileFailure(f"{path} is not UTF-8 text and was left as it is") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise AgentsFileFailure(f"{path} cannot be written ({why})") from error
    return words("agents.added" if before else "agents.made", path=path)


def _read_text(path: Path) -> str:
    try:
        # As bytes, to preserve line endings.
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""


def _append_rules(text: str, rules: str) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    added = rules.strip().replace("\n", end) + end
    if not text.strip():
        return added
    gap = end if text.endswith("\n") else end * 2
    return text + gap + added


def _replace_file(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else _NEW_MODE
    write_private_file(path, text.encode(), mode=mode)


class ContextFilesFailure(Exception):
    """A file could not be written. The text says why."""


def write_context_templates(home: Path, language: str) -> tuple[Path, list[str]]:
    """Write missing templates; returns the folder and the new files. Existing files stay unchanged.
    Raises ContextFilesFailure."""
    from bot.engine.agent.worker_briefing import BOSS_FOLDER

    folder = home / BOSS_FOLDER
    source = files("bot.engine.agent").joinpath("templates", language)
    made = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in sorted(source.iterdir(), key=str):
            try:
                with (folder / each.name).open("x", encoding="utf-8") as file:
                    file.write(each.read_text(encoding="utf-8"))
            except FileExistsError:
                continue
            made.append(each.name)
    except OSError as error:
        why = error.strerror or str(error)
        raise ContextFilesFailure(f"{folder} cannot be written ({why})") from error
    return folder, made
