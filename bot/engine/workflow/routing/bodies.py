"""The rounds of one loop or foreach that is under way, and what they bring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.engine.workflow.model.layout import Ring
from bot.engine.workflow.model.nodes import NodeType, OnError
from bot.engine.workflow.model.shape import Node
from bot.engine.workflow.nodes.base import Rounds
from bot.engine.workflow.routing.frame import Frame
from bot.engine.workflow.routing.marks import brought, is_dead
from bot.engine.workflow.routing.paths import Place

_MOST_IN_ALL = 1_000_000
_LEAST_OF_ONE = 200
_LEAST_OF_ALL = 50_000
_OF_A_NUMBER = 8
_MOST_DEEP = 30


@dataclass(slots=True)
class Body:
    """`of` is what the rounds go through, `brought` what each that is over has brought."""

    node: Node
    place: Place
    of: Mapping[str, Any]
    brought: dict[int, Any] = field(default_factory=dict)
    opened: int = 0
    let_go: bool = False

    @property
    def rounds(self) -> Rounds:
        return Rounds(of=self.of, brought=self.brought, opened=self.opened, let_go=self.let_go)

    @property
    def so_far(self) -> Mapping[str, Any]:
        """What it would have brought with the rounds that are over."""
        results = [self.brought[n] for n in sorted(self.brought)]
        if self.node.type == NodeType.FOREACH:
            return {"results": results, "total": len(results), "of": len(self.of["items"])}
        return {"rounds": len(results), "last": results[-1] if results else None}

    @property
    def forgives(self) -> bool:
        """Whether a round that fails is only noted as such."""
        return self.node.on_error is not OnError.FAIL

    def close(self, n: int, frame: Frame, lost: str | None) -> None:
        """`lost` is why the round has brought nothing."""
        result = _result(frame) if lost is None else {"error": lost}
        self.brought[n] = _Scissors(self._most).cut(result)

    def cut(self, left: Any) -> Any:
        """What rounds under way have brought, as large as one that is over may be."""
        return _Scissors(max(self._most, _LEAST_OF_ALL)).cut(left)

    @property
    def _most(self) -> int:
        """Characters of one round, so that the results of all stay a row of fair size."""
        total = len(self.of.get("items", ())) or 1
        return max(_LEAST_OF_ONE, _MOST_IN_ALL // total)


def _result(frame: Frame) -> Any:
    """What its last node has brought, or each of them where it ends in several. A step that people
    have put in meanwhile is none of these: what it stands behind is, as it was planned."""
    runs = {name: frame.runs[name] for name in _planned_last(frame.ring) if name in frame.runs}
    came = {name: dict(brought(run)) for name, run in runs.items() if not is_dead(run)}
    return next(iter(came.values())) if len(came) == 1 else came


def _planned_last(ring: Ring) -> Iterable[str]:
    found: dict[str, None] = {}
    open_, seen = list(reversed(ring.last)), set[str]()
    while open_:
        name = open_.pop()
        before = [edge.source for edge in ring.into.get(name, ())]
        if not ring.nodes[name].given or not before:
            found[name] = None
            continue
        seen.add(name)
        open_ += [each for each in reversed(before) if each not in seen]
    return found


class _Scissors:
    """Cuts a value down to about so many characters in all, no part of it deeper than may be."""

    def __init__(self, most: int) -> None:
        self._left = most

    def cut(self, value: Any, deep: int = 0) -> Any:
        if isinstance(value, str):
            return self._piece(value)
        if deep > _MOST_DEEP:
            return None
        if isinstance(value, Mapping):
            own = (str(key) for key in value)
            return {self._piece(key): self.cut(value[key], deep + 1) for key in own if self._left}
        if isinstance(value, list):
            return [self.cut(each, deep + 1) for each in value if self._left]
        self._left = max(0, self._left - _OF_A_NUMBER)
        return value

    def _piece(self, text: str) -> str:
        piece = text[: self._left]
        self._left -= len(piece)
        return piece
