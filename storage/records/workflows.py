"""Defines named workflows: files that can be run repeatedly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

WorkflowInputValue: TypeAlias = str | int | float | bool
"""A value for a workflow input."""

InputKind: TypeAlias = Literal["text", "number", "bool", "choice", "date"]
"""The type of an input; a date is a text like 2026-11-27."""


class DiagnosticSeverity(StrEnum):
    """An error keeps the workflow from running; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """A fault or a warning of a workflow's file, with its place. Its message is the text `code`
    under `workflow.fault`, `workflow.warning` or `workflows.fault`, filled with `facts`.

    `file` is its name, empty for a text without one. `location` is a node, an edge or an input;
    `field` a part of it in the author's words. `line` and `column` count from 1 and are 0 if the
    place is not known. `written` is the author's text there, `suggestion` what may have been
    meant."""

    code: str
    severity: DiagnosticSeverity = DiagnosticSeverity.ERROR
    file: str = ""
    location: str = ""
    field: str = ""
    line: int = 0
    column: int = 0
    written: str = ""
    suggestion: str = ""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInput:
    """An input without `default` must be given if it is `required`."""

    name: str
    title: str = ""
    kind: InputKind = "text"
    options: tuple[str, ...] = ()
    default: WorkflowInputValue | None = None
    required: bool = True

    @property
    def label(self) -> str:
        return self.title or self.name

    @property
    def must_be_given(self) -> bool:
        """Whether the workflow cannot run without a value for it."""
        return self.required and self.default is None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    id: str
    title: str
    type: str
    persona: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWorkflow:
    """A named workflow. `name` invokes it, `file` is the file's name; `title` and `description`
    come from the file. `outputs` are the names of its results; `warnings` don't keep it from
    running."""

    name: str
    file: str = ""
    title: str = ""
    description: str = ""
    inputs: tuple[WorkflowInput, ...] = ()
    steps: tuple[WorkflowStep, ...] = ()
    outputs: tuple[str, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidWorkflowFile:
    """A file or text that cannot be run, with all its errors."""

    name: str
    file: str = ""
    errors: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCatalog:
    """All workflows by name. `foreign` says what else is in the folder and is not read. `left_out`
    counts files beyond the reading limit; `folder` contains them."""

    workflows: tuple[NamedWorkflow, ...] = ()
    invalid: tuple[InvalidWorkflowFile, ...] = ()
    foreign: tuple[Diagnostic, ...] = ()
    left_out: int = 0
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDrawing:
    """The graph as Mermaid text and, if it could be drawn, as a drawing: its path relative to the
    data directory and its size in bytes. `png` is the path of the same as a picture, empty if there
    is none."""

    mermaid: str
    svg: str = ""
    size: int = 0
    png: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPictures:
    """A task's plan with what was taken, and the timeline of its run: paths relative to the data
    directory, each empty if there is none, and that of the plan as a drawing for a browser."""

    plan: str = ""
    timeline: str = ""
    drawing: WorkflowDrawing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCheck:
    """The judgement of a text. `svg` is a drawing without styles of its own; empty if it is invalid
    or the drawing would be too large."""

    workflow: NamedWorkflow | InvalidWorkflowFile
    svg: str = ""

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Its errors, or the warnings of a valid one."""
        match self.workflow:
            case InvalidWorkflowFile(errors=errors):
                return errors
            case NamedWorkflow(warnings=warnings):
                return warnings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSource:
    """The text of a workflow's file, valid or not. A change that names its `hash` is refused if the
    text is another by then."""

    name: str
    file: str
    text: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedWorkflow:
    """A workflow ready to run: the task's title, its instruction for workers, and the checked plan
    as stored."""

    title: str
    instruction: str
    body: Mapping[str, Any]


class ImportState(StrEnum):
    """The effect of an import on a file: makes it, leaves it, or replaces another text."""

    NEW = "new"
    SAME = "same"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportItem:
    """A workflow of an import, or with `is_test` its test cases. `based_on` is the hash of the text
    that is there, empty if none is. With `errors` nothing can be imported."""

    name: str
    state: ImportState
    is_test: bool = False
    based_on: str = ""
    errors: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportNeed:
    """A thing that a step asks for when it runs: `kind` is people, limit (a person at the limit of
    a loop), persona, files or call; `detail` is a name, a path, or the call itself."""

    workflow: str
    step: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The plan of an import. `hash` is that of the text. What is missing has to be made before
    the workflow runs."""

    name: str
    hash: str
    items: tuple[ImportItem, ...]
    needs: tuple[ImportNeed, ...] = ()
    missing_personas: tuple[str, ...] = ()
    missing_skills: tuple[str, ...] = ()
    missing_workflows: tuple[str, ...] = ()

    @property
    def is_broken(self) -> bool:
        return any(each.errors for each in self.items)

    @property
    def has_conflicts(self) -> bool:
        return any(each.state is ImportState.CHANGED for each in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowExport:
    """A workflow as one document; `file` has it too, relative to the data directory, empty if it
    could not be written. `size` is in bytes."""

    name: str
    text: str
    file: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryWorkflow:
    """A workflow that comes with the program: its description, its text, and the document with its
    test cases that installs it."""

    workflow: NamedWorkflow
    text: str
    document: str


class ChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChange:
    """One difference of a workflow's definition. `what` is node, edge or setting; `name` is the
    node's id, or an edge's ends; `field` is set for what was changed."""

    kind: ChangeKind
    what: str
    name: str
    field: str = ""
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiff:
    """The differences between the definition that a task has begun with and the workflow's file as
    it is now."""

    name: str
    changes: tuple[DefinitionChange, ...]


class WorkflowRefusalReason(StrEnum):
    UNKNOWN = "unknown"
    BAD_NAME = "bad_name"
    BROKEN = "broken"
    EXISTS = "exists"
    CHANGED = "changed"
    TOO_LARGE = "too_large"
    NO_PLAN = "no_plan"
    NO_TESTS = "no_tests"
    UNWRITABLE = "unwritable"
    UNREADABLE = "unreadable"
    NO_VERSION = "no_version"


class WorkflowRefused(Exception):
    """`errors` is set for BROKEN. `detail` of CHANGED is the version in which the refused text is
    kept, empty if it is not."""

    def __init__(
        self,
        reason: WorkflowRefusalReason,
        name: str,
        detail: str = "",
        errors: tuple[Diagnostic, ...] = (),
    ) -> None:
        self.reason = reason
        self.name = name
        self.detail = detail
        self.errors = errors
        super().__init__(f"{name}: {reason}")
