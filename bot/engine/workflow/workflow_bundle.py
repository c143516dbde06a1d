"""Exports and imports named workflows, with what belongs to them, as one YAML document. An import
first shows what would change, then writes files. Nothing that was imported starts by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from bot.engine.workers.personas import Persona
from bot.engine.workflow.definition import Workflow, WorkflowNode, may_ask_people
from bot.engine.workflow.diagnostics import to_diagnostics
from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.named_workflows import (
    WorkflowLibrary,
    describe_workflow,
    parse_workflow_text,
)
from bot.engine.workflow.nodes.contract import CallTypeSpec
from bot.engine.workflow.subworkflows import insert_subworkflows
from bot.engine.workflow.workflow_files import MAX_BYTES, TEST_SUFFIX, is_valid_name, written_text
from bot.engine.workflow.workflow_history import WorkflowHistory
from storage.records.people import Language, Person
from storage.records.prompt_versions import text_hash
from storage.records.workflows import (
    GalleryWorkflow,
    ImportItem,
    ImportNeed,
    ImportPlan,
    ImportState,
    WorkflowExport,
    WorkflowRefusalReason,
    WorkflowRefused,
)

FORMAT = "shiftboss-workflow/1"
_MAX_WORKFLOWS = 50
_FIELDS = {"format", "name", "workflows", "tests", "personas", "skills"}
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowBundle:
    """The texts of workflows and of their test cases, by name. `name` is the main workflow, which
    the others belong to. `personas` and `skills` are names that must exist for it to run.
    """

    name: str
    workflows: Mapping[str, str]
    tests: Mapping[str, str]
    personas: tuple[str, ...]
    skills: tuple[str, ...]

    def renamed(self, name: str) -> WorkflowBundle:
        """The bundle with another name for the main workflow, which its file also begins with."""
        if not name or name == self.name:
            return self

        def rename(texts: Mapping[str, str]) -> Mapping[str, str]:
            return {name if each == self.name else each: text for each, text in texts.items()}

        return replace(self, name=name, workflows=rename(self.workflows), tests=rename(self.tests))


def write_bundle(bundle: WorkflowBundle) -> str:
    """Blocking."""
    # Imported on first use, with the parser.
    from bot.engine.workflow.serialization.data_parser import dump_yaml_document

    data: dict[str, Any] = {"format": FORMAT, "name": bundle.name}
    data["workflows"] = dict(bundle.workflows)
    for field in ("tests", "personas", "skills"):
        if value := getattr(bundle, field):
            data[field] = dict(value) if isinstance(value, Mapping) else list(value)
    return dump_yaml_document(data)


def read_bundle(text: str) -> WorkflowBundle:
    """Blocking. Raises InvalidGraph."""
    # Imported on first use, with the parser.
    from bot.engine.workflow.serialization.data_parser import parse_yaml, strip_fence

    data = parse_yaml(strip_fence(text))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidGraph([ValidationIssue(key="bundle_format", facts={"format": FORMAT})])
    issues = [
        ValidationIssue(key="bundle_field", field=each[:60]) for each in data if each not in _FIELDS
    ]
    name = data.get("name")
    workflows, tests = (_read_texts(data, field, issues) for field in ("workflows", "tests"))
    personas, skills = (_read_names(data, field, issues) for field in ("personas", "skills"))
    if not isinstance(name, str) or name not in workflows:
        issues.append(ValidationIssue(key="bundle_name", field="name"))
    issues += [
        ValidationIssue(key="bundle_test", field=f"tests.{each}")
        for each in tests
        if each not in workflows
    ]
    if len(workflows) > _MAX_WORKFLOWS:
        facts = {"most": _MAX_WORKFLOWS}
        issues.append(ValidationIssue(key="bundle_many", field="workflows", facts=facts))
    if issues:
        raise InvalidGraph(issues)
    return WorkflowBundle(
        name=str(name), workflows=workflows, tests=tests, personas=personas, skills=skills
    )


_GALLERY = Path(__file__).parent / "gallery"


@cache
def list_gallery(language: Language) -> tuple[GalleryWorkflow, ...]:
    """The workflows of the gallery. Blocking the first time."""
    found = []
    for path in sorted((_GALLERY / language.value).glob("*.yaml")):
        name, text = path.stem, path.read_text(encoding="utf-8")
        tests = (_GALLERY / "tests" / f"{name}{TEST_SUFFIX}").read_text(encoding="utf-8")
        workflow = parse_workflow_text(text)
        bundle = WorkflowBundle(
            name=name,
            workflows={name: text},
            tests={name: tests},
            personas=tuple(sorted({each.persona for each in workflow.nodes} - {""})),
            skills=(),
        )
        described = describe_workflow(name, path.name, workflow)
        found.append(GalleryWorkflow(workflow=described, text=text, document=write_bundle(bundle)))
    return tuple(found)


def _read_texts(
    data: Mapping[str, Any], field: str, issues: list[ValidationIssue]
) -> Mapping[str, str]:
    given = data.get(field, {})
    if not isinstance(given, dict):
        issues.append(ValidationIssue(key="bundle_texts", field=field))
        return {}
    texts: dict[str, str] = {}
    for name, text in given.items():
        if not is_valid_name(name):
            issues.append(ValidationIssue(key="file_name", field=f"{field}.{name[:60]}"))
        elif not isinstance(text, str) or not text.strip():
            issues.append(ValidationIssue(key="bundle_texts", field=f"{field}.{name}"))
        else:
            texts[name] = written_text(text)
    return texts


def _read_names(
    data: Mapping[str, Any], field: str, issues: list[ValidationIssue]
) -> tuple[str, ...]:
    given = data.get(field, [])
    if not isinstance(given, list) or not all(
        isinstance(each, str) and 0 < len(each) <= _MAX_NAME and each.isprintable()
        for each in given
    ):
        issues.append(ValidationIssue(key="bundle_names", field=field))
        return ()
    return tuple(dict.fromkeys(given))


_MAX_NAME = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowExchange:
    """Satisfies `handlers.ports_workflows.WorkflowExchangePort`."""

    library: WorkflowLibrary
    history: WorkflowHistory
    get_personas: Callable[[], Awaitable[Mapping[str, Persona]]]
    list_skills: Callable[[], Awaitable[Iterable[str]]]

    async def export(self, name: str, *, with_dependencies: bool = False) -> WorkflowExport:
        entry, workflow = await asyncio.to_thread(self.library.open_workflow, name)
        # By the name that is written in the node, whatever the case of the file's: so the document
        # is complete in itself.
        parsed, files, texts = {entry.name: workflow}, {entry.name: entry.name}, dict[str, str]()
        waiting = [entry.name]
        while waiting:
            each = waiting.pop(0)
            texts[each] = written_text((await self.library.read_source(files[each])).text)
            if with_dependencies:
                for inner in _subworkflows(parsed[each]):
                    if inner in parsed or len(parsed) >= _MAX_WORKFLOWS:
                        continue
                    # One that is not there is told by the import.
                    with suppress(WorkflowRefused):
                        found, parsed[inner] = await asyncio.to_thread(
                            self.library.open_workflow, inner
                        )
                        files[inner] = found.name
                        waiting.append(inner)
        tests = {
            each: written_text(text)
            for each in texts
            if (text := await asyncio.to_thread(self.library.read_tests, files[each]))
        }
        personas = sorted({node.persona for one in parsed.values() for node in one.nodes} - {""})
        known = await self.get_personas()
        skills = {
            skill
            for persona in personas
            if persona in known
            for skill in known[persona].skills
            if not _WILDCARDS & set(skill)
        }
        bundle = WorkflowBundle(
            name=entry.name,
            workflows=texts,
            tests=tests,
            personas=tuple(personas),
            skills=tuple(sorted(skills)),
        )
        text = await asyncio.to_thread(write_bundle, bundle)
        data = text.encode()
        if len(data) > MAX_BYTES:
            raise WorkflowRefused(WorkflowRefusalReason.TOO_LARGE, entry.name)
        file = await asyncio.to_thread(self.library.store_export, data)
        return WorkflowExport(name=entry.name, text=text, file=file, size=len(data))

    async def list_gallery(self, language: Language) -> Sequence[GalleryWorkflow]:
        return await asyncio.to_thread(list_gallery, language)

    async def find_in_gallery(self, name: str, language: Language) -> GalleryWorkflow:
        wanted = name.casefold()
        for each in await self.list_gallery(language):
            if each.workflow.name == wanted:
                return each
        raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)

    async def plan_import(self, text: str, *, as_name: str = "") -> ImportPlan:
        return (await self._plan(text, as_name))[1]

    async def apply_import(
        self,
        text: str,
        *,
        by: Person,
        via: str,
        as_name: str = "",
        replace: bool = False,
        expected: str = "",
    ) -> ImportPlan:
        bundle, plan = await self._plan(text, as_name)
        if expected and plan.hash != expected:
            raise WorkflowRefused(WorkflowRefusalReason.CHANGED, plan.name)
        broken = [each for each in plan.items if each.errors]
        if broken:
            raise WorkflowRefused(
                WorkflowRefusalReason.BROKEN, broken[0].name, errors=broken[0].errors
            )
        for each in plan.items:
            if each.state is ImportState.CHANGED and not replace:
                raise WorkflowRefused(WorkflowRefusalReason.EXISTS, each.name)
        # Those that others run come first, so that no run finds half of it.
        for each in reversed(plan.items):
            if each.is_test:
                await asyncio.to_thread(
                    self.library.write_tests, each.name, bundle.tests[each.name]
                )
            elif each.state is not ImportState.SAME:
                await self.history.save(
                    each.name,
                    bundle.workflows[each.name],
                    by=by,
                    via=via,
                    based_on=each.based_on,
                )
        return plan

    async def _plan(self, text: str, as_name: str) -> tuple[WorkflowBundle, ImportPlan]:
        if as_name and not is_valid_name(as_name):
            raise WorkflowRefused(WorkflowRefusalReason.BAD_NAME, as_name)
        try:
            bundle = (await asyncio.to_thread(read_bundle, text)).renamed(as_name)
        except InvalidGraph as error:
            errors = await asyncio.to_thread(to_diagnostics, error.issues)
            raise WorkflowRefused(WorkflowRefusalReason.BROKEN, "", errors=errors) from error
        parsed: dict[str, Workflow] = {}
        items = [await self._workflow_item(each, bundle, parsed) for each in bundle.workflows]
        items += [await self._test_item(each, bundle) for each in bundle.tests]
        named = {node.persona for one in parsed.values() for node in one.nodes} - {""}
        inner = {each for one in parsed.values() for each in _subworkflows(one)}
        skills = set(await self.list_skills())
        stamps = await asyncio.to_thread(self.library.list_stamps)
        plan = ImportPlan(
            name=bundle.name,
            hash=text_hash(text),
            items=tuple(items),
            needs=tuple(need for name, one in parsed.items() for need in _needs(name, one)),
            missing_personas=tuple(
                sorted({*named, *bundle.personas} - set(await self.get_personas()))
            ),
            missing_skills=tuple(each for each in bundle.skills if each not in skills),
            missing_workflows=tuple(sorted(inner - set(bundle.workflows) - set(stamps))),
        )
        return bundle, plan

    async def _workflow_item(
        self, name: str, bundle: WorkflowBundle, parsed: dict[str, Workflow]
    ) -> ImportItem:
        text = bundle.workflows[name]
        state, based_on = ImportState.NEW, ""
        try:
            source = await self.library.read_source(name)
        except WorkflowRefused as refused:
            if refused.reason is not WorkflowRefusalReason.UNKNOWN:
                raise
        else:
            same = source.text == text
            state, based_on = (ImportState.SAME if same else ImportState.CHANGED), source.hash

        def open_workflow(wanted: str) -> Workflow:
            if wanted in bundle.workflows:
                return parse_workflow_text(bundle.workflows[wanted])
            return self.library.open_workflow(wanted)[1]

        try:
            workflow = await asyncio.to_thread(parse_workflow_text, text)
            parsed[name] = workflow
            await insert_subworkflows(name, workflow, open_workflow, self.history.workflow_text)
        except InvalidGraph as error:
            issues = [each for each in error.issues if each.key not in _TOLD_APART]
            errors = await asyncio.to_thread(to_diagnostics, issues, text)
            return ImportItem(name=name, state=state, based_on=based_on, errors=errors)
        return ImportItem(name=name, state=state, based_on=based_on)

    async def _test_item(self, name: str, bundle: WorkflowBundle) -> ImportItem:
        known = await asyncio.to_thread(self.library.read_tests, name)
        state = ImportState.CHANGED if known else ImportState.NEW
        if known == bundle.tests[name]:
            state = ImportState.SAME
        issues = await asyncio.to_thread(_test_issues, bundle.tests[name])
        errors = to_diagnostics(issues)
        return ImportItem(name=name, state=state, is_test=True, errors=errors)


_TOLD_APART = frozenset({"unknown_workflow", "unknown_version"})
"""Faults of sub-workflows that are not there; a plan lists their names."""


def _test_issues(text: str) -> list[ValidationIssue]:
    from bot.engine.workflow.serialization.data_parser import parse_yaml

    try:
        data = parse_yaml(text)
    except InvalidGraph as error:
        return list(error.issues)
    if not isinstance(data, dict) or not isinstance(data.get("cases"), list):
        return [ValidationIssue(key="bundle_cases")]
    return []


def _subworkflows(workflow: Workflow) -> list[str]:
    configured = (node for node in workflow.nodes if node.config is not None)
    return [*filter(None, (node.spec.named_workflow(node.config) for node in configured))]


def _needs(name: str, workflow: Workflow) -> list[ImportNeed]:
    """List what its steps may do or ask for, apart from answering."""
    found = [each for node in workflow.nodes for each in _needs_of(name, node)]
    if may_ask_people(workflow) and not any(each.kind == "people" for each in found):
        found.append(ImportNeed(workflow=name, step="", kind="limit", detail=""))
    return found


def _needs_of(name: str, node: WorkflowNode) -> list[ImportNeed]:
    found = []
    if node.spec.asks_people(node.settings):
        found.append(("people", node.title))
    if node.persona:
        found.append(("persona", node.persona))
    if node.deliverables:
        found.append(("files", ", ".join(node.deliverables)))
    if isinstance(node.spec, CallTypeSpec) and node.config is not None:
        found.append(("call", node.spec.describe(node.config)))
    return [
        ImportNeed(workflow=name, step=node.id, kind=kind, detail=detail) for kind, detail in found
    ]
