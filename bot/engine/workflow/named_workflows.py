"""The library of named workflows: files in the data directory, read again when they change."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from bot.engine.workflow.definition import InputDefinition, Workflow, dump_workflow, load_workflow
from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.node_runs import PLANNING_PATH
from bot.engine.workflow.validation import validate_workflow
from cards.catalog import catalog_for
from storage.data_directory import fsync_path
from storage.records.people import Language
from storage.records.prompt_versions import ORIGINAL, UsedVersion, text_hash
from storage.records.tasks import Task
from storage.records.workflows import (
    InvalidWorkflowFile,
    NamedWorkflow,
    PreparedWorkflow,
    WorkflowCatalog,
    WorkflowCheck,
    WorkflowDrawing,
    WorkflowError,
    WorkflowInput,
    WorkflowInputValue,
    WorkflowRefusalReason,
    WorkflowRefused,
    WorkflowSource,
    WorkflowStep,
)
from storage.tasks import TaskGraphRepo

SUFFIXES = (".yaml", ".yml", ".json", ".md")
MAX_BYTES = 1_000_000
MAX_FILES = 200

_VALID_NAME = re.compile(r"[^\W_][\w-]{0,63}")
_IGNORED_NAMES = {"readme"}

FileStamp: TypeAlias = tuple[int, int, int]
"""Modification time, size and inode: changes whenever the file does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFile:
    name: str
    file: str
    stamp: FileStamp


