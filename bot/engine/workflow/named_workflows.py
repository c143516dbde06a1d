"""The library of named workflows: files in the data directory, read again when they change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from bot.engine.workflow.definition import Workflow, dump_workflow, load_workflow
from bot.engine.workflow.diagnostics import (
    NO_KNOWN_WORKERS,
    KnownWorkers,
    find_warnings,
    to_diagnostics,
)
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.input_fields import InputDefinition
from bot.engine.workflow.node_runs import PLANNING_PATH
from bot.engine.workflow.validation import validate_workflow
from bot.engine.workflow.workflow_files import (
    MAX_BYTES,
    TEST_SUFFIX,
    TEST_SUFFIXES,
    FileStamp,
    UnreadableWorkflowFile,
    WorkflowFile,
    delete_files,
    files_named,
    find_tests,
    is_valid_name,
    list_files,
    list_foreign_entries,
    read_file,
    write_file,
    write_text,
    written_text,
)
from cards.catalog import catalog_for
from storage.records.people import Language
from storage.records.prompt_versions import ORIGINAL, UsedVersion, text_hash
from storage.records.tasks import Task
from storage.records.traces import Trace
from storage.records.workflows import (
    Diagnostic,
    InvalidWorkflowFile,
    NamedWorkflow,
    PreparedWorkflow,
    RunDiff,
    RunPictures,
    WorkflowCatalog,
    WorkflowCheck,
    WorkflowDrawing,
    WorkflowInput,
    WorkflowInputValue,
    WorkflowRefusalReason,
    WorkflowRefused,
    WorkflowSource,
    WorkflowStep,
)
from storage.tasks import TaskGraphRepo


def describe_workflow(
    name: str, file: str, workflow: Workflow, warnings: tuple[Diagnostic, ...] = ()
) -> NamedWorkflow:
    return NamedWorkflow(
        warnings=warnings,
        name=name,
        file=file,
        title=workflow.name,
        description=workflow.plan,
        inputs=tuple(
            WorkflowInput(
                name=each.name,
                title=each.title,
                kind=each.kind,
                options=each.options,
                default=input_default(each),
                required=each.required,
            )
            for each in workflow.inputs
        ),
        steps=tuple(
            WorkflowStep(id=node.id, title=node.title, type=str(node.type), persona=node.persona)
            for node in workflow.nodes
            if not node.role.is_terminal
        ),
        outputs=tuple(workflow.outputs),
    )


def input_default(definition: InputDefinition) -> WorkflowInputValue | None:
    """The default for display; a list or mapping is shown as text."""
    default = definition.default
    return str(default) if isinstance(default, dict | list) else default


TASK_INPUT = "task"
"""Input of exported plans that holds the original task's instruction as its default."""

_MAX_TITLE = 80
_MAX_SHOWN_VALUE = 200


def make_template(task: Task, workflow: Workflow) -> Workflow:
    """Turn a task's plan into a reusable workflow, without input values and results."""
    # Imported on first use.
    from bot.engine.workflow.subworkflows import collapse

    workflow = collapse(workflow)
    nodes = tuple(
        replace(node, given=False)
        for node in workflow.nodes
        if not node.id.startswith(PLANNING_PATH)
    )
    asked = InputDefinition(name=TASK_INPUT, title="", default=task.instruction, required=False)
    return replace(
        workflow,
        nodes=nodes,
        name=workflow.name or task.title,
        inputs=workflow.inputs or (asked,),
        values={},
        answer="",
        served=0,
        source=None,
    )


def prepare_run(
    name: str, workflow: Workflow, values: Mapping[str, WorkflowInputValue]
) -> PreparedWorkflow:
    """Inputs that are not given take their defaults, or stay empty."""
    given: dict[str, JsonValue] = {
        each.name: values.get(each.name, each.default) for each in workflow.inputs
    }
    title = workflow.name or name
    texts = (" ".join(str(value).split()) for value in values.values())
    shown = " · ".join(filter(None, texts))[:_MAX_SHOWN_VALUE]
    return PreparedWorkflow(
        title=(f"{title}: {shown}" if shown else title)[:_MAX_TITLE],
        instruction=_run_instruction(title, workflow, given),
        body=dump_workflow(replace(workflow, values=given)),
    )


def _run_instruction(title: str, workflow: Workflow, given: Mapping[str, JsonValue]) -> str:
    task = given.get(TASK_INPUT)
    rest = {name: value for name, value in given.items() if name != TASK_INPUT or not task}
    lines = [f"- {name}: {value}" for name, value in rest.items() if value is not None]
    head = str(task) if task else workflow.plan or title
    return "\n\n".join(filter(None, (head, "\n".join(lines))))


