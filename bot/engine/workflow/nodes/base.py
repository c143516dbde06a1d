"""What a node sees when its turn comes, and what it can answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeAlias
from zoneinfo import ZoneInfo

from bot.engine.workflow.expressions.language import ExpressionError, evaluate, truth
from bot.engine.workflow.model.nodes import Assignment
from bot.engine.workflow.model.shape import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """`names` are what its expressions may speak of; `zone` is the Boss's own. `warn` is told of
    names that nobody knows."""

    now: datetime
    zone: ZoneInfo
    names: Mapping[str, Any]
    warn: Callable[[str], None]

    def value(self, expression: str) -> Any:
        """Raises ExpressionError."""
        return evaluate(expression, self.names)

    def holds(self, condition: str) -> bool:
        """What cannot be worked out does not hold."""
        return truth(condition, self.names, self.warn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """It is over. `variables` are set for the whole workflow; `to` is the one node that comes
    next, where it has chosen one."""

    output: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """It goes on at that time; None for when its rounds are through, which go through `of`."""

    until: datetime | None = None
    output: Mapping[str, Any] = field(default_factory=dict)
    of: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """It cannot be done. `key` is a text of the catalogue, with its facts."""

    key: str
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """It goes on when a person has allowed that. `key` is a text of the catalogue."""

    key: str
    facts: Mapping[str, object] = field(default_factory=dict)


Effect: TypeAlias = Done | Wait | Failed


class Handler(Protocol):
    """A node whose turn costs nothing but a line in the store."""

    def enter(self, node: Node, sight: Sight) -> Effect: ...

    def wake(self, node: Node, sight: Sight) -> Effect:
        """Its time has come."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How far a loop or foreach is: what it goes through, what each finished round has brought,
    by its number, the first that has not been opened, and whether a person has let it end."""

    of: Mapping[str, Any]
    brought: Mapping[int, Any]
    opened: int
    let_go: bool = False

    @property
    def running(self) -> int:
        return self.opened - len(self.brought)


class Rounder(Handler, Protocol):
    """A node that runs its body in rounds."""

    def names(self, node: Node, of: Mapping[str, Any], n: int) -> Mapping[str, Any]:
        """What its `n`-th round may speak of, counted from 0."""
        ...

    def more(self, node: Node, rounds: Rounds, sight: Sight) -> Effect | Ask | None:
        """A Wait opens one more round; None lets those that run go on."""
        ...


class Instant:
    """A node with nothing to wait for."""

    def enter(self, node: Node, sight: Sight) -> Effect:
        return Done()

    def wake(self, node: Node, sight: Sight) -> Effect:
        return self.enter(node, sight)


def sequence(value: Any) -> Sequence[Any] | None:
    """The items of a list, the entries of a mapping, or None for what has none."""
    if isinstance(value, Mapping):
        return [{"key": key, "value": each} for key, each in value.items()]
    return list(value) if isinstance(value, list | tuple) else None


def assigned(assignments: Iterable[Assignment], sight: Sight) -> Done | Failed:
    """Sets variables, one after the other: a later one sees the earlier. Its output is what it has
    set."""
    made: dict[str, Any] = {}
    for each in assignments:
        try:
            made[each.variable] = sight.value(str(each.value)) if each.is_expression else each.value
        except ExpressionError as error:
            return Failed(key="workflow.no_value", facts={"name": each.variable, "why": str(error)})
        variables = {**sight.names.get("variables", {}), **made}
        sight = replace(sight, names={**sight.names, "variables": variables})
    return Done(output=made, variables=made)
