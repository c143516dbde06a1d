"""Opens the workflows that commands of the shell name: saved ones and files, with their errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from bot.cli.chat_commands import data_directory
from bot.cli.failures import fail

_SUFFIXES = {".yaml", ".yml", ".json", ".md"}


def is_file_name(source: str) -> bool:
    return "/" in source or Path(source).suffix.lower() in _SUFFIXES


@contextmanager
def report_refusals(*, as_json: bool) -> Iterator[None]:
    """Print all errors of an invalid workflow and exit with status 1."""
    from storage.records.workflows import WorkflowRefusalReason, WorkflowRefused

    try:
        yield
    except WorkflowRefused as error:
        if error.reason is WorkflowRefusalReason.UNKNOWN:
            fail(f"there is no workflow {error.name!r}: `shiftboss workflow list`", as_json=as_json)
        fail_invalid(error.name, error.errors, as_json=as_json)


def fail_invalid(name: str, found: Sequence[Any], *, as_json: bool, file: str = "") -> None:
    """Print all diagnostics and exit with status 1. Editors and CI find the places by `file`."""
    from cards.catalog import catalog_for
    from cards.views.diagnostics import compiler_line, diagnostic_data, in_text_order
    from storage.records.people import Language

    words = catalog_for(Language.ENGLISH)
    if as_json:
        data = [diagnostic_data(each, words) for each in found]
        print_result("", {"name": name, "good": False, "diagnostics": data}, as_json=True)
    else:
        lines = [
            compiler_line(each, words, file=file or each.file or name)
            for each in in_text_order(found)
        ]
        typer.echo("\n".join((*lines, f"{name}: cannot run")))
    raise typer.Exit(1)


def open_workflow(source: str, *, as_json: bool) -> tuple[str, Any]:
    """A workflow's name and content. Exits with status 1 if it is invalid, 2 if the file is
    missing."""
    from bot.engine.workflow.diagnostics import to_diagnostics
    from bot.engine.workflow.field_reader import InvalidGraph
    from bot.engine.workflow.named_workflows import WorkflowLibrary, parse_workflow_text

    if not is_file_name(source):
        with report_refusals(as_json=as_json):
            entry, workflow = WorkflowLibrary(data_directory()).open_workflow(source)
            return entry.name, workflow
    path, text = Path(source), read_text(source, as_json=as_json)
    try:
        return path.stem, parse_workflow_text(text)
    except InvalidGraph as error:
        found = to_diagnostics(error.issues, text, file=path.name)
        fail_invalid(path.name, found, as_json=as_json, file=source)
    raise AssertionError  # it exits


def read_text(source: str, *, as_json: bool) -> str:
    """The text of a file. Exits with status 1 if it can't be read, 2 if it is missing."""
    from bot.engine.workflow.workflow_files import UnreadableWorkflowFile, read_file
    from storage.records.workflows import Diagnostic

    path = Path(source)
    if not path.exists():
        fail(f"{source}: no such file", as_json=as_json, status=2)
    try:
        # Follow links in an explicit path.
        return read_file(path.resolve())
    except UnreadableWorkflowFile as error:
        fault = Diagnostic(code=error.key, file=path.name, facts=error.facts)
        fail_invalid(path.name, (fault,), as_json=as_json, file=source)
    raise AssertionError  # it exits


def open_library() -> Any:
    """The library of the data directory, which knows the personas in it."""
    from bot.engine.workers.personas import PersonaLibrary
    from bot.engine.workflow.diagnostics import KnownWorkers
    from bot.engine.workflow.named_workflows import WorkflowLibrary

    home = data_directory()

    async def list_workers() -> KnownWorkers:
        return KnownWorkers(personas=frozenset(await PersonaLibrary(home).get_all()))

    library = WorkflowLibrary(home, list_workers=list_workers)
    asyncio.run(library.look_for_workers())
    return library


def print_result(text: str, data: Any, *, as_json: bool) -> None:
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2, default=str) if as_json else text)
