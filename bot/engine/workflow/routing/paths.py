"""How the activations of nodes are called: `fix#2` is the second time that a loop has come back to
`fix`, `each[3]/read` the fourth round of `each`, `@back:e7` a note on an edge."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ROUND = re.compile(r"^(?P<id>[^#@/\[\]]+)(?:#(?P<round>\d+))?$")
BACK = "@back:"
_ASK = "@ask:"
_OF = "@of:"

VARIABLES = "@variables"
"""Where a workflow's variables are kept."""

LATE = "@late"
"""Where it is kept when the workflow ran out of time."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One activation of a node. `scope` is empty, or ends with a slash; `round` counts from 1."""

    scope: str
    node: str
    round: int = 1

    @property
    def path(self) -> str:
        again = f"#{self.round}" if self.round > 1 else ""
        return f"{self.scope}{self.node}{again}"

    def inside(self, n: int) -> str:
        """The scope of its `n`-th round, counted from 0."""
        return f"{self.path}[{n}]/"

    @property
    def asked(self) -> str:
        """Where a person is asked whether to go on behind it."""
        return f"{self.scope}{_ASK}{self.path.removeprefix(self.scope)}"

    @property
    def of(self) -> str:
        """Where it is kept what its rounds go through."""
        return f"{self.scope}{_OF}{self.path.removeprefix(self.scope)}"


def place_of(path: str) -> Place | None:
    """None for what is no activation of a node."""
    scope, _, name = path.rpartition("/")
    found = _ROUND.match(name)
    if found is None:
        return None
    return Place(f"{scope}/" if scope else "", found["id"], int(found["round"] or 1))


def back(scope: str, edge: str) -> str:
    """Where it is kept how often an edge was taken that leads back."""
    return f"{scope}{BACK}{edge}"


def scope_of(path: str) -> str:
    scope, slash, _ = path.rpartition("/")
    return scope + slash


def outer(scope: str) -> tuple[str, int] | None:
    """The path of the node whose round this scope is, and which; None for the outermost."""
    found = re.fullmatch(r"(.*)\[(\d+)\]/", scope)
    return (found[1], int(found[2])) if found else None


def asked_of(path: str) -> str | None:
    """The path that is asked about there; None for what is no question."""
    scope = scope_of(path)
    name = path.removeprefix(scope)
    return scope + name.removeprefix(_ASK) if name.startswith(_ASK) else None
