"""Named workflows: files in the home directory, read as they are whenever somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.engine.workflow.graph import BadGraph, Workflow, load_workflow
from bot.engine.workflow.library import folder as files
from bot.engine.workflow.library.folder import Entry, NotReadable, Stamp
from bot.engine.workflow.library.telling import faults_told, told
from bot.engine.workflow.library.template import ready, template_of
from bot.engine.workflow.model.validate import validated
from cards.words import words_for
from storage.records.people import Language
from storage.records.tasks import Task
from storage.records.workers.workflows import (
    BadWorkflow,
    Drawn,
    NamedWorkflow,
    ReadyWorkflow,
    Value,
    WhyNoWorkflow,
    WorkflowFault,
    WorkflowRefused,
    WorkflowShelf,
)
from storage.work.graphs import GraphRepo

FOLDER = "workflows"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    stamp: Stamp
    workflow: Workflow | None
    faults: tuple[WorkflowFault, ...] = ()


class Library:
    """Satisfies `handlers.services.workflows.Workflows`. `graphs` is where tasks keep their plans;
    without it nothing can be kept of a task."""

    def __init__(self, home: Path, graphs: GraphRepo | None = None) -> None:
        self._home = home
        self._folder = home / FOLDER
        self._graphs = graphs
        self._known: dict[str, _Read] = {}

    async def shelf(self) -> WorkflowShelf:
        return await asyncio.to_thread(self.look)

    async def find(self, name: str) -> NamedWorkflow:
        entry, workflow = await asyncio.to_thread(self.open, name)
        return told(entry.name, entry.file, workflow)

    async def drawn(self, name: str, language: Language) -> Drawn:
        return await asyncio.to_thread(self.draw, name, language)

    async def ready(self, name: str, values: Mapping[str, Value]) -> ReadyWorkflow:
        entry, workflow = await asyncio.to_thread(self.open, name)
        return ready(entry.name, workflow, values)

    async def judged(self, text: str) -> NamedWorkflow | BadWorkflow:
        try:
            workflow = await asyncio.to_thread(workflow_in, text)
        except NotReadable as error:
            return BadWorkflow(name="", faults=(_fault(error),))
        except BadGraph as error:
            return BadWorkflow(name="", faults=faults_told(error.faults))
        return told("", "", workflow)

    async def text_of(self, file: str) -> str:
        try:
            return await asyncio.to_thread(files.read, self._home / file)
        except NotReadable as error:
            name = Path(file).name
            raise WorkflowRefused(
                WhyNoWorkflow.UNREADABLE, name, faults=(_fault(error),)
            ) from error

    async def text_of_task(self, task: Task, name: str) -> str:
        graph = await self._graphs.latest(task.id) if self._graphs else None
        workflow = load_workflow(graph.body) if graph else None
        if workflow is None or not workflow.nodes:
            raise WorkflowRefused(WhyNoWorkflow.NO_PLAN, name, task.id)
        return await asyncio.to_thread(text_of, template_of(task, workflow))

    async def save(self, name: str, text: str, *, replace: bool = False) -> NamedWorkflow:
        _demand_name(name)
        judged = await self.judged(text)
        if isinstance(judged, BadWorkflow):
            raise WorkflowRefused(WhyNoWorkflow.BROKEN, name, faults=judged.faults)
        try:
            await asyncio.to_thread(files.write, self._folder, name, text, replace=replace)
        except FileExistsError as error:
            raise WorkflowRefused(WhyNoWorkflow.EXISTS, name) from error
        except OSError as error:
            why = error.strerror or "?"
            raise WorkflowRefused(WhyNoWorkflow.UNWRITABLE, name, why) from error
        return await self.find(name)

    async def delete(self, name: str) -> None:
        _demand_name(name)
        try:
            gone = await asyncio.to_thread(files.delete, self._folder, name)
        except OSError as error:
            why = error.strerror or "?"
            raise WorkflowRefused(WhyNoWorkflow.UNWRITABLE, name, why) from error
        if not gone:
            raise WorkflowRefused(WhyNoWorkflow.UNKNOWN, name)

    def look(self) -> WorkflowShelf:
        """Blocking."""
        try:
            found, left_out = files.entries(self._folder)
        except OSError as error:
            fault = WorkflowFault(key="unreadable", facts={"why": error.strerror or "?"})
            bad = (BadWorkflow(name=FOLDER, file=FOLDER, faults=(fault,)),)
            return WorkflowShelf(bad=bad, folder=str(self._folder))
        self._known = {file: read for file, read in self._known.copy().items() if _has(found, file)}
        good: list[NamedWorkflow] = []
        broken: list[BadWorkflow] = []
        for name, same in files.by_name(found).items():
            entry, *others = same
            read_ = self._read(entry)
            if read_.workflow is None:
                broken.append(BadWorkflow(name=name, file=entry.file, faults=read_.faults))
            else:
                good.append(told(name, entry.file, read_.workflow))
            twice = WorkflowFault(key="same_name", facts={"file": entry.file})
            broken += (BadWorkflow(name=name, file=each.file, faults=(twice,)) for each in others)
        return WorkflowShelf(
            workflows=tuple(good), bad=tuple(broken), left_out=left_out, folder=str(self._folder)
        )

    def draw(self, name: str, language: Language) -> Drawn:
        """Blocking. Raises WorkflowRefused."""
        # Loaded where something is drawn.
        from bot.engine.workflow.library.drawn import draw

        return draw(self._home, self.open(name)[1], words_for(language))

    def open(self, name: str) -> tuple[Entry, Workflow]:
        """Blocking. By its name in any case. Raises WorkflowRefused."""
        wanted = name.casefold()
        try:
            found, _ = files.entries(self._folder)
        except OSError:
            found = []
        named = [each for each in found if each.name == name]
        named = named or [each for each in found if each.name.casefold() == wanted]
        if not named:
            raise WorkflowRefused(WhyNoWorkflow.UNKNOWN, name)
        read_ = self._read(named[0])
        if read_.workflow is None:
            raise WorkflowRefused(WhyNoWorkflow.BROKEN, named[0].name, faults=read_.faults)
        return named[0], read_.workflow

    def _read(self, entry: Entry) -> _Read:
        known = self._known.get(entry.file)
        if known is None or known.stamp != entry.stamp:
            known = self._known[entry.file] = _read(self._folder / entry.file, entry)
        return known


def workflow_in(text: str) -> Workflow:
    """Blocking. Raises NotReadable and BadGraph."""
    # Loaded where something is read: most programs never do.
    from bot.engine.workflow.forms.reading import read

    if len(text) > files.MOST_BYTES:
        raise NotReadable("large_file", most=files.MOST_BYTES // 1_000)
    return validated(read(text))


def text_of(workflow: Workflow) -> str:
    """Blocking. As a person would write it."""
    # Loaded where something is written.
    import yaml

    from bot.engine.workflow.forms.writing import written

    return yaml.safe_dump(written(workflow), allow_unicode=True, sort_keys=False, width=100)


def _read(path: Path, entry: Entry) -> _Read:
    if not files.is_name(entry.name):
        return _Read(stamp=entry.stamp, workflow=None, faults=(WorkflowFault(key="file_name"),))
    try:
        return _Read(stamp=entry.stamp, workflow=workflow_in(files.read(path)))
    except NotReadable as error:
        return _Read(stamp=entry.stamp, workflow=None, faults=(_fault(error),))
    except BadGraph as error:
        return _Read(stamp=entry.stamp, workflow=None, faults=faults_told(error.faults))


def _fault(error: NotReadable) -> WorkflowFault:
    return WorkflowFault(key=error.key, facts=error.facts)


def _demand_name(name: str) -> None:
    if not files.is_name(name):
        raise WorkflowRefused(WhyNoWorkflow.BAD_NAME, name)


def _has(found: list[Entry], file: str) -> bool:
    return any(each.file == file for each in found)