FOLDER = "workflows"
_MAX_DRAWING = 200_000
"""Characters of a drawing that is sent to an editor."""


_ReadWorkflow: TypeAlias = tuple[Workflow | None, tuple[Diagnostic, ...]]
"""A workflow with its warnings, or the errors of a text that is none."""

_CachedWorkflow: TypeAlias = tuple[tuple[FileStamp, KnownWorkers], _ReadWorkflow]


class VersionChooser(Protocol):
    async def apply_to_workflow(self, name: str, text: str) -> tuple[str, UsedVersion]:
        """Return the text of a workflow for a new task, with its version."""
        ...

    async def workflow_text(self, name: str, number: int) -> str | None:
        """The text of that version of a workflow; None if there is none."""
        ...

    async def number_of(self, name: str, text: str) -> int:
        """The number of the version with this text, made now if somebody has edited the file;
        ORIGINAL if it can have none."""
        ...


_FAULTS_WHEN_RUN = frozenset({"unknown_workflow", "unknown_version", "broken_workflow"})
"""Faults of sub-workflows that saving tolerates: the other file may come later."""


class WorkflowLibrary:
    """Satisfies `handlers.ports_workers.WorkflowPort`. Without `graphs`, plans of tasks cannot be
    exported; without `versions`, tasks run the files as they are written. `list_workers` gives the
    personas and skills that steps may name."""

    def __init__(
        self,
        home: Path,
        graphs: TaskGraphRepo | None = None,
        versions: VersionChooser | None = None,
        list_workers: Callable[[], Awaitable[KnownWorkers]] | None = None,
    ) -> None:
        self._list_workers = list_workers
        self._known_workers = NO_KNOWN_WORKERS
        self._home = home
        self._folder = home / FOLDER
        self._graphs = graphs
        self._versions = versions
        self._cache: dict[str, _CachedWorkflow] = {}
        self._write_lock = threading.Lock()
        self._check_lock = asyncio.Lock()

    async def list_workflows(self) -> WorkflowCatalog:
        await self.look_for_workers()
        return await asyncio.to_thread(self.scan)

    async def find(self, name: str) -> NamedWorkflow:
        await self.look_for_workers()
        return await asyncio.to_thread(self.describe, name)

    async def look_for_workers(self) -> None:
        """Warnings are about those that there are now."""
        if self._list_workers is not None:
            self._known_workers = await self._list_workers()

    def describe(self, name: str) -> NamedWorkflow:
        """Blocking. Raises WorkflowRefused."""
        entry, workflow = self.open_workflow(name)
        return describe_workflow(entry.name, entry.file, workflow, self._read(entry)[1])

    async def render_diagram(self, name: str, language: Language) -> WorkflowDrawing:
        return await asyncio.to_thread(self.draw_workflow, name, language)

    async def draw_task_plan(self, task: Task, language: Language) -> str:
        graph = await self._graphs.find_latest(task.id) if self._graphs else None
        if graph is None or self._graphs is None:
            return ""
        # Imported on first use.
        from bot.engine.workflow.presentation.drawing import render_svg

        plan, runs = load_workflow(graph.body), await self._graphs.list_runs(task.id)
        return await asyncio.to_thread(render_svg, plan, catalog_for(language), runs=runs)

    async def diff_with_run(self, task: Task) -> RunDiff:
        first = await self._graphs.find_version(task.id, 1) if self._graphs else None
        old = load_workflow(first.body) if first is not None else None
        if old is None or old.source is None:
            raise WorkflowRefused(WorkflowRefusalReason.NO_PLAN, "", task.id)
        # Imported on first use.
        from bot.engine.workflow.definition_diff import diff_workflows

        entry, new = await asyncio.to_thread(self.open_workflow, old.source.name)
        new = await self.insert_subworkflows(entry.name, new)
        changes = await asyncio.to_thread(diff_workflows, old, new)
        return RunDiff(name=entry.name, changes=changes)

    async def save_run_pictures(
        self, task: Task, trace: Trace | None, language: Language
    ) -> RunPictures:
        svg, words = await self.draw_task_plan(task, language), catalog_for(language)

        def save() -> RunPictures:
            # Imported on first use.
            from bot.engine.workflow.presentation.pictures import save_picture
            from bot.engine.workflow.presentation.timeline import render_timeline

            drawing = save_picture(self._home, svg) if svg else None
            timeline = ""
            if trace is not None:
                timeline = save_picture(self._home, render_timeline(trace, words)).png
            plan = drawing.png if drawing is not None else ""
            return RunPictures(plan=plan, timeline=timeline, drawing=drawing)

        return await asyncio.to_thread(save)

    async def prepare_run(
        self, name: str, values: Mapping[str, WorkflowInputValue]
    ) -> PreparedWorkflow:
        entry, workflow = await asyncio.to_thread(self.open_workflow, name)
        if self._versions is not None:
            text = await self.read_file(f"{FOLDER}/{entry.file}")
            chosen, source = await self._versions.apply_to_workflow(entry.name, text)
            if chosen != text:
                read_, _ = await asyncio.to_thread(_parse_or_errors, lambda: chosen)
                if read_ is not None:
                    workflow = read_
                else:
                    # This release accepts less than the one that made the version.
                    source = replace(source, number=ORIGINAL, version_id=None)
            workflow = replace(workflow, source=source)
        whole = await self.insert_subworkflows(entry.name, workflow)
        if self._versions is not None and any(node.body for node in whole.nodes):
            # Imported on first use: few workflows have any.
            from bot.engine.workflow.subworkflows import note_versions

            whole = await note_versions(whole, self._read_named, self._versions.number_of)
        return prepare_run(entry.name, whole, values)

    async def _read_named(self, name: str) -> tuple[str, str]:
        entry, _ = await asyncio.to_thread(self.open_workflow, name)
        return entry.name, await self.read_file(f"{FOLDER}/{entry.file}")

    async def insert_subworkflows(self, name: str, workflow: Workflow) -> Workflow:
        """The workflow with the nodes of those that it runs. Raises WorkflowRefused."""
        try:
            return await self._insert_subworkflows(name, workflow)
        except InvalidGraph as error:
            errors = to_diagnostics(error.issues)
            raise WorkflowRefused(WorkflowRefusalReason.BROKEN, name, errors=errors) from error

    async def _insert_subworkflows(self, name: str, workflow: Workflow) -> Workflow:
        """Raises InvalidGraph."""
        # Imported on first use: few workflows have any.
        from bot.engine.workflow.subworkflows import insert_subworkflows

        versions = self._versions.workflow_text if self._versions is not None else None
        return await insert_subworkflows(name, workflow, self._open_subworkflow, versions)

    def _open_subworkflow(self, name: str) -> Workflow:
        return self.open_workflow(name)[1]

    async def list_texts(self) -> Mapping[str, str]:
        """The files of the valid workflows by name."""
        texts: dict[str, str] = {}
        for each in (await self.list_workflows()).workflows:
            # One that has just become unreadable is left out.
            with suppress(WorkflowRefused):
                texts[each.name] = await self.read_file(f"{FOLDER}/{each.file}")
        return texts

    async def validate(self, text: str) -> NamedWorkflow | InvalidWorkflowFile:
        return await self.validate_file("", text)

    async def validate_file(
        self, name: str, text: str, *, file: str = "", tolerated: AbstractSet[str] = frozenset()
    ) -> NamedWorkflow | InvalidWorkflowFile:
        """Like `validate`, for the text of a named workflow, without faults of the `tolerated`
        kinds in those that it runs."""
        await self.look_for_workers()
        read_, found = await asyncio.to_thread(
            _parse_or_errors, lambda: text, self._known_workers, file=file
        )
        if read_ is not None:
            try:
                await self._insert_subworkflows(name, read_)
            except InvalidGraph as error:
                issues = [each for each in error.issues if each.key not in tolerated]
                if issues:
                    read_ = None
                    found = await asyncio.to_thread(to_diagnostics, issues, text, file=file)
        if read_ is None:
            return InvalidWorkflowFile(name=name, file=file, errors=found)
        return describe_workflow(name, file, read_, found)

    async def check(self, text: str, language: Language) -> WorkflowCheck:
        # One at a time: each takes up to a second of CPU, and somebody who types asks again.
        async with self._check_lock:
            await self.look_for_workers()
            return await asyncio.to_thread(_check_text, text, language, self._known_workers)

    async def read_file(self, file: str) -> str:
        return await asyncio.to_thread(_read_or_refuse, self._home / file)

    async def read_source(self, name: str) -> WorkflowSource:
        return await asyncio.to_thread(self._read_source, name)

    async def export_task_plan(self, task: Task, name: str) -> str:
        graph = await self._graphs.find_latest(task.id) if self._graphs else None
        workflow = load_workflow(graph.body) if graph else None
        if workflow is None or not workflow.nodes:
            raise WorkflowRefused(WorkflowRefusalReason.NO_PLAN, name, task.id)
        return await asyncio.to_thread(workflow_to_yaml, make_template(task, workflow))

    async def save(
        self, name: str, text: str, *, replace: bool = False, based_on: str = ""
    ) -> NamedWorkflow:
        """Write the file atomically; parameters and refusals are those of
        `handlers.ports_workflows.WorkflowHistoryPort.save`."""
        _require_valid_name(name)
        result = await self.validate_file(name, text, tolerated=_FAULTS_WHEN_RUN)
        if isinstance(result, InvalidWorkflowFile):
            raise WorkflowRefused(WorkflowRefusalReason.BROKEN, name, errors=result.errors)
        with _refusing_os_errors(name):
            await asyncio.to_thread(self._save, name, text, replace, based_on)
        return await self.find(name)

    def read_tests(self, name: str) -> str:
        """The test cases of a workflow, empty if it has none. Blocking. Raises WorkflowRefused if
        they cannot be read."""
        file = find_tests(self._folder, name)
        return _read_or_refuse(self._folder / file) if file else ""

    def write_tests(self, name: str, text: str) -> None:
        """Blocking. Raises WorkflowRefused."""
        _require_valid_name(name)
        with _refusing_os_errors(name), self._write_lock:
            write_text(self._folder / f"{name}{TEST_SUFFIX}", text)
            for suffix in TEST_SUFFIXES:
                if (other := f".test{suffix}") != TEST_SUFFIX:
                    (self._folder / f"{name}{other}").unlink(missing_ok=True)

    def store_export(self, data: bytes) -> str:
        """The path of a file with an exported workflow in the data directory, empty if it cannot be
        written. Blocking."""
        # Imported on first use.
        from bot.engine.workflow.presentation.pictures import store_export

        try:
            return store_export(self._home, data)
        except OSError:
            return ""

    def list_stamps(self) -> Mapping[str, FileStamp]:
        """The workflows with what changes when their files do. Blocking. Raises OSError."""
        stamps: dict[str, FileStamp] = {}
        for each in list_files(self._folder)[0]:
            stamps.setdefault(each.name, each.stamp)
        return stamps

    async def delete(self, name: str, *, based_on: str = "") -> None:
        _require_valid_name(name)
        with _refusing_os_errors(name):
            gone = await asyncio.to_thread(self._delete, name, based_on)
        if not gone:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)

    def _save(self, name: str, text: str, replace: bool, based_on: str) -> None:
        def check() -> None:
            if based_on and self._is_changed(name, based_on, new=written_text(text)):
                raise WorkflowRefused(WorkflowRefusalReason.CHANGED, name)

        with self._write_lock:
            check()
            write_file(self._folder, name, text, replace=replace or bool(based_on), check=check)

    def _delete(self, name: str, based_on: str) -> bool:
        with self._write_lock:
            if based_on and files_named(self._folder, name) and self._is_changed(name, based_on):
                raise WorkflowRefused(WorkflowRefusalReason.CHANGED, name)
            return delete_files(self._folder, name)

    def _is_changed(self, name: str, based_on: str, *, new: str = "") -> bool:
        """Whether the text is another than that of this hash, and than the `new` one, which a
        repeated change has already written."""
        try:
            source = self._read_source(name)
        except WorkflowRefused:
            return True
        return source.hash != based_on and source.text != new

    def _read_source(self, name: str) -> WorkflowSource:
        file = next(iter(files_named(self._folder, name)), "")
        if not file:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)
        text = _read_or_refuse(self._folder / file)
        return WorkflowSource(name=name, file=file, text=text, hash=text_hash(text))

    def open_tests(self, name: str) -> tuple[str, str]:
        """The file with the test cases of a workflow, and its text. Blocking. Raises
        WorkflowRefused: NO_TESTS if there is none."""
        file = find_tests(self._folder, name)
        if not file:
            raise WorkflowRefused(WorkflowRefusalReason.NO_TESTS, name)
        return file, _read_or_refuse(self._folder / file)

    def scan(self) -> WorkflowCatalog:
        """Blocking."""
        try:
            found, left_out = list_files(self._folder)
        except OSError as error:
            fault = Diagnostic(code="unreadable", facts={"why": error.strerror or "?"})
            bad = (InvalidWorkflowFile(name=FOLDER, file=FOLDER, errors=(fault,)),)
            return WorkflowCatalog(invalid=bad, folder=str(self._folder))
        present = {each.file for each in found}
        self._cache = {file: read for file, read in self._cache.copy().items() if file in present}
        good: list[NamedWorkflow] = []
        broken: list[InvalidWorkflowFile] = []
        for name, same in groupby(found, key=lambda each: each.name):
            entry, *others = same
            read_, diagnostics = self._read(entry)
            if read_ is not None:
                good.append(describe_workflow(name, entry.file, read_, diagnostics))
            else:
                broken.append(InvalidWorkflowFile(name=name, file=entry.file, errors=diagnostics))
            for each in others:
                twice = Diagnostic(code="same_name", file=each.file, facts={"file": entry.file})
                broken.append(InvalidWorkflowFile(name=name, file=each.file, errors=(twice,)))
        return WorkflowCatalog(
            workflows=tuple(good),
            invalid=tuple(broken),
            foreign=list_foreign_entries(self._folder),
            left_out=left_out,
            folder=str(self._folder),
        )

    def draw_workflow(self, name: str, language: Language) -> WorkflowDrawing:
        """Blocking. Raises WorkflowRefused."""
        # Imported on first use.
        from bot.engine.workflow.presentation.pictures import save_drawing

        return save_drawing(self._home, self.open_workflow(name)[1], catalog_for(language))

    def open_workflow(self, name: str) -> tuple[WorkflowFile, Workflow]:
        """Find by name, ignoring case if needed. Blocking. Raises WorkflowRefused."""
        try:
            found, _ = list_files(self._folder)
        except OSError:
            found = []
        named = [each for each in found if each.name == name]
        named = named or [each for each in found if each.name.casefold() == name.casefold()]
        if not named:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)
        read_, errors = self._read(named[0])
        if read_ is None:
            raise WorkflowRefused(WorkflowRefusalReason.BROKEN, named[0].name, errors=errors)
        return named[0], read_

    def _read(self, entry: WorkflowFile) -> _ReadWorkflow:
        key = (entry.stamp, self._known_workers)
        known, read_ = self._cache.get(entry.file, (None, (None, ())))
        if known == key:
            return read_
        if is_valid_name(entry.name):
            path = self._folder / entry.file
            read_ = _parse_or_errors(lambda: read_file(path), key[1], file=entry.file)
        else:
            read_ = None, (Diagnostic(code="file_name", file=entry.file),)
        self._cache[entry.file] = (key, read_)
        return read_


