"""`shiftboss workflow dry-run` and `test`: workflows without a model, on given outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bot.app.work_rules import build_step_limits, session_limit
from bot.cli.failures import fail
from bot.cli.workflow_sources import (
    fail_invalid,
    is_file_name,
    open_library,
    open_workflow,
    read_text,
    report_refusals,
)
from bot.config.settings import Settings
from bot.engine.agent.pricing import PRICES_FILE, load_prices
from bot.engine.workers.personas import PersonaLibrary
from bot.engine.workflow.diagnostics import to_diagnostics
from bot.engine.workflow.dry_run import DryRunConditions, OutputMisfit
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.serialization.reader import parse_text
from bot.engine.workflow.step_approvals import parse_risk_words
from bot.engine.workflow.workflow_cases import DryRunService, read_given
from bot.engine.workflow.workflow_files import find_tests, tested_name
from cards.catalog import catalog_for
from storage.records.dry_runs import WorkflowDryRun, WorkflowTestReport
from storage.records.people import Language
from storage.records.workflows import WorkflowRefusalReason, WorkflowRefused


def build_service(settings: Settings) -> DryRunService:
    """One of its own, in this process."""

    async def get_conditions(language: Language) -> DryRunConditions:
        backend, _, model = settings.model.partition(":")
        prices = load_prices(settings.home / PRICES_FILE, {})
        return DryRunConditions(
            words=catalog_for(language),
            now=datetime.now(UTC),
            zone=settings.zone,
            max_context_tokens=session_limit(settings),
            approval_lifetime=settings.approval_lifetime,
            limits=build_step_limits(settings),
            personas=await PersonaLibrary(settings.home).get_all(),
            risk_words=parse_risk_words(settings.risk_words),
            model=settings.model,
            price=lambda read, written: prices.max_cost(backend, model, read, written),
        )

    return DryRunService(open_library(), get_conditions)


def run_dry(
    settings: Settings, source: str, values: Any, outputs: str, *, as_json: bool
) -> WorkflowDryRun:
    """`values` are checked inputs, `outputs` a file or empty. Exits with status 2 if the outputs
    don't fit."""
    name, workflow = open_workflow(source, as_json=as_json)
    text = read_text(outputs, as_json=as_json) if outputs else "{}"
    service = build_service(settings)
    try:
        given = read_given(parse_text(text), workflow)
        with report_refusals(as_json=as_json):
            running = service.run_workflow(name, workflow, values, given, Language.ENGLISH)
            return asyncio.run(running)
    except InvalidGraph as error:
        found = to_diagnostics(error.issues, text, file=Path(outputs).name)
        fail_invalid(outputs, found, as_json=as_json, file=outputs)
    except OutputMisfit as error:
        fail(f"--outputs: {error}", as_json=as_json, status=2)
    raise AssertionError  # it exits


def run_tests(
    settings: Settings, source: str, *, as_json: bool
) -> Sequence[tuple[str, WorkflowTestReport]]:
    """The reports with the files that they are about. Without a `source`, those of all workflows.
    Exits with status 2 if there are no cases."""
    service = build_service(settings)
    if source and is_file_name(source):
        return [_test_file(service, Path(source), as_json=as_json)]
    folder = settings.home / "workflows"
    names = [source] if source else _tested_names(folder)
    if not names:
        fail(f"there are no test cases in {folder}", as_json=as_json, status=2)
    return [_test_saved(service, folder, each, as_json=as_json) for each in names]


def _tested_names(folder: Path) -> list[str]:
    files = folder.iterdir() if folder.is_dir() else iter(())
    return sorted({name for each in files if (name := tested_name(each.name))})


def _test_saved(
    service: DryRunService, folder: Path, name: str, *, as_json: bool
) -> tuple[str, WorkflowTestReport]:
    try:
        report = asyncio.run(service.test(name, Language.ENGLISH))
    except WorkflowRefused as error:
        if error.reason is WorkflowRefusalReason.NO_TESTS:
            fail(f"{name} has no {name}.test.yaml beside it", as_json=as_json, status=2)
        if error.reason is not WorkflowRefusalReason.BROKEN:
            with report_refusals(as_json=as_json):
                raise
        file = next((each.file for each in error.errors if each.file), name)
        return str(folder / file), WorkflowTestReport(name=name, file=file, faults=error.errors)
    return str(folder / report.file), report


def _test_file(
    service: DryRunService, path: Path, *, as_json: bool
) -> tuple[str, WorkflowTestReport]:
    """A workflow with the cases beside it, or the cases of the workflow beside them."""
    if name := tested_name(path.name):
        cases = path
        beside = (path.with_name(f"{name}{each}") for each in (".yaml", ".yml", ".json", ".md"))
        workflow_file = next((each for each in beside if each.exists()), path.with_name(name))
    else:
        workflow_file, found = path, find_tests(path.parent, path.stem)
        cases = path.with_name(found or f"{path.stem}.test.yaml")
    if not cases.exists():
        fail(f"{cases}: no such file", as_json=as_json, status=2)
    name, workflow = open_workflow(str(workflow_file), as_json=as_json)
    text = read_text(str(cases), as_json=as_json)
    with report_refusals(as_json=as_json):
        running = service.test_workflow(name, workflow, cases.name, text, Language.ENGLISH)
        return str(cases), asyncio.run(running)
    raise AssertionError  # it exits
