"""What passes between the boundary and whoever does the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bot.engine.agent.desk import Reply
from bot.engine.llm.answers import StepAnswer
from bot.engine.workflow.graph import Node, Workflow
from storage.records.tasks import NodeRun, Task, TaskStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How a step's try ended, ready to be stored. `notes` is what its worker wants remembered.
    `again` lets the step run once more; `stop` ends the task's run with that status and reason
    instead."""

    run: NodeRun
    title: str
    reply: Reply | None
    notes: StepAnswer | None = None
    again: bool = False
    stop: tuple[TaskStatus, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """Why what is left wants a new plan. `order` is the number of the order that asks for it, 0
    where the work itself does."""

    why: str
    order: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The step that has been marked running, with what it may look at; `said` is what people
    told the worker since the task was made. `replan` asks for a new plan before it is tried."""

    task: Task
    workflow: Workflow
    runs: Mapping[str, NodeRun]
    node: Node
    run: NodeRun
    said: Sequence[str]
    replan: Replan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """All steps are done; what is left is to bring the work into its project."""

    task: Task


Following: TypeAlias = Next | Landing | None
"""What comes after a boundary; None if the slot was given back."""
