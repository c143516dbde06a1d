"""Dry runs and test cases of named workflows. Cases stand in `NAME.test.yaml` beside the workflow:
inputs, given outputs and the expected results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.diagnostics import to_diagnostics
from bot.engine.workflow.dry_run import DryRunConditions, GivenResults, OutputMisfit, dry_run
from bot.engine.workflow.expressions.operations import value_as_text
from bot.engine.workflow.field_reader import (
    FieldReader,
    InvalidGraph,
    ValidationIssue,
    scalar_text,
    shorten_value,
    similar_name,
    unknown_node_issue,
)
from bot.engine.workflow.input_fields import fits_input
from bot.engine.workflow.named_workflows import WorkflowLibrary, prepare_run
from bot.engine.workflow.node_runs import parse_activation
from bot.engine.workflow.workflow_files import UnreadableWorkflowFile
from storage.records.dry_runs import (
    CaseDifference,
    CaseResult,
    DryRunEnd,
    WorkflowDryRun,
    WorkflowTestReport,
)
from storage.records.people import Language
from storage.records.workflows import (
    Diagnostic,
    WorkflowInputValue,
    WorkflowRefusalReason,
    WorkflowRefused,
)

_MAX_CASES = 200
_MAX_SHOWN = 300
_ENDS = tuple(each.value for each in DryRunEnd)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expectation:
    """The expected results of a case; None and empty fields are not checked. `prompts` are texts
    that the prompt of a step, by its label, must contain.
    """

    status: str = DryRunEnd.COMPLETED.value
    path: tuple[str, ...] | None = None
    not_run: tuple[str, ...] = ()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TestCase:
    name: str
    place: str
    inputs: Mapping[str, Any]
    given: GivenResults
    expect: _Expectation


class DryRunService:
    """Satisfies `handlers.ports_workflows.DryRunPort`. `get_conditions` returns the conditions
    under which workflows run here, with texts in that language.
    """

    def __init__(
        self,
        library: WorkflowLibrary,
        get_conditions: Callable[[Language], Awaitable[DryRunConditions]],
    ) -> None:
        self._library = library
        self._get_conditions = get_conditions

    async def dry_run(
        self,
        name: str,
        values: Mapping[str, WorkflowInputValue],
        given: str,
        language: Language,
    ) -> WorkflowDryRun:
        entry, workflow = await asyncio.to_thread(self._library.open_workflow, name)
        issues: Sequence[ValidationIssue]
        try:
            results = await asyncio.to_thread(_parse_given, given, workflow)
            return await self.run_workflow(entry.name, workflow, values, results, language)
        except InvalidGraph as error:
            issues = error.issues
        except OutputMisfit as error:
            issues = [
                ValidationIssue(
                    key="bad_output", field=f"outputs.{error.path}", facts={"why": error.why}
                )
            ]
        errors = await asyncio.to_thread(to_diagnostics, issues, given)
        raise WorkflowRefused(WorkflowRefusalReason.BROKEN, entry.name, errors=errors)

    async def run_workflow(
        self,
        name: str,
        workflow: Workflow,
        values: Mapping[str, Any],
        given: GivenResults,
        language: Language,
    ) -> WorkflowDryRun:
        """Dry-run a workflow. Raises OutputMisfit, and WorkflowRefused for a workflow
        that it uses.
        """
        whole = await self._library.insert_subworkflows(name, workflow)
        conditions = await self._get_conditions(language)
        return await asyncio.to_thread(_run_once, name, whole, values, given, conditions)

    async def test(self, name: str, language: Language) -> WorkflowTestReport:
        """Run the test cases of a saved workflow. Raises WorkflowRefused."""
        entry, workflow = await asyncio.to_thread(self._library.open_workflow, name)
        file, text = await asyncio.to_thread(self._library.open_tests, entry.name)
        return await self.test_workflow(entry.name, workflow, file, text, language)

    async def test_workflow(
        self, name: str, workflow: Workflow, file: str, text: str, language: Language
    ) -> WorkflowTestReport:
        """Run the cases in the text of a file. Raises WorkflowRefused for a workflow
        that it uses.
        """
        try:
            cases = await asyncio.to_thread(_read_cases, text, workflow)
        except UnreadableWorkflowFile as error:
            fault = Diagnostic(code=error.key, file=file, facts=error.facts)
            return WorkflowTestReport(name=name, file=file, faults=(fault,))
        except InvalidGraph as error:
            faults = await asyncio.to_thread(to_diagnostics, error.issues, text, file=file)
            return WorkflowTestReport(name=name, file=file, faults=faults)
        results: list[CaseResult] = []
        misfits: list[ValidationIssue] = []
        for case in cases:
            try:
                run = await self.run_workflow(name, workflow, case.inputs, case.given, language)
            except OutputMisfit as error:
                activation = parse_activation(error.path)
                node = activation.node if activation else error.path
                place, facts = f"{case.place}.outputs.{node}", {"why": error.why}
                misfits.append(ValidationIssue(key="bad_output", field=place, facts=facts))
                continue
            results.append(
                CaseResult(name=case.name, run=run, differences=tuple(_compare(case, run)))
            )
        found = await asyncio.to_thread(to_diagnostics, misfits, text, file=file)
        return WorkflowTestReport(name=name, file=file, cases=tuple(results), faults=found)


def _run_once(
    name: str,
    workflow: Workflow,
    values: Mapping[str, Any],
    given: GivenResults,
    conditions: DryRunConditions,
) -> WorkflowDryRun:
    prepared = prepare_run(name, workflow, values)
    known = {each.name: values.get(each.name, each.default) for each in workflow.inputs}
    return dry_run(name, replace(workflow, values=known), prepared, given, conditions)


# --- reading


def _parse_given(text: str, workflow: Workflow) -> GivenResults:
    # Imported on first use, with the parser.
    from bot.engine.workflow.serialization.reader import parse_text

    return read_given(parse_text(text), workflow) if text.strip() else GivenResults()


def read_given(data: Any, workflow: Workflow) -> GivenResults:
    """Read outputs and decisions for a dry run from a file's text: `{outputs, decisions}`, or the
    outputs alone. Raises InvalidGraph.
    """
    issues: list[ValidationIssue] = []
    names = {"outputs", "decisions", "stop"}
    if not isinstance(data, Mapping):
        raise InvalidGraph([ValidationIssue(key="not_a_group")])
    if not names & data.keys() or names & workflow.nodes_by_id.keys():
        data = {"outputs": data}
    given = _read_results(FieldReader(data, issues), workflow, "")
    if issues:
        raise InvalidGraph(issues)
    return given


def _read_cases(text: str, workflow: Workflow) -> Sequence[_TestCase]:
    """Raises InvalidGraph."""
    # Imported on first use, with the parser.
    from bot.engine.workflow.serialization.data_parser import parse_data, strip_fence

    data, issues = parse_data(strip_fence(text))
    if not isinstance(data, Mapping):
        raise InvalidGraph(issues or [ValidationIssue(key="no_cases")])
    top = FieldReader(data, issues)
    readers = list(top.mappings("cases"))
    if not readers and not issues:
        top.add("missing", "cases")
    if len(readers) > _MAX_CASES:
        top.add("out_of_range", "cases", least=1, most=_MAX_CASES)
    top.check_unknown_names()
    cases = [_read_case(each, n, workflow) for n, each in enumerate(readers[:_MAX_CASES], 1)]
    if issues:
        raise InvalidGraph(issues)
    return cases


def _read_case(each: FieldReader, number: int, workflow: Workflow) -> _TestCase:
    place = f"cases[{number}]"
    name = each.word("name", "title", default=str(number), limit=200)
    inputs = each.mapping("inputs") or {}
    case = _TestCase(
        name=name,
        place=place,
        inputs=inputs,
        given=_read_results(each, workflow, place),
        expect=_read_expectation(each, workflow, place),
    )
    each.issues += _input_issues(inputs, workflow, place)
    each.check_unknown_names()
    return case


def _read_results(each: FieldReader, workflow: Workflow, place: str) -> GivenResults:
    outputs = each.mapping("outputs") or {}
    decisions = each.mapping("decisions") or {}
    prefix = f"{place}.outputs" if place else "outputs"
    each.issues += _label_issues(outputs, workflow, prefix)
    stop = each.word("stop", limit=200)
    if stop:
        each.issues += _label_issues([stop], workflow, f"{place}.stop".strip("."))
    answers = FieldReader(decisions, each.issues, path=f"{place}.decisions".strip("."))
    return GivenResults(
        stop=stop,
        outputs=outputs,
        decisions={subject: _read_decision(answers, subject, workflow) for subject in decisions},
    )


def _read_decision(answers: FieldReader, subject: str, workflow: Workflow) -> bool | str:
    """Read a decision: a case of a switch, or whether the condition holds."""
    text = scalar_text(answers.value(subject))
    for node in workflow.nodes:
        if node.settings is not None and text in node.spec.choices_of(node.settings, subject):
            return text or ""
    return answers.boolean(subject, default=False)


def _read_expectation(each: FieldReader, workflow: Workflow, place: str) -> _Expectation:
    path = f"{place}.expect"
    expect = FieldReader(each.mapping("expect") or {}, each.issues, path=path)
    steps = expect.word_list("path") if expect.has("path") else None
    not_run = expect.word_list("not", "notRun")
    prompts = expect.mapping("prompts") or {}
    outputs = expect.mapping("outputs") or {}
    for field_, labels in (("path", steps or ()), ("not", not_run), ("prompts", prompts)):
        each.issues += _label_issues(labels, workflow, f"{path}.{field_}")
    for name in outputs:
        if name not in workflow.outputs:
            meant = similar_name(name, workflow.outputs)
            expect.add("unknown_field", f"outputs.{name}", suggestion=meant)
    status = expect.one_of(_ENDS, "status", "end", default=DryRunEnd.COMPLETED.value)
    expect.check_unknown_names()
    return _Expectation(
        status=status,
        path=steps,
        not_run=not_run,
        outputs=outputs,
        prompts={label: value_as_text(text) for label, text in prompts.items()},
    )


def _label_issues(
    labels: Iterable[str], workflow: Workflow, field_: str
) -> Iterator[ValidationIssue]:
    known = workflow.nodes_by_id
    plain = {name.replace("-", "_") for name in known}
    for label in labels:
        activation = parse_activation(label)
        node = activation.node if activation is not None else label
        # Nodes of workflows that it runs stand in the scope of their node.
        if node not in known and node not in plain and "/" not in label:
            yield unknown_node_issue(label, field_, known)


def _input_issues(
    inputs: Mapping[str, Any], workflow: Workflow, place: str
) -> Iterator[ValidationIssue]:
    known = {each.name: each for each in workflow.inputs}
    for name, value in inputs.items():
        where = f"{place}.inputs.{name[:40]}"
        if name not in known:
            meant = similar_name(name, known)
            yield ValidationIssue(key="unknown_field", field=where, suggestion=meant)
        elif value is not None and not fits_input(known[name], value):
            facts = {"given": shorten_value(value)}
            yield ValidationIssue(key="bad_input", field=where, facts=facts)
    for each in workflow.inputs:
        if each.must_be_given and inputs.get(each.name) is None:
            yield ValidationIssue(key="missing", field=f"{place}.inputs.{each.name}")


# --- comparing


def _compare(case: _TestCase, run: WorkflowDryRun) -> Iterator[CaseDifference]:
    expect = case.expect
    if run.end != expect.status:
        why = run.undecided or run.reason
        got = f"{run.end}: {why}" if why else run.end.value
        yield CaseDifference(field="status", expected=expect.status, got=got[:_MAX_SHOWN])
    if expect.path is not None and run.path != expect.path:
        yield CaseDifference(
            field="path", expected=" → ".join(expect.path), got=" → ".join(run.path)
        )
    ran = {each.id for each in run.nodes} | {each.label for each in run.nodes}
    for name in expect.not_run:
        if name in ran:
            yield CaseDifference(field="not", expected=f"without {name}", got=" → ".join(run.path))
    for name, wanted in expect.outputs.items():
        value = run.outputs.get(name)
        if value != wanted and value_as_text(value) != value_as_text(wanted):
            got = run.missing_outputs.get(name) or value_as_text(value)
            yield CaseDifference(
                field=f"outputs.{name}",
                expected=value_as_text(wanted)[:_MAX_SHOWN],
                got=got[:_MAX_SHOWN],
            )
    prompts = {each.label: each.prompt for each in run.nodes}
    for label, wanted in expect.prompts.items():
        if wanted not in prompts.get(label, ""):
            got = prompts.get(label, "")
            yield CaseDifference(
                field=f"prompts.{label}", expected=wanted[:_MAX_SHOWN], got=got[-_MAX_SHOWN:]
            )