class UnreadableWorkflowFile(Exception):
    """`key` is link, not_a_file, large_file, not_utf8 or unreadable."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(key)


def is_valid_name(name: str) -> bool:
    """Letters of any language, digits, `-` and `_`, so that a name cannot leave the folder."""
    return bool(_VALID_NAME.fullmatch(name)) and name.casefold() not in _IGNORED_NAMES


def list_files(folder: Path) -> tuple[list[WorkflowFile], int]:
    """Return the files by name, and the number of files beyond the limit. Empty if there is no
    folder."""
    found = _scan_folder(folder)
    return found[:MAX_FILES], max(0, len(found) - MAX_FILES)


def read_file(path: Path) -> str:
    """Read without following links or blocking on pipes. Raises UnreadableWorkflowFile."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise UnreadableWorkflowFile("link") from error
        raise UnreadableWorkflowFile("unreadable", why=error.strerror or "?") from error
    with os.fdopen(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise UnreadableWorkflowFile("not_a_file")
        try:
            data = opened.read(MAX_BYTES + 1)
        except OSError as error:
            raise UnreadableWorkflowFile("unreadable", why=error.strerror or "?") from error
    return decode_text(data)


def decode_text(data: bytes) -> str:
    """Raises UnreadableWorkflowFile."""
    if len(data) > MAX_BYTES:
        raise UnreadableWorkflowFile("large_file", most=MAX_BYTES // 1_000)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableWorkflowFile("not_utf8", at=error.start) from error


def write_file(
    folder: Path,
    name: str,
    text: str,
    *,
    replace: bool,
    check: Callable[[], None] = lambda: None,
) -> str:
    """Write atomically and return the file's name. `check` is called at the last moment; what it
    raises leaves everything as it is.

    Raises FileExistsError if another file of that name exists and `replace` is False. Other files
    of the name, and what a crash has left of a write, are deleted after it: one caller at a time.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error
    file = f"{name}{suffix_for(text)}"
    others = [each for each in _files_named(folder, name) if each != file]
    if others and not replace:
        raise FileExistsError(others[0])
    data = _written_text(text).encode()
    with NamedTemporaryFile(dir=folder, prefix=f".{name}.", suffix=".new", delete=False) as opened:
        new = Path(opened.name)
        try:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
            # Somebody's editor may have saved the file while this was written.
            check()
            _put_in_place(new, folder / file, data, replace=replace)
        finally:
            new.unlink(missing_ok=True)
    for other in (*(folder / each for each in others), *folder.glob(f".{name}.*.new")):
        other.unlink(missing_ok=True)
    fsync_path(folder)
    return file


def _written_text(text: str) -> str:
    return f"{text.rstrip()}\n"


def _put_in_place(new: Path, place: Path, data: bytes, *, replace: bool) -> None:
    if replace:
        new.replace(place)
        return
    try:
        # Unlike a rename, a link fails if the file exists by now.
        os.link(new, place)
    except FileExistsError:
        # Repeating the same save is no conflict.
        if place.is_symlink() or not place.is_file() or place.read_bytes() != data:
            raise


def delete_files(folder: Path, name: str) -> bool:
    """Return False if there was no file."""
    files = _files_named(folder, name)
    for file in files:
        (folder / file).unlink(missing_ok=True)
    return bool(files)


def suffix_for(text: str) -> str:
    """Guess the format from the content."""
    first = text.lstrip("\ufeff \t\r\n")
    if first.startswith("{"):
        return ".json"
    return ".md" if first.startswith(("#", "```")) or "\n```" in first else ".yaml"


def _files_named(folder: Path, name: str) -> list[str]:
    """The one in effect first."""
    return [each.file for each in _scan_folder(folder) if each.name == name]


def _scan_folder(folder: Path) -> list[WorkflowFile]:
    try:
        with os.scandir(folder) as each:
            found = list(filter(None, map(_workflow_file, each)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(
        found, key=lambda each: (each.name, SUFFIXES.index(Path(each.file).suffix.lower()))
    )


def _workflow_file(one: os.DirEntry[str]) -> WorkflowFile | None:
    path = Path(one.name)
    is_hidden = one.name.startswith(".") or path.stem.casefold() in _IGNORED_NAMES
    if is_hidden or path.suffix.lower() not in SUFFIXES or not one.name.isprintable():
        return None
    try:
        info = one.stat(follow_symlinks=False)
    except OSError:
        return None
    stamp = (info.st_mtime_ns, info.st_size, info.st_ino)
    return WorkflowFile(name=path.stem, file=one.name, stamp=stamp)


def describe_workflow(name: str, file: str, workflow: Workflow) -> NamedWorkflow:
    return NamedWorkflow(
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


def to_workflow_faults(
    issues: Sequence[ValidationIssue], text: str = ""
) -> tuple[WorkflowError, ...]:
    """With their positions in the text. Blocking."""
    # Imported on first use, with the parser.
    from bot.engine.workflow.serialization.positions import find_positions

    return tuple(
        WorkflowError(
            key=each.key,
            location=each.where,
            field=each.field,
            line=line,
            column=column,
            # Of the whole file, not of a text in a fence.
            facts={**each.facts, "line": line} if "line" in each.facts else each.facts,
        )
        for each, (line, column) in zip(issues, find_positions(text, issues), strict=True)
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


_CachedWorkflow: TypeAlias = tuple[FileStamp, Workflow | tuple[WorkflowError, ...]]
"""A file's workflow, or its errors."""


class WorkflowVersions(Protocol):
    async def apply_to_workflow(self, name: str, text: str) -> tuple[str, UsedVersion]:
        """Return the text of a workflow for a new task, with its version."""
        ...


class WorkflowLibrary:
    """Satisfies `handlers.ports_workers.WorkflowPort`. Without `graphs`, plans of tasks cannot be
    exported; without `versions`, tasks run the files as they are written."""

    def __init__(
        self,
        home: Path,
        graphs: TaskGraphRepo | None = None,
        versions: WorkflowVersions | None = None,
    ) -> None:
        self._home = home
        self._folder = home / FOLDER
        self._graphs = graphs
        self._versions = versions
        self._cache: dict[str, _CachedWorkflow] = {}
        self._write_lock = threading.Lock()
        self._check_lock = asyncio.Lock()

    async def list_workflows(self) -> WorkflowCatalog:
        return await asyncio.to_thread(self.scan)

    async def find(self, name: str) -> NamedWorkflow:
        entry, workflow = await asyncio.to_thread(self.open_workflow, name)
        return describe_workflow(entry.name, entry.file, workflow)

    async def render_diagram(self, name: str, language: Language) -> WorkflowDrawing:
        return await asyncio.to_thread(self.draw_workflow, name, language)

    async def draw_task_plan(self, task: Task, language: Language) -> str:
        graph = await self._graphs.find_latest(task.id) if self._graphs else None
        if graph is None:
            return ""
        # Imported on first use.
        from bot.engine.workflow.presentation.drawing import render_svg

        plan = load_workflow(graph.body)
        return await asyncio.to_thread(render_svg, plan, catalog_for(language))

    async def prepare_run(
        self, name: str, values: Mapping[str, WorkflowInputValue]
    ) -> PreparedWorkflow:
        entry, workflow = await asyncio.to_thread(self.open_workflow, name)
        if self._versions is not None:
            text = await self.read_file(f"{FOLDER}/{entry.file}")
            chosen, source = await self._versions.apply_to_workflow(entry.name, text)
            if chosen != text:
                read_ = await asyncio.to_thread(_parse_or_errors, lambda: chosen)
                if isinstance(read_, Workflow):
                    workflow = read_
                else:
                    # This release accepts less than the one that made the version.
                    source = replace(source, number=ORIGINAL, version_id=None)
            workflow = replace(workflow, source=source)
        return prepare_run(entry.name, workflow, values)

    async def list_texts(self) -> Mapping[str, str]:
        """The files of the valid workflows by name."""
        texts: dict[str, str] = {}
        for each in (await self.list_workflows()).workflows:
            # One that has just become unreadable is left out.
            with suppress(WorkflowRefused):
                texts[each.name] = await self.read_file(f"{FOLDER}/{each.file}")
        return texts

    async def validate(self, text: str) -> NamedWorkflow | InvalidWorkflowFile:
        read_ = await asyncio.to_thread(_parse_or_errors, lambda: text)
        if isinstance(read_, Workflow):
            return describe_workflow("", "", read_)
        return InvalidWorkflowFile(name="", errors=read_)

    async def check(self, text: str, language: Language) -> WorkflowCheck:
        # One at a time: each takes up to a second of CPU, and somebody who types asks again.
        async with self._check_lock:
            return await asyncio.to_thread(_check_text, text, language)

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
        _require_valid_name(name)
        result = await self.validate(text)
        if isinstance(result, InvalidWorkflowFile):
            raise WorkflowRefused(WorkflowRefusalReason.BROKEN, name, errors=result.errors)
        with _refusing_os_errors(name):
            await asyncio.to_thread(self._save, name, text, replace, based_on)
        return await self.find(name)

    async def delete(self, name: str, *, based_on: str = "") -> None:
        _require_valid_name(name)
        with _refusing_os_errors(name):
            gone = await asyncio.to_thread(self._delete, name, based_on)
        if not gone:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)

    def _save(self, name: str, text: str, replace: bool, based_on: str) -> None:
        def check() -> None:
            if based_on and self._is_changed(name, based_on, new=_written_text(text)):
                raise WorkflowRefused(WorkflowRefusalReason.CHANGED, name)

        with self._write_lock:
            check()
            write_file(self._folder, name, text, replace=replace or bool(based_on), check=check)

    def _delete(self, name: str, based_on: str) -> bool:
        with self._write_lock:
            if based_on and _files_named(self._folder, name) and self._is_changed(name, based_on):
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
        file = next(iter(_files_named(self._folder, name)), "")
        if not file:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)
        text = _read_or_refuse(self._folder / file)
        return WorkflowSource(name=name, file=file, text=text, hash=text_hash(text))

    def scan(self) -> WorkflowCatalog:
        """Blocking."""
        try:
            found, left_out = list_files(self._folder)
        except OSError as error:
            fault = WorkflowError(key="unreadable", facts={"why": error.strerror or "?"})
            bad = (InvalidWorkflowFile(name=FOLDER, file=FOLDER, errors=(fault,)),)
            return WorkflowCatalog(invalid=bad, folder=str(self._folder))
        present = {each.file for each in found}
        self._cache = {file: read for file, read in self._cache.copy().items() if file in present}
        good: list[NamedWorkflow] = []
        broken: list[InvalidWorkflowFile] = []
        for name, same in groupby(found, key=lambda each: each.name):
            entry, *others = same
            read_ = self._read(entry)
            if isinstance(read_, Workflow):
                good.append(describe_workflow(name, entry.file, read_))
            else:
                broken.append(InvalidWorkflowFile(name=name, file=entry.file, errors=read_))
            twice = WorkflowError(key="same_name", facts={"file": entry.file})
            broken += (
                InvalidWorkflowFile(name=name, file=each.file, errors=(twice,)) for each in others
            )
        return WorkflowCatalog(
            workflows=tuple(good),
            invalid=tuple(broken),
            left_out=left_out,
            folder=str(self._folder),
        )

    def draw_workflow(self, name: str, language: Language) -> WorkflowDrawing:
        """Blocking. Raises WorkflowRefused."""
        # Imported on first use.
        from bot.engine.workflow.presentation.drawing import save_drawing

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
        read_ = self._read(named[0])
        if not isinstance(read_, Workflow):
            raise WorkflowRefused(WorkflowRefusalReason.BROKEN, named[0].name, errors=read_)
        return named[0], read_

    def _read(self, entry: WorkflowFile) -> Workflow | tuple[WorkflowError, ...]:
        stamp, read_ = self._cache.get(entry.file, (None, ()))
        if stamp == entry.stamp:
            return read_
        if is_valid_name(entry.name):
            read_ = _parse_or_errors(lambda: read_file(self._folder / entry.file))
        else:
            read_ = (WorkflowError(key="file_name"),)
        self._cache[entry.file] = (entry.stamp, read_)
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


def _parse_or_errors(read: Callable[[], str]) -> Workflow | tuple[WorkflowError, ...]:
    text = ""
    try:
        text = read()
        return parse_workflow_text(text)
    except UnreadableWorkflowFile as error:
        return (WorkflowError(key=error.key, facts=error.facts),)
    except InvalidGraph as error:
        return to_workflow_faults(error.issues, text)


def _check_text(text: str, language: Language) -> WorkflowCheck:
    read_ = _parse_or_errors(lambda: text)
    if not isinstance(read_, Workflow):
        return WorkflowCheck(workflow=InvalidWorkflowFile(name="", errors=read_))
    # Imported on first use.
    from bot.engine.workflow.presentation.drawing import render_svg

    svg = render_svg(read_, catalog_for(language), styled=False)
    described = describe_workflow("", "", read_)
    return WorkflowCheck(workflow=described, svg=svg if len(svg) <= _MAX_DRAWING else "")


def _read_or_refuse(path: Path) -> str:
    try:
        return read_file(path)
    except UnreadableWorkflowFile as error:
        errors = (WorkflowError(key=error.key, facts=error.facts),)
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
