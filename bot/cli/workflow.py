"""`shiftboss workflow`: lists, validates, draws, runs and evaluates workflows."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli.chat_commands import (
    JsonOption,
    NameArgument,
    TextArgument,
    add_chat_command,
    command_line,
    data_directory,
    execute,
    format_flag,
    optional,
    required,
)
from bot.cli.failures import fail, report_start_failures
from bot.cli.workflow_sources import (
    is_file_name,
    open_library,
    open_workflow,
    print_result,
    read_text,
    report_refusals,
)

cli = typer.Typer(no_args_is_help=True, help="List, validate and run named workflows.")

_VERSION = Annotated[str, typer.Argument(help="The number of a version.")]
_EXIT_FAILED, _EXIT_WAITING = 1, 3
_MAX_SCOPE_LENGTH = 10_000_000

SourceArgument = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="The name of a saved workflow, or a file.")
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="A value for one of its inputs; repeat for more.",
    ),
]


@cli.command("list")
def list_workflows(as_json: JsonOption = False) -> None:
    """List workflows, and invalid files with their errors."""
    with report_start_failures(as_json=as_json):
        # Imported here so that `--help` stays fast.
        from cards.catalog import catalog_for
        from cards.views.diagnostics import compiler_line
        from cards.views.workflows import workflows_data
        from storage.records.people import Language

        catalog = open_library().scan()
    words = catalog_for(Language.ENGLISH)
    data = workflows_data(catalog, words)
    lines = [f"{each['name']}  {_describe_inputs(each)}".rstrip() for each in data["workflows"]]
    for each in catalog.invalid:
        lines.append(f"{each.file}: cannot run")
        lines += [f"  {compiler_line(one, words, file=each.file)}" for one in each.errors]
    lines += [compiler_line(each, words, file=each.file) for each in catalog.foreign]
    text = "\n".join(lines) or f"There are no workflows in {catalog.folder} yet."
    print_result(text, data, as_json=as_json)


@cli.command("validate")
def validate(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="NAME|FILE...", help="Saved workflows, or files of them."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Print the errors and warnings of workflows with line and column; status 1 with errors."""
    from cards.catalog import catalog_for
    from cards.views.diagnostics import compiler_line, in_text_order
    from cards.views.workflows import checked_workflow_data, invalid_workflow_data
    from storage.records.people import Language
    from storage.records.workflows import NamedWorkflow

    words = catalog_for(Language.ENGLISH)
    with report_start_failures(as_json=as_json):
        library = open_library()
        judged = [_judge(library, each, as_json=as_json) for each in sources]
    lines: list[str] = []
    for source, one in zip(sources, judged, strict=True):
        found = one.warnings if isinstance(one, NamedWorkflow) else one.errors
        name = source if is_file_name(source) else one.file or source
        lines += [compiler_line(each, words, file=name) for each in in_text_order(found)]
        if isinstance(one, NamedWorkflow):
            count = len(one.steps)
            lines.append(f"{one.name}: good, {count} {'node' if count == 1 else 'nodes'}")
        else:
            lines.append(f"{one.file or one.name}: cannot run")
    data = [
        checked_workflow_data(one, words)
        if isinstance(one, NamedWorkflow)
        else invalid_workflow_data(one, words)
        for one in judged
    ]
    print_result("\n".join(lines), data[0] if len(data) == 1 else data, as_json=as_json)
    if not all(isinstance(one, NamedWorkflow) for one in judged):
        raise typer.Exit(_EXIT_FAILED)


def _judge(library: Any, source: str, *, as_json: bool) -> Any:
    """A NamedWorkflow, or an InvalidWorkflowFile."""
    from storage.records.workflows import InvalidWorkflowFile, WorkflowRefused

    if is_file_name(source):
        name, file = Path(source).stem, Path(source).name
        text = read_text(source, as_json=as_json)
    else:
        with report_refusals(as_json=as_json):
            try:
                found = asyncio.run(library.read_source(source))
            except WorkflowRefused as error:
                if not error.errors:
                    raise
                return InvalidWorkflowFile(name=source, file=error.name, errors=error.errors)
        name, file, text = source, found.file, found.text
    return asyncio.run(library.validate_file(name, text, file=file))