def parse_workflow_text(text: str) -> Workflow:
    """Blocking. Raises UnreadableWorkflowFile and InvalidGraph."""
    # Imported on first use: most processes never need it.
    from bot.engine.workflow.serialization.reader import read_workflow

    if len(text) > MAX_BYTES:
        raise UnreadableWorkflowFile("large_file", most=MAX_BYTES // 1_000)
    return validate_workflow(read_workflow(text))


def workflow_to_yaml(workflow: Workflow) -> str:
    """Blocking."""
    # Imported on first use.
    from bot.engine.workflow.serialization.data_parser import dump_yaml
    from bot.engine.workflow.serialization.reader import workflow_to_data

    return dump_yaml(workflow_to_data(workflow))


def _parse_or_errors(
    read: Callable[[], str], workers: KnownWorkers = NO_KNOWN_WORKERS, *, file: str = ""
) -> _ReadWorkflow:
    text = ""
    try:
        text = read()
        workflow = parse_workflow_text(text)
    except UnreadableWorkflowFile as error:
        return None, (Diagnostic(code=error.key, file=file, facts=error.facts),)
    except InvalidGraph as error:
        return None, to_diagnostics(error.issues, text, file=file)
    return workflow, find_warnings(workflow, text, workers, file=file)


def _check_text(text: str, language: Language, workers: KnownWorkers) -> WorkflowCheck:
    read_, diagnostics = _parse_or_errors(lambda: text, workers)
    if read_ is None:
        return WorkflowCheck(workflow=InvalidWorkflowFile(name="", errors=diagnostics))
    # Imported on first use.
    from bot.engine.workflow.presentation.drawing import render_svg

    svg = render_svg(read_, catalog_for(language), styled=False)
    described = describe_workflow("", "", read_, diagnostics)
    return WorkflowCheck(workflow=described, svg=svg if len(svg) <= _MAX_DRAWING else "")


def _read_or_refuse(path: Path) -> str:
    try:
        return read_file(path)
    except UnreadableWorkflowFile as error:
        errors = (Diagnostic(code=error.key, file=path.name, facts=error.facts),)
        raise WorkflowRefused(WorkflowRefusalReason.UNREADABLE, path.name, errors=errors) from error


@contextmanager
def _refusing_os_errors(name: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise WorkflowRefused(WorkflowRefusalReason.EXISTS, name) from error
    except OSError as error:
        why = error.strerror or "?"
        raise WorkflowRefused(WorkflowRefusalReason.UNWRITABLE, name, why) from error


def _require_valid_name(name: str) -> None:
    if not is_valid_name(name):
        raise WorkflowRefused(WorkflowRefusalReason.BAD_NAME, name)
