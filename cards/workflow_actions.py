"""What buttons and forms about named workflows mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from cards.action_rules import ActionRules as _Action
from storage.records.people import Role
from storage.records.tasks import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowWorkflow(_Action):
    single_use: ClassVar[bool] = False
    name: str
    kind: Literal["show_workflow"] = "show_workflow"

    @property
    def command(self) -> str:
        return f"/workflow show {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWorkflow(_Action):
    """Run a named workflow; where it wants something first, the form for that is shown."""

    single_use: ClassVar[bool] = False
    name: str
    kind: Literal["run_workflow"] = "run_workflow"

    @property
    def command(self) -> str:
        return f"/workflow run {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FillWorkflow(_Action):
    """That form was sent: the press carries its inputs by name, beside what is `known`. It stays
    until what was sent is right, and makes one task."""

    single_use: ClassVar[bool] = False
    name: str
    known: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()
    model: str = ""
    backend: str = ""
    priority: Priority = Priority.IMPORTANT
    folder: str = ""
    kind: Literal["fill_workflow"] = "fill_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskWorkflowName(_Action):
    """Show the form by which a finished task's plan is kept."""

    single_use: ClassVar[bool] = False
    needs: ClassVar[Role] = Role.OWNER
    task_id: str
    kind: Literal["ask_workflow_name"] = "ask_workflow_name"

    @property
    def command(self) -> str:
        return f"/workflow save NAME {self.task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepWorkflow(_Action):
    """That form was sent; the press carries `name`."""

    single_use: ClassVar[bool] = False
    needs: ClassVar[Role] = Role.OWNER
    task_id: str
    kind: Literal["keep_workflow"] = "keep_workflow"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWorkflow(_Action):
    needs: ClassVar[Role] = Role.OWNER
    name: str
    kind: Literal["delete_workflow"] = "delete_workflow"

    @property
    def command(self) -> str:
        return f"/workflow delete {self.name} yes"


WorkflowAction: TypeAlias = (
    ShowWorkflow | RunWorkflow | FillWorkflow | AskWorkflowName | KeepWorkflow | DeleteWorkflow
)
