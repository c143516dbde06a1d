"""What a boundary passes around while it finds out what comes next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from bot.engine.llm.base import CapHit
from bot.engine.workflow.asking import Leave
from bot.engine.workflow.graph import Node
from bot.engine.workflow.routing.flow import Flow
from bot.engine.workflow.steps import Next
from storage.db import Transaction
from storage.records.approvals import Approval
from storage.records.tasks import Task

STOP = "@stop"
"""In the output of a step that failed while others ran: how its task is to end."""


class Leaves(Protocol):
    """Who says whether a step may be taken."""

    async def leave(
        self, tx: Transaction, task: Task, node: Node, beside: Callable[[str], bool]
    ) -> Leave:
        """`beside` says which other steps, by their paths, may wait for a person as well."""
        ...


AskForMore: TypeAlias = Callable[[Transaction, Task, CapHit], Awaitable[Approval]]
"""Asks people to extend a cap, in the transaction that lets the task wait for it."""


@dataclass(frozen=True, slots=True)
class Money:
    """A cap that was reached: who is asked to extend it, until when that is waited for, and what
    the Boss is told of it."""

    approval: Approval
    until: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class Wants:
    """What the work itself wants while other steps still run: money; or a new plan, and why.
    `planning` is the step before which that is being made, `declined` the last order for one that
    has brought none."""

    replan: str = ""
    planning: str = ""
    declined: int = 0
    money: Money | None = None


@dataclass(frozen=True, slots=True)
class Here:
    """The transaction, the task as it has locked it, its workflow under way, and the session whose
    number is kept with what is begun."""

    tx: Transaction
    task: Task
    flow: Flow
    session: str


@dataclass(slots=True)
class Round:
    """What one look at the steps has found."""

    begun: list[Next]
    asked: list[Approval]
    settled: bool = False
