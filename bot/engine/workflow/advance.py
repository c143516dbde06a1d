"""What happens at a step boundary: a function of the plan, the runs and what people want."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bot.engine.workflow.course import Course
from bot.engine.workflow.graph import Node, Workflow
from storage.records.tasks import Control, NodeRun


@dataclass(frozen=True, slots=True)
class Start:
    """Go on with this node."""

    node: Node


@dataclass(frozen=True, slots=True)
class Complete:
    """Nothing is left to do."""


@dataclass(frozen=True, slots=True)
class Park:
    """Give the slot back because somebody asked for it: pause, or yield to better work."""

    control: Control


@dataclass(frozen=True, slots=True)
class Stuck:
    """No node can run and the plan is not done: a step failed, or waits for a person."""

    failed: NodeRun | None


Move: TypeAlias = Start | Complete | Park | Stuck


def advance(workflow: Workflow, runs: Mapping[str, NodeRun], control: Control) -> Move:
    return go_on(Course(workflow, runs), control)


def go_on(course: Course, control: Control) -> Move:
    """A finished plan counts as finished even where a pause was asked for."""
    if course.is_complete:
        return Complete()
    if control is not Control.RUN:
        return Park(control)
    free = next(course.ready(), None)
    return Stuck(course.failed) if free is None else Start(free)
