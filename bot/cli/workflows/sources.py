"""A workflow by its name in the home, or from a file anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from bot.cli.speak import fail

_SUFFIXES = {".yaml", ".yml", ".json", ".md"}


def is_file(wanted: str) -> bool:
    return "/" in wanted or Path(wanted).suffix.lower() in _SUFFIXES


@contextmanager
def refusals(*, as_json: bool) -> Iterator[None]:
    """What cannot be run is told with all its faults, and status 1."""
    from storage.records.workers.workflows import WhyNoWorkflow, WorkflowRefused

    try:
        yield
    except WorkflowRefused as error:
        if error.reason is WhyNoWorkflow.UNKNOWN:
            fail(f"there is no workflow {error.name!r}: `shiftboss workflow list`", as_json=as_json)
        broken(error.name, error.faults, as_json=as_json)


def broken(name: str, faults: Sequence[Any], *, as_json: bool) -> None:
    """Print all of them and end with status 1."""
    from cards.views.workflows.data import fault_data
    from cards.views.workflows.faults import fault_line
    from cards.words import words_for
    from storage.records.people import Language

    words = words_for(Language.ENGLISH)
    if as_json:
        told = [fault_data(each, words) for each in faults]
        data = {"name": name, "good": False, "faults": told}
        typer.echo(json.dumps(data, ensure_ascii=False, indent=2))
    else:
        lines = [fault_line(each, words) for each in faults]
        typer.echo("\n".join((f"{name}: cannot be run", *lines)))
    raise typer.Exit(1)


def found(wanted: str, *, as_json: bool) -> tuple[str, Any]:
    """Its name, and the workflow. Ends with status 1 where it cannot be run, 2 where there is no
    such file."""
    from bot.engine.workflow.library.folder import NotReadable, read
    from bot.engine.workflow.library.library import Library, workflow_in
    from bot.engine.workflow.library.telling import faults_told
    from bot.engine.workflow.model.faults import BadGraph
    from storage.records.workers.workflows import WorkflowFault

    if not is_file(wanted):
        with refusals(as_json=as_json):
            entry, workflow = Library(home()).open(wanted)
            return entry.name, workflow
    path = Path(wanted)
    if not path.exists():
        fail(f"{wanted}: there is no such file", as_json=as_json, status=2)
    try:
        # Whoever names a file means what it leads to.
        return path.stem, workflow_in(read(path.resolve()))
    except NotReadable as error:
        fault = WorkflowFault(key=error.key, facts=error.facts)
        broken(path.name, (fault,), as_json=as_json)
    except BadGraph as error:
        broken(path.name, faults_told(error.faults), as_json=as_json)
    raise AssertionError  # both have ended it


def home() -> Path:
    from bot.config.settings import load_settings

    return load_settings().home
