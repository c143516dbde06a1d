"""`shiftboss workflow`: named workflows and files of them, checked, shown, run and tried out."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.failures import told
from bot.cli.parameters import Json, Said
from bot.cli.speak import fail
from bot.cli.workflows.sources import found, home

cli = typer.Typer(no_args_is_help=True, help="Work that can be run again and again.")

_FAILED, _WAITS = 1, 3
_MOST_SCOPE = 10_000_000

Source = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="A name in the home, or a file anywhere.")
]


@cli.command("list")
def list_all(as_json: Json = False) -> None:
    """List all named workflows, and files that cannot be run with all their faults."""
    with told(as_json=as_json):
        # Loaded here and not above, so that `--help` stays quick.
        from bot.engine.workflow.library.library import Library
        from cards.views.workflows.data import shelf_data
        from cards.words import words_for
        from storage.records.people import Language

        shelf = Library(home()).look()
    data = shelf_data(shelf, words_for(Language.ENGLISH))
    lines = [f"{each['name']}  {_asks(each)}".rstrip() for each in data["workflows"]]
    for each in data["broken"]:
        lines.append(f"{each['file']}: cannot be run")
        lines += [f"  {fault['text']}" for fault in each["faults"]]
    _print("\n".join(lines) or f"There is none yet in {shelf.folder}.", data, as_json=as_json)


@cli.command("validate")
def validate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON, YAML or Markdown.")],
    as_json: Json = False,
) -> None:
    """Check a file, or a named workflow; status 1 and all its faults if it cannot be run."""
    with told(as_json=as_json):
        from bot.engine.workflow.library.telling import told as as_told
        from cards.views.workflows.data import workflow_data

        name, workflow = found(file, as_json=as_json)
        data = workflow_data(as_told(name, file, workflow))
    count = len(data["nodes"])
    text = f"{name}: good, {count} {'node' if count == 1 else 'nodes'}"
    _print(text, {**data, "good": True, "faults": []}, as_json=as_json)


@cli.command("show")
def show(source: Source, as_json: Json = False) -> None:
    """Draw it as Mermaid text."""
    with told(as_json=as_json):
        from bot.engine.workflow.library.telling import told as as_told
        from bot.engine.workflow.shown.drawing import mermaid
        from cards.views.workflows.data import workflow_data

        name, workflow = found(source, as_json=as_json)
        drawing = mermaid(workflow)
        data = {**workflow_data(as_told(name, source, workflow)), "mermaid": drawing}
    _print(drawing.rstrip("\n"), data, as_json=as_json)


@cli.command("run")
def run(
    source: Source,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=VALUE", help="For each of its inputs."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run it to its end in this process, and print its nodes' states, outputs and spans.

    Delays, schedules and the times of human nodes are waited out. Status 1 if it failed; 3 if
    only somebody's decision lets it go on: once they have decided, `shiftboss run` or `shiftboss
    dispatch` does. Where another Shiftboss has the home, 2.
    """
    with told(as_json=as_json):
        from bot.app.terminal.workflow import run as carry_out
        from bot.cli.workflows.printing import ran_data, ran_lines
        from bot.config.settings import load_settings
        from bot.engine.workflow.library.template import ready
        from storage.errors import HomeBusy

        settings = load_settings()
        name, workflow = found(source, as_json=as_json)
        values = _values(workflow, inputs or [], as_json=as_json)
        try:
            ran = asyncio.run(carry_out(settings, ready(name, workflow, values), _remark))
        except HomeBusy as error:
            why = f"another Shiftboss (process {error.pid}) works on {settings.home}"
            fail(f"{why}: `shiftboss say '/workflow run NAME'`", as_json=as_json, status=2)
    _print("\n".join(ran_lines(ran)), ran_data(ran), as_json=as_json)
    if not ran.view.task.status.is_final:
        raise typer.Exit(_WAITS)
    if ran.view.task.status != "completed":
        raise typer.Exit(_FAILED)


@cli.command("eval")
def evaluate(
    expression: Said,
    scope: Annotated[
        str,
        typer.Option(
            "--scope", metavar="JSON", help="Names and their values; @FILE, or - for stdin."
        ),
    ] = "{}",
    as_json: Json = False,
) -> None:
    """Work out an expression; its value and type."""
    from bot.engine.workflow.expressions.language import ExpressionError
    from bot.engine.workflow.expressions.language import evaluate as work_out

    names = _scope(scope, as_json=as_json)
    try:
        value = work_out(expression, names)
    except ExpressionError as error:
        fail(" ".join(str(error).split()), as_json=as_json)
    kind = _kind(value)
    shown = json.dumps(value, ensure_ascii=False, default=str)
    _print(f"{shown}\n{kind}", {"value": value, "type": kind}, as_json=as_json)


def _values(workflow: Any, inputs: list[str], *, as_json: bool) -> dict[str, Any]:
    """Ends with status 2 and all that is wrong with them."""
    from bot.engine.workflow.library.telling import told as as_told
    from cards.views.workflows.shelf import input_line
    from cards.words import words_for
    from handlers.workflows.values import given
    from storage.records.people import Language

    words = words_for(Language.ENGLISH)
    texts: dict[str, str] = {}
    for each in inputs:
        name, mark, value = each.partition("=")
        if not mark:
            fail(f"--input {each}: write NAME=VALUE", as_json=as_json, status=2)
        texts[name.strip()] = value
    wanted = as_told("", "", workflow).inputs
    seen = given(wanted, texts)
    problems = [f"--input {each}: it has no such input" for each in seen.unknown]
    problems += [
        f"--input {each.input.name}={each.text[:60]}: must be {_fitting(each.input, words)}"
        for each in seen.wrong
    ]
    problems += [
        f"--input {each.name}=…: wanted, {input_line(each, words)}" for each in seen.missing
    ]
    if problems:
        fail("; ".join(problems), as_json=as_json, status=2)
    return dict(seen.values)


def _fitting(each: Any, words: Any) -> str:
    from cards.views.workflows.shelf import fits

    return f"one of {fits(each, words)}" if each.kind == "choice" else fits(each, words)


def _scope(scope: str, *, as_json: bool) -> dict[str, Any]:
    try:
        if scope == "-":
            scope = sys.stdin.read(_MOST_SCOPE)
        elif scope.startswith("@"):
            with Path(scope[1:]).open(encoding="utf-8") as file:
                scope = file.read(_MOST_SCOPE)
        names = json.loads(scope)
    except (OSError, ValueError, RecursionError) as error:
        fail(f"--scope: {error}", as_json=as_json, status=2)
    if not isinstance(names, dict):
        fail('--scope: must be an object, such as {"n": 1}', as_json=as_json, status=2)
    return names


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list() | tuple():
            return "list"
        case _:
            return "object"


def _asks(workflow: dict[str, Any]) -> str:
    wanted = [each["name"] for each in workflow["inputs"] if each["required"]]
    title = workflow["title"] if workflow["title"] != workflow["name"] else ""
    asks = f"(asks for {', '.join(wanted)})" if wanted else ""
    return "  ".join(filter(None, (title, asks)))


def _remark(text: str) -> None:
    typer.echo(f"shiftboss: {text}", err=True)


def _print(text: str, data: Any, *, as_json: bool) -> None:
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2, default=str) if as_json else text)
