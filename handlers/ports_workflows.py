"""Declares what handlers need to keep versions of named workflows and to exchange them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from storage.records import workflows
from storage.records.dry_runs import EvaluatedExpression, WorkflowDryRun, WorkflowTestReport
from storage.records.people import Language, Person
from storage.records.prompt_versions import WorkflowVersions
from storage.records.tasks import Task


class WorkflowHistoryPort(Protocol):
    """Versions of named workflows. `via` says where a text comes from. Implementations must check
    in every change that `by` is an owner, and raise NotAllowed otherwise. Calls raise
    WorkflowRefused."""

    async def list_versions(self, name: str) -> WorkflowVersions:
        """The versions of the workflow of exactly this name, which may be deleted. Raises UNKNOWN
        if it has none."""

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
    ) -> workflows.NamedWorkflow:
        """Save atomically as a new version. EXISTS if the name is taken and `replace` is False;
        BROKEN if it is invalid. With the hash of the text that the change is `based_on`, only that
        is replaced: CHANGED if there is another or none by now, and the refused text is kept as a
        version."""

    async def roll_back(
        self, name: str, number: int, *, by: Person, via: str, based_on: str = ""
    ) -> workflows.NamedWorkflow | None:
        """Save the text of this version as a new one; None if the file has it already. NO_VERSION
        if it is not kept. `based_on` as in `save`."""


class WorkflowExchangePort(Protocol):
    """Named workflows as single documents, and the gallery that comes with the program. Calls raise
    WorkflowRefused. Implementations must check in `apply_import` that `by` is an owner, and raise
    NotAllowed otherwise."""

    async def export(
        self, name: str, *, with_dependencies: bool = False
    ) -> workflows.WorkflowExport:
        """Export a workflow and its test cases as one document, with the workflows that it runs if
        asked for. Raises TOO_LARGE for a document that an import would refuse."""

    async def plan_import(self, text: str, *, as_name: str = "") -> workflows.ImportPlan:
        """Describe the effect of importing this document, under another name of the workflow if one
        is given. Raises BROKEN if it is no such document."""

    async def apply_import(
        self,
        text: str,
        *,
        by: Person,
        via: str,
        as_name: str = "",
        replace: bool = False,
        expected: str = "",
    ) -> workflows.ImportPlan:
        """Import the document, and return what was planned. Raises BROKEN if one of its workflows
        is invalid, EXISTS for other texts of the same names unless `replace`, and CHANGED if the
        document's hash is not the `expected` one. Repeating it changes nothing."""

    async def list_gallery(self, language: Language) -> Sequence[workflows.GalleryWorkflow]:
        """All workflows of the built-in gallery, in that language."""

    async def find_in_gallery(self, name: str, language: Language) -> workflows.GalleryWorkflow:
        """Find a workflow of the gallery. Raises UNKNOWN if there is none."""


class DryRunPort(Protocol):
    """Workflows on given outputs, without a model; nothing is stored. Calls raise
    WorkflowRefused."""

    async def dry_run(
        self,
        name: str,
        values: Mapping[str, workflows.WorkflowInputValue],
        given: str,
        language: Language,
    ) -> WorkflowDryRun:
        """Describe a run with these `values`. `given` is YAML or JSON with outputs and decisions,
        or empty. Raises BROKEN if it does not fit the workflow."""

    async def test(self, name: str, language: Language) -> WorkflowTestReport:
        """Run the workflow's test cases. Raises NO_TESTS if there are none."""


class RunExpressionPort(Protocol):
    """Expressions in the scopes of stored runs; nothing is changed. Implementations must remove
    secrets and the engine's own fields from values."""

    async def evaluate(
        self, task: Task, expression: str, language: Language, node: str = ""
    ) -> EvaluatedExpression:
        """Evaluate an expression in the outermost scope as it is now, or in the scope that a node
        saw when it last started: `node` is its id, title or path. The caller has checked that the
        person may see the task. Raises RerunRefused for a task without a plan, and for a node that
        is unknown or has not run."""
