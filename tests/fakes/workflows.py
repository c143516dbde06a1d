"""Named workflows without a disk: what is listed is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from storage.records.dry_runs import (
    DryRunEnd,
    EvaluatedExpression,
    WorkflowDryRun,
    WorkflowTestReport,
)
from storage.records.people import Language, Person
from storage.records.prompt_versions import PromptVersion, WorkflowVersions, text_hash
from storage.records.tasks import Task
from storage.records.traces import Trace
from storage.records.workflows import (
    ChangeKind,
    DefinitionChange,
    Diagnostic,
    GalleryWorkflow,
    ImportItem,
    ImportNeed,
    ImportPlan,
    ImportState,
    InvalidWorkflowFile,
    NamedWorkflow,
    PreparedWorkflow,
    RunDiff,
    RunPictures,
    WorkflowCatalog,
    WorkflowCheck,
    WorkflowDrawing,
    WorkflowExport,
    WorkflowInput,
    WorkflowInputValue,
    WorkflowRefusalReason,
    WorkflowRefused,
    WorkflowSource,
    WorkflowStep,
)


def make_workflow(name: str = "review", *inputs: WorkflowInput, **facts: Any) -> NamedWorkflow:
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
        self.workflows = list(workflows) or [make_workflow()]
        self.bad: list[InvalidWorkflowFile] = []
        self.prepared: list[tuple[str, dict[str, WorkflowInputValue]]] = []
        self.saved: dict[str, str] = {}
        self.versions: list[PromptVersion] = []
        self.files: dict[str, str] = {}

    async def list_workflows(self) -> WorkflowCatalog:
        return WorkflowCatalog(
            workflows=tuple(self.workflows), invalid=tuple(self.bad), folder="/home/boss/workflows"
        )

    async def find(self, name: str) -> NamedWorkflow:
        for broken in self.bad:
            if broken.name == name:
                raise WorkflowRefused(WorkflowRefusalReason.BROKEN, name, errors=broken.errors)
        found = next((each for each in self.workflows if each.name == name), None)
        if found is None:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)
        return found

    async def render_diagram(self, name: str, language: Language) -> WorkflowDrawing:
        return WorkflowDrawing(
            mermaid="flowchart TD\n  n0 --> n1\n", svg="files/workflows/a.svg", size=12
        )

    async def diff_with_run(self, task: Task) -> RunDiff:
        change = DefinitionChange(
            kind=ChangeKind.CHANGED, what="node", name="a", field="title", before="x", after="y"
        )
        return RunDiff(name="notes", changes=(change,))

    async def save_run_pictures(
        self, task: Task, trace: Trace | None, language: Language
    ) -> RunPictures:
        return RunPictures(plan="files/workflows/p.png", timeline="files/workflows/t.png")

    async def draw_task_plan(self, task: Task, language: Language) -> str:
        return "<svg xmlns='http://www.w3.org/2000/svg'/>"

    async def prepare_run(
        self, name: str, values: Mapping[str, WorkflowInputValue]
    ) -> PreparedWorkflow:
        found = await self.find(name)
        self.prepared.append((name, dict(values)))
        told = ", ".join(f"{key}={value}" for key, value in values.items())
        return PreparedWorkflow(
            title=found.title, instruction=f"{found.description} {told}".strip(), body={"plan": ""}
        )

    async def dry_run(
        self, name: str, values: Mapping[str, WorkflowInputValue], given: str, language: Language
    ) -> WorkflowDryRun:
        return WorkflowDryRun(name=name, end=DryRunEnd.COMPLETED, outputs={"given": given})

    async def test(self, name: str, language: Language) -> WorkflowTestReport:
        await self.find(name)
        return WorkflowTestReport(name=name, file=f"{name}.test.yaml")

    async def evaluate(
        self, task: Task, expression: str, language: Language, node: str = ""
    ) -> EvaluatedExpression:
        if expression == "nothing":
            return EvaluatedExpression(path=node, error="unknown name", names=("outputs",))
        return EvaluatedExpression(path=node, value=f"{task.id}: {expression}", type="text")

    async def validate(self, text: str) -> NamedWorkflow | InvalidWorkflowFile:
        if "broken" in text:
            return InvalidWorkflowFile(name="", errors=(make_workflow_fault(),))
        return make_workflow("")

    async def check(self, text: str, language: Language) -> WorkflowCheck:
        return WorkflowCheck(workflow=await self.validate(text), svg="<svg/>")

    async def read_source(self, name: str) -> WorkflowSource:
        if name not in self.saved:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)
        text = self.saved[name]
        return WorkflowSource(name=name, file=f"{name}.yaml", text=text, hash=text_hash(text))

    async def read_file(self, file: str) -> str:
        return self.files[file]

    async def export_task_plan(self, task: Task, name: str) -> str:
        return f"name: {task.title}"

    async def export(self, name: str, *, with_dependencies: bool = False) -> WorkflowExport:
        text = self.saved[name]
        return WorkflowExport(name=name, text=text, file="files/workflows/a.yaml", size=len(text))

    async def plan_import(self, text: str, *, as_name: str = "") -> ImportPlan:
        name = as_name or text.removeprefix("name: ").strip()
        errors = (make_workflow_fault(),) if "broken" in text else ()
        taken = any(each.name == name for each in self.workflows)
        state = ImportState.CHANGED if taken else ImportState.NEW
        need = ImportNeed(workflow=name, step="ask", kind="people", detail="Is it good?")
        item = ImportItem(name=name, state=state, errors=errors)
        missing = ("poet",)
        return ImportPlan(
            name=name,
            hash=text_hash(text),
            items=(item,),
            needs=(need,),
            missing_personas=missing,
        )

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
        plan = await self.plan_import(text, as_name=as_name)
        if expected not in {"", plan.hash}:
            raise WorkflowRefused(WorkflowRefusalReason.CHANGED, plan.name)
        await self.save(plan.name, text, by=by, via=via, replace=replace)
        return plan

    async def list_gallery(self, language: Language) -> Sequence[GalleryWorkflow]:
        item = make_workflow("digest")
        return [GalleryWorkflow(workflow=item, text="name: digest", document="name: digest")]

    async def find_in_gallery(self, name: str, language: Language) -> GalleryWorkflow:
        for each in await self.list_gallery(language):
            if each.workflow.name == name:
                return each
        raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)

    async def list_versions(self, name: str) -> WorkflowVersions:
        if not self.versions:
            raise WorkflowRefused(WorkflowRefusalReason.UNKNOWN, name)
        newest = list(reversed(self.versions))
        return WorkflowVersions(
            name=name, versions=newest, in_use=newest[0].number, authors={"p0": "Olga"}
        )

    async def roll_back(
        self, name: str, number: int, *, by: Person, via: str, based_on: str = ""
    ) -> NamedWorkflow | None:
        found = (await self.list_versions(name)).find(number)
        if found is None:
            raise WorkflowRefused(WorkflowRefusalReason.NO_VERSION, name, str(number))
        self.saved[name] = found.content
        return await self.find(name)

    async def save(
        self,
        name: str,
        text: str,
        *,
        by: Person,
        via: str,
        reason: str = "",
        replace: bool = False,
        based_on: str = "",
    ) -> NamedWorkflow:
        if based_on and text_hash(self.saved.get(name, "")) != based_on:
            raise WorkflowRefused(WorkflowRefusalReason.CHANGED, name)
        if any(each.name == name for each in self.workflows) and not (replace or based_on):
            raise WorkflowRefused(WorkflowRefusalReason.EXISTS, name)
        if isinstance(judged := await self.validate(text), InvalidWorkflowFile):
            raise WorkflowRefused(WorkflowRefusalReason.BROKEN, name, errors=judged.errors)
        self.saved[name] = text
        self.workflows.append(make_workflow(name))
        return self.workflows[-1]

    async def delete(self, name: str, *, based_on: str = "") -> None:
        await self.find(name)
        self.workflows = [each for each in self.workflows if each.name != name]


def make_workflow_fault() -> Diagnostic:
    return Diagnostic(code="file_name", location="fix", field="loop.condition")
