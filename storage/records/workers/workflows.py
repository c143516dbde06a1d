"""Named workflows as people see them: files that can be run again and again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

Value: TypeAlias = str | int | float | bool
"""What an input can be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFault:
    """`where` is a node, an edge or nothing; `field` a part of it. `key` is a text under
    `workflow.fault` or `workflows.fault`, with its facts."""

    key: str
    where: str = ""
    field: str = ""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInput:
    """`default` None: it has to be given where it is `required`."""

    name: str
    title: str = ""
    kind: Literal["text", "number", "bool", "choice"] = "text"
    options: tuple[str, ...] = ()
    default: Value | None = None
    required: bool = True

    @property
    def label(self) -> str:
        return self.title or self.name

    @property
    def is_open(self) -> bool:
        """Whether nothing can be run before somebody gives it."""
        return self.required and self.default is None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    id: str
    title: str
    type: str
    persona: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedWorkflow:
    """`name` is what it is called by, `file` the file's name; `title` and `description` are its
    own words about itself. `outputs` are the names of what it gives back."""

    name: str
    file: str = ""
    title: str = ""
    description: str = ""
    inputs: tuple[WorkflowInput, ...] = ()
    steps: tuple[WorkflowStep, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BadWorkflow:
    """A file, or a text, that cannot be run, with all that is wrong with it."""

    name: str
    file: str = ""
    faults: tuple[WorkflowFault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowShelf:
    """All there are, by name. `left_out` counts files beyond those that are read; `folder` is
    where they lie."""

    workflows: tuple[NamedWorkflow, ...] = ()
    bad: tuple[BadWorkflow, ...] = ()
    left_out: int = 0
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """The graph: as Mermaid text, and as a picture of so many bytes, relative to the data
    directory, if one could be made."""

    mermaid: str
    svg: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyWorkflow:
    """Ready to be run: what the task is called and what its workers are told, and the checked
    plan as the store keeps it."""

    title: str
    instruction: str
    body: Mapping[str, Any]


class WhyNoWorkflow(StrEnum):
    UNKNOWN = "unknown"
    BAD_NAME = "bad_name"
    BROKEN = "broken"
    EXISTS = "exists"
    TOO_LARGE = "too_large"
    NO_PLAN = "no_plan"
    UNWRITABLE = "unwritable"
    UNREADABLE = "unreadable"


class WorkflowRefused(Exception):
    """`faults` are there for BROKEN."""

    def __init__(
        self,
        reason: WhyNoWorkflow,
        name: str,
        detail: str = "",
        faults: tuple[WorkflowFault, ...] = (),
    ) -> None:
        self.reason = reason
        self.name = name
        self.detail = detail
        self.faults = faults
        super().__init__(f"{name}: {reason}")
