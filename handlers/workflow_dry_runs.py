"""Handles `/workflow dry-run` and `/workflow test`, workflows without a model on given outputs, and
`/workflow eval`, expressions in the scope of a run."""

from __future__ import annotations

from cards.views.dry_runs import (
    cases_card,
    cases_data,
    dry_run_card,
    dry_run_data,
    evaluation_card,
    evaluation_data,
)
from handlers.errors import UsageError, UserError
from handlers.flags import parse_flags
from handlers.parsing import find_task
from handlers.request import Reply, Request
from handlers.workflow_inputs import parse_inputs, split_named_values


async def dry_run_command(request: Request, rest: str) -> Reply:
    """Say what a run with these inputs would do; a file sent along gives the outputs of steps."""
    name, _, more = rest.strip().partition(" ")
    if not name:
        raise UsageError("workflow")
    workflow = await request.services.workflows.find(name)
    free, texts = split_named_values(more)
    inputs = parse_inputs(workflow.inputs, texts, free)
    if not inputs.is_complete:
        wrong = [each.input.label for each in inputs.invalid]
        names = [*inputs.unknown, *wrong, *(each.label for each in inputs.missing)]
        problems = "\n".join(f"- {each[:60]}" for each in names)
        raise UserError("workflow_input", name=workflow.name, problems=problems)
    given = ""
    if request.files:
        given = await request.services.workflows.read_file(request.files[0])
    run = await request.services.dry_runs.dry_run(
        workflow.name, inputs.values, given, request.words.language
    )
    return Reply(card=dry_run_card(run, request.words), data=dry_run_data(run))


async def test_command(request: Request, rest: str) -> Reply:
    """Run the test cases of a workflow."""
    name = rest.strip()
    if not name:
        raise UsageError("workflow")
    report = await request.services.dry_runs.test(name, request.words.language)
    card = cases_card(report, request.words)
    return Reply(card=card, good=report.has_passed, data=cases_data(report, request.words))


async def evaluate_command(request: Request, rest: str) -> Reply:
    """Evaluate an expression in the scope of a task's run, or of one of its nodes."""
    flags = parse_flags(rest, valued=("task", "node"))
    if not flags.text or not flags.options.get("task"):
        raise UserError("eval_usage")
    task = await find_task(request, flags.options["task"])
    found = await request.services.run_expressions.evaluate(
        task, flags.text, flags.options.get("node", "")
    )
    data = evaluation_data(found)
    return Reply(card=evaluation_card(found, request.words), good=not found.error, data=data)