@cli.command("show")
def show(source: SourceArgument, as_json: JsonOption = False) -> None:
    """Draw a workflow as Mermaid text."""
    with report_start_failures(as_json=as_json):
        from bot.engine.workflow.named_workflows import describe_workflow
        from bot.engine.workflow.presentation.drawing import render_mermaid
        from cards.catalog import catalog_for
        from cards.views.workflows import workflow_data
        from storage.records.people import Language

        name, workflow = open_workflow(source, as_json=as_json)
        drawing = render_mermaid(workflow, catalog_for(Language.ENGLISH))
        data = {**workflow_data(describe_workflow(name, source, workflow)), "mermaid": drawing}
    print_result(drawing.rstrip("\n"), data, as_json=as_json)


@cli.command("run")
def run(
    source: SourceArgument,
    inputs: InputsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a workflow to its end and print nodes, outputs and spans.

    Waits for delays, schedules and timeouts. Status 1 if it failed, 2 if another Shiftboss uses the
    data directory, 3 if it needs a decision; `shiftboss run` or `shiftboss dispatch` then continues
    it.
    """
    with report_start_failures(as_json=as_json):
        from bot.cli.workflow_run import result_data, result_lines, run_workflow
        from bot.config.settings import load_settings
        from bot.engine.workflow.named_workflows import prepare_run
        from storage.errors import DataDirectoryInUse

        settings = load_settings()
        name, workflow = open_workflow(source, as_json=as_json)
        values = _parse_inputs(workflow, inputs or [], as_json=as_json)
        workflow = _with_subworkflows(name, workflow, as_json=as_json)
        try:
            prepared = prepare_run(name, workflow, values)
            ran = asyncio.run(run_workflow(settings, prepared, _print_note))
        except DataDirectoryInUse as error:
            why = f"another Shiftboss (process {error.pid}) uses {settings.home}"
            fail(f"{why}: `shiftboss say '/workflow run NAME'`", as_json=as_json, status=2)
    print_result("\n".join(result_lines(ran)), result_data(ran), as_json=as_json)
    if not ran.view.task.status.is_final:
        raise typer.Exit(_EXIT_WAITING)
    if ran.view.task.status != "completed":
        raise typer.Exit(_EXIT_FAILED)


@cli.command("save")
def save(
    name: NameArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite a workflow of this name.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", help="What changes and why, for the list of versions.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Save a file as a workflow, as a new version."""
    text = read_text(str(file), as_json=as_json)
    flags = ("--replace" if replace else "", format_flag("--reason", reason))
    execute(command_line("workflow save", *flags, name, text), as_json=as_json)


@cli.command("export")
def export(
    name: NameArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; without, print it.")
    ] = None,
    with_dependencies: Annotated[
        bool, typer.Option("--with-dependencies", help="With the workflows that it runs.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a workflow with its test cases as one file."""

    def present(data: Any) -> tuple[str, Any]:
        if output is None:
            return data["text"].rstrip("\n"), data
        try:
            output.write_text(data["text"], encoding="utf-8")
        except OSError as error:
            fail(f"{output}: {error.strerror}", as_json=as_json, status=2)
        return f"{data['name']} is in {output}", {"name": data["name"], "file": str(output)}

    flag = "--with-dependencies" if with_dependencies else ""
    execute(command_line("workflow export", flag, name), as_json=as_json, present=present)


@cli.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Import without asking.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace workflows that have other texts.")
    ] = False,
    as_name: Annotated[str, typer.Option("--as", help="Another name for the workflow.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Show what a file would make or change, then import it."""
    text = read_text(str(file), as_json=as_json)
    named = format_flag("--as", as_name)
    if not yes:
        execute(command_line("workflow import", named, text), as_json=as_json)
        if as_json or not sys.stdin.isatty() or not typer.confirm("Import this?"):
            return
    flags = ("--yes", "--replace" if replace else "", named)
    execute(command_line("workflow import", *flags, text), as_json=as_json)


@cli.command("gallery")
def gallery(
    order: Annotated[str, typer.Argument(metavar="[show|install]", help="Without, list all.")] = "",
    name: Annotated[str, typer.Argument(metavar="[NAME]")] = "",
    as_name: Annotated[
        str, typer.Argument(metavar="[NEWNAME]", help="The name to install it under.")
    ] = "",
    language: Annotated[str, typer.Option("--lang", help="en or zh, for install.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the workflows that come with Shiftboss, show one, or install it."""
    parts = (order, name, format_flag("--lang", language), as_name)
    execute(command_line("workflow gallery", *parts), as_json=as_json)


add_chat_command(
    cli,
    "versions",
    "workflow versions",
    required("name", NameArgument),
    help="List the versions of a workflow.",
)
add_chat_command(
    cli,
    "diff",
    "workflow diff",
    required("name", NameArgument),
    optional("old", _VERSION),
    optional("new", _VERSION),
    help="Show what a version changes, or the difference of two.",
)
add_chat_command(
    cli,
    "rollback",
    "workflow rollback",
    required("name", NameArgument),
    required("version", _VERSION),
    help="Make the text of an earlier version the newest.",
)


@cli.command("delete")
def delete(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a workflow. A rollback brings it back."""
    if not yes:
        execute(command_line("workflow delete", name), as_json=as_json)
        if as_json or not sys.stdin.isatty() or not typer.confirm("Delete it?"):
            return
    execute(command_line("workflow delete", name, "yes"), as_json=as_json)


@cli.command("dry-run")
def dry_run(
    source: SourceArgument,
    inputs: InputsOption = None,
    outputs: Annotated[
        str,
        typer.Option(
            "--outputs",
            metavar="FILE",
            help="YAML or JSON with what each step brings, and decisions about open conditions.",
        ),
    ] = "",
    show_prompts: Annotated[
        bool, typer.Option("--prompts/--no-prompts", help="Print what workers would be told.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Say what a run would do with given outputs: nodes, edges, prompts and costs.

    Asks no model and stores nothing. Status 1 if the run would fail, 3 if a condition stays open.
    """
    with report_start_failures(as_json=as_json):
        from bot.cli.workflow_cases import run_dry
        from bot.config.settings import load_settings
        from cards.catalog import catalog_for
        from cards.views.dry_runs import dry_run_data, dry_run_lines
        from storage.records.people import Language

        settings = load_settings()
        _, workflow = open_workflow(source, as_json=as_json)
        values = _parse_inputs(workflow, inputs or [], as_json=as_json)
        found = run_dry(settings, source, values, outputs, as_json=as_json)
    lines = dry_run_lines(found, catalog_for(Language.ENGLISH), prompts=show_prompts)
    print_result("\n".join(lines), dry_run_data(found), as_json=as_json)
    if found.end != "completed":
        raise typer.Exit(_EXIT_WAITING if found.end == "undecided" else _EXIT_FAILED)


@cli.command("test")
def run_cases(
    source: Annotated[
        str,
        typer.Argument(metavar="[NAME|FILE]", help="A workflow, or its file of cases; else all."),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Run the test cases of workflows, from NAME.test.yaml beside each, without a model.

    Status 1 if a case fails or can't be read, 2 if there are none."""
    with report_start_failures(as_json=as_json):
        from bot.cli.workflow_cases import run_tests
        from bot.config.settings import load_settings
        from cards.catalog import catalog_for
        from cards.views.dry_runs import case_lines, cases_data
        from storage.records.people import Language

        reports = run_tests(load_settings(), source, as_json=as_json)
    words = catalog_for(Language.ENGLISH)
    lines = [line for file, each in reports for line in case_lines(each, words, file=file)]
    print_result(
        "\n".join(lines), [cases_data(each, words) for _, each in reports], as_json=as_json
    )
    if not all(each.has_passed for _, each in reports):
        raise typer.Exit(_EXIT_FAILED)


@cli.command("schema")
def schema() -> None:
    """Print the JSON Schema of workflow files, for completion and hover in editors."""
    from bot.engine.workflow.serialization.json_schema import read_schema_file

    typer.echo(read_schema_file(), nl=False)


@cli.command("eval")
def evaluate(
    expression: TextArgument,
    *,
    scope: Annotated[
        str,
        typer.Option(
            "--scope",
            metavar="JSON",
            help="JSON with names and values; @FILE or - for standard input.",
        ),
    ] = "{}",
    source: Annotated[
        str,
        typer.Option(
            "--workflow",
            "-w",
            metavar="NAME|FILE",
            help="A workflow whose variables, inputs and declared outputs count too.",
        ),
    ] = "",
    task: Annotated[
        str, typer.Option("--task", metavar="ID", help="A task: the scope is what its run sees.")
    ] = "",
    node: Annotated[
        str,
        typer.Option(
            "--node", help="With --task: a node or its path, for what it saw when it last began."
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Evaluate an expression as in a run; print its value and type.

    In the scope, a text under `outputs` is read as a worker's answer."""
    if task:
        if source or scope != "{}":
            fail("--task has its own scope: leave out --scope and -w", as_json=as_json, status=2)
        flags = (format_flag("--task", task), format_flag("--node", node))
        line = command_line("workflow eval", *flags, f"-- {expression}")
        execute(line, as_json=as_json, present=_present_evaluated)
    elif node:
        fail("--node needs --task", as_json=as_json, status=2)
    else:
        _evaluate_sample(expression, scope, source, as_json=as_json)


def _evaluate_sample(expression: str, scope: str, source: str, *, as_json: bool) -> None:
    from bot.config.settings import load_settings
    from bot.engine.workflow.expressions.evaluator import evaluate as work_out
    from bot.engine.workflow.expressions.operations import ExpressionError, value_type
    from bot.engine.workflow.sample_scope import sample_names

    given = _parse_scope(scope, as_json=as_json)
    with report_start_failures(as_json=as_json):
        zone = load_settings().zone
        workflow = open_workflow(source, as_json=as_json)[1] if source else None
    try:
        names = sample_names(given, workflow, now=datetime.now(UTC), zone=zone)
    except ValueError as error:
        fail(f"--scope: {error}", as_json=as_json, status=2)
    try:
        value = work_out(expression, names)
    except ExpressionError as error:
        fail(" ".join(str(error).split()), as_json=as_json)
    kind = value_type(value)
    shown = json.dumps(value, ensure_ascii=False, default=str)
    print_result(f"{shown}\n{kind}", {"value": value, "type": kind}, as_json=as_json)


def _present_evaluated(data: Any) -> tuple[str, Any]:
    return f"{json.dumps(data['value'], ensure_ascii=False)}\n{data['type']}", data


def _with_subworkflows(name: str, workflow: Any, *, as_json: bool) -> Any:
    """The workflow with the nodes of the named ones that it runs; exits if there is none."""
    from bot.engine.workflow.named_workflows import WorkflowLibrary

    with report_refusals(as_json=as_json):
        library = WorkflowLibrary(data_directory())
        return asyncio.run(library.insert_subworkflows(name, workflow))


def _parse_inputs(workflow: Any, inputs: list[str], *, as_json: bool) -> dict[str, Any]:
    """Exits with status 2 and all errors."""
    from bot.engine.workflow.named_workflows import describe_workflow
    from cards.catalog import catalog_for
    from cards.views.workflows import input_kind_label, input_line
    from handlers.workflow_inputs import parse_inputs
    from storage.records.people import Language

    words = catalog_for(Language.ENGLISH)
    texts: dict[str, str] = {}
    for each in inputs:
        name, mark, value = each.partition("=")
        if not mark:
            fail(f"--input {each}: write NAME=VALUE", as_json=as_json, status=2)
        texts[name.strip()] = value
    seen = parse_inputs(describe_workflow("", "", workflow).inputs, texts)
    problems = [f"--input {each}: no such input" for each in seen.unknown]
    problems += [
        f"--input {each.input.name}={each.text[:60]}: must be "
        f"{'one of ' * (each.input.kind == 'choice')}{input_kind_label(each.input, words)}"
        for each in seen.invalid
    ]
    problems += [
        f"--input {each.name}=…: required, {input_line(each, words)}" for each in seen.missing
    ]
    if problems:
        fail("; ".join(problems), as_json=as_json, status=2)
    return dict(seen.values)


def _parse_scope(scope: str, *, as_json: bool) -> dict[str, Any]:
    try:
        if scope == "-":
            scope = sys.stdin.read(_MAX_SCOPE_LENGTH)
        elif scope.startswith("@"):
            with Path(scope[1:]).open(encoding="utf-8") as file:
                scope = file.read(_MAX_SCOPE_LENGTH)
        names = json.loads(scope)
    except (OSError, ValueError, RecursionError) as error:
        fail(f"--scope: {error}", as_json=as_json, status=2)
    if not isinstance(names, dict):
        fail('--scope: must be an object, such as {"n": 1}', as_json=as_json, status=2)
    return names


def _describe_inputs(workflow: dict[str, Any]) -> str:
    wanted = [each["name"] for each in workflow["inputs"] if each["required"]]
    title = workflow["title"] if workflow["title"] != workflow["name"] else ""
    asks = f"(asks for {', '.join(wanted)})" if wanted else ""
    return "  ".join(filter(None, (title, asks)))


def _print_note(text: str) -> None:
    typer.echo(f"shiftboss: {text}", err=True)
