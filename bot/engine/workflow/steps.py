"""What passes between the boundary and whoever does the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from bot.engine.agent.desk import Reply
from bot.engine.llm.answers import PlanAnswer, StepAnswer
from bot.engine.workflow.forms.answers import workflow_of
from bot.engine.workflow.graph import Node, Workflow
from bot.engine.workflow.places.artifacts import Collected
from bot.engine.workflow.routing.hearing import DEAF, HEARD
from bot.engine.workflow.verdict import Verdict
from storage.records.tasks import NodeRun, Task, TaskStatus
from storage.work.journal import Report

_MOST_KEPT = 20_000
_MOST_TITLE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How a step's try ended, ready to be stored. `notes` is what its worker wants remembered.
    `again` lets the step run once more; `stop` ends the task's run with that status and reason
    instead, `hopeless` whatever the workflow says of steps that fail."""

    run: NodeRun
    title: str
    reply: Reply | None
    notes: StepAnswer | None = None
    again: bool = False
    stop: tuple[TaskStatus, str] | None = None
    hopeless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replan:
    """Why what is left wants a new plan. `order` is the number of the order that asks for it, 0
    where the work itself does. `so_far` is what the finished rounds of nodes under way have
    brought."""

    why: str
    order: int = 0
    so_far: Sequence[NodeRun] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """The step that has been marked running, with what it may look at; `said` is what people
    told the worker since the task was made. `node` is the step as it is done this time: its id is
    the path of this activation, and its texts are filled in. `runs` has every run by its path,
    and by a node's id the one that counts for this step. `lane` is the session it shares with
    others. `replan` asks for a new plan before it is tried. `resumes` says that its session ends
    with calls of tools that somebody has decided about; `deaf` are the numbers of the helpers'
    reports in `said` that other steps hear."""

    task: Task
    workflow: Workflow
    runs: Mapping[str, NodeRun]
    node: Node
    run: NodeRun
    said: Sequence[str]
    replan: Replan | None = None
    resumes: bool = False
    lane: str = ""
    deaf: frozenset[int] = frozenset()

    @property
    def hears(self) -> dict[str, object]:
        """What is kept of it: how much of what was said its worker is told, and of that not."""
        heard: dict[str, object] = {HEARD: len(self.said)}
        return {**heard, DEAF: sorted(self.deaf)} if self.deaf else heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps that have been marked running; none where others still run, or where a boundary was
    not enough for all that goes on by itself. Somebody should look again at `look_at`, or, with
    `listens`, when a person has decided or ordered something."""

    steps: tuple[Next, ...] = ()
    look_at: datetime | None = None
    listens: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """All steps are done; what is left is to bring the work into its project."""

    task: Task


Following: TypeAlias = Steps | Landing | None
"""What comes after a boundary; None if the slot was given back."""


def attempted(
    step: Next,
    verdict: Verdict,
    reply: Reply | None,
    output: dict[str, object],
    *,
    now: datetime,
    notes: StepAnswer | None = None,
) -> Attempt:
    """The step's try, as it was judged."""
    run = replace(step.run, status=verdict.status, output=output, error=verdict.error, ended_at=now)
    return Attempt(
        run=run,
        title=step.node.title,
        reply=reply,
        notes=notes,
        again=verdict.again,
        stop=verdict.stop,
        hopeless=verdict.hopeless,
    )


def planned(reply: Reply) -> Workflow:
    """The plan that was answered. Raises BadGraph where it is one that cannot be run."""
    answer = reply.result.value
    assert isinstance(answer, PlanAnswer)
    return workflow_of(answer)


def closing_title(said: Sequence[str]) -> str:
    """The step that makes something of what helpers have reported."""
    labels = [text.label for text in said if isinstance(text, Report)]
    return f"🤝 {', '.join(labels)}"[:_MOST_TITLE]


def output_of(answer: StepAnswer, collected: Collected, step: Next) -> dict[str, object]:
    """`made` as the worker knows them, `files` as the Boss gets them."""
    return {
        "summary": answer.summary[:_MOST_KEPT],
        "made": list(answer.files),
        "files": list(collected.copies),
        "left_out": list(collected.left_out),
        **step.hears,
    }
