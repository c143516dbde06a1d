"""Named workflows without a disk: what is listed is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    WorkflowInput,
    WorkflowRefused,
    WorkflowShelf,
    WorkflowStep,
)

GOOD_TEXT = "nodes: [{id: look, type: task, name: Look}]"


def a_workflow(name: str = "review", *inputs: WorkflowInput, **facts: Any) -> NamedWorkflow:
    wanted: dict[str, Any] = {
        "name": name,
        "file": f"{name}.yaml",
        "title": "Review a change",
        "description": "Look at it twice.",
        "inputs": inputs,
        "steps": (
            WorkflowStep(id="look", title="Look at it", type="task"),
            WorkflowStep(id="ok", title="Is it good?", type="human"),
        ),
    }
    return NamedWorkflow(**{**wanted, **facts})


class FakeWorkflows:
    """Keeps what it is given; `started` are the values workflows were made ready with, `saved` the
    texts that were kept, by name. A text that says `broken` cannot be run."""

    def __init__(self, *workflows: NamedWorkflow) -> None:
        self.workflows = list(workflows) or [a_workflow()]
        self.bad: list[BadWorkflow] = []
        self.started: list[tuple[str, dict[str, Value]]] = []
        self.saved: dict[str, str] = {}
        self.files: dict[str, str] = {}

    async def shelf(self) -> WorkflowShelf:
        return WorkflowShelf(
            workflows=tuple(self.workflows), bad=tuple(self.bad), folder="/home/boss/workflows"
        )

    async def find(self, name: str) -> NamedWorkflow:
        for broken in self.bad:
            if broken.name == name:
                raise WorkflowRefused(WhyNoWorkflow.BROKEN, name, faults=broken.faults)
        found = next((each for each in self.workflows if each.name == name), None)
        if found is None:
            raise WorkflowRefused(WhyNoWorkflow.UNKNOWN, name)
        return found

    async def drawn(self, name: str, language: Language) -> Drawn:
        return Drawn(mermaid="flowchart TD\n  n0 --> n1\n", svg="files/workflows/a.svg", size=12)

    async def ready(self, name: str, values: Mapping[str, Value]) -> ReadyWorkflow:
        found = await self.find(name)
        self.started.append((name, dict(values)))
        told = ", ".join(f"{key}={value}" for key, value in values.items())
        return ReadyWorkflow(
            title=found.title, instruction=f"{found.description} {told}".strip(), body={"plan": ""}
        )

    async def judged(self, text: str) -> NamedWorkflow | BadWorkflow:
        if "broken" in text:
            return BadWorkflow(name="", faults=(a_fault(),))
        return a_workflow("")

    async def text_of(self, file: str) -> str:
        return self.files[file]

    async def text_of_task(self, task: Task, name: str) -> str:
        return f"name: {task.title}"

    async def save(self, name: str, text: str, *, replace: bool = False) -> NamedWorkflow:
        if any(each.name == name for each in self.workflows) and not replace:
            raise WorkflowRefused(WhyNoWorkflow.EXISTS, name)
        if isinstance(judged := await self.judged(text), BadWorkflow):
            raise WorkflowRefused(WhyNoWorkflow.BROKEN, name, faults=judged.faults)
        self.saved[name] = text
        self.workflows.append(a_workflow(name))
        return self.workflows[-1]

    async def delete(self, name: str) -> None:
        await self.find(name)
        self.workflows = [each for each in self.workflows if each.name != name]


def a_fault() -> WorkflowFault:
    return WorkflowFault(key="file_name", where="fix", field="loop.condition")
