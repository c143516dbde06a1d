"""Layered layout of boxes along their edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from itertools import count, pairwise
from statistics import fmean

GAP_X = 26.0
GAP_Y = 46.0
_ORDERING_SWEEPS = 6
_MAX_BENDS = 3_000
_BEND_WIDTH = 14.0


@dataclass(frozen=True, slots=True)
class BoxSize:
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class BoxPosition:
    """The upper left corner of a box, and the bottom of its layer."""

    x: float
    y: float
    layer_bottom: float


@dataclass(frozen=True, slots=True)
class LayeredLayout:
    """`bend_points` are the points that an edge over several layers passes, by its two ends."""

    positions: Mapping[str, BoxPosition]
    bend_points: Mapping[tuple[str, str], tuple[BoxPosition, ...]]
    width: float
    height: float


def arrange_layers(sizes: Mapping[str, BoxSize], links: Sequence[tuple[str, str]]) -> LayeredLayout:
    """`links` must be acyclic. The order of `sizes` is kept if possible."""
    return _LayerArrangement(sizes, links).layout()


class _LayerArrangement:
    def __init__(self, sizes: Mapping[str, BoxSize], links: Sequence[tuple[str, str]]) -> None:
        self._boxes = frozenset(sizes)
        self._sizes = dict(sizes)
        self._links = list(dict.fromkeys(links))
        self._layer = _assign_layers(sizes, self._links)
        self._bends: dict[tuple[str, str], list[str]] = {}
        self._up: dict[str, list[str]] = defaultdict(list)
        self._down: dict[str, list[str]] = defaultdict(list)
        self._add_bends()
        self._rows: list[list[str]] = [[] for _ in range(max(self._layer.values(), default=-1) + 1)]
        for name in self._sizes:
            self._rows[self._layer[name]].append(name)

    def layout(self) -> LayeredLayout:
        for n in range(_ORDERING_SWEEPS):
            self._sweep(down=n % 2 == 0)
        lefts = self._left_edges()
        spots: dict[str, BoxPosition] = {}
        y = 0.0
        for row in self._rows:
            floor = y + max((self._sizes[each].height for each in row), default=0.0)
            spots.update({each: BoxPosition(lefts[each], y, floor) for each in row})
            y = floor + GAP_Y
        return LayeredLayout(
            positions={name: spot for name, spot in spots.items() if name in self._boxes},
            bend_points={
                link: tuple(
                    replace(spots[each], x=spots[each].x + _BEND_WIDTH / 2) for each in bends
                )
                for link, bends in self._bends.items()
            },
            width=max((lefts[name] + self._sizes[name].width for name in spots), default=0.0),
            height=max(0.0, y - GAP_Y),
        )

    def _add_bends(self) -> None:
        """Reserve a place in each layer that an edge crosses, unless there are too many."""
        spans = [self._layer[b] - self._layer[a] - 1 for a, b in self._links]
        bend = sum(spans) <= _MAX_BENDS
        for link, span in zip(self._links, spans, strict=True):
            source, target = link
            stops = [f"{source}\0{target}\0{n}" for n in range(span)] if bend else []
            for n, stop in enumerate(stops, 1):
                self._sizes[stop] = BoxSize(_BEND_WIDTH, 0.0)
                self._layer[stop] = self._layer[source] + n
            self._bends[link] = stops
            chain = [source, *stops, target]
            for a, b in pairwise(chain):
                self._down[a].append(b)
                self._up[b].append(a)

    def _sweep(self, *, down: bool) -> None:
        """Order each row by the mean position of the neighbours in the row before."""
        others = self._up if down else self._down
        rows = self._rows if down else self._rows[::-1]
        before: dict[str, int] = {}
        for row in rows:
            if before:
                means: dict[str, float] = {}
                for n, name in enumerate(row):
                    places = [before[each] for each in others[name] if each in before]
                    means[name] = fmean(places) if places else n
                row.sort(key=means.__getitem__)
            before = {name: n for n, name in enumerate(row)}

    def _left_edges(self) -> Mapping[str, float]:
        lefts: dict[str, float] = {}
        for row in self._rows:
            x = 0.0
            for name in row:
                lefts[name] = x
                x += self._sizes[name].width + GAP_X
        for n in range(_ORDERING_SWEEPS):
            others = self._up if n % 2 == 0 else self._down
            for row in self._rows if n % 2 == 0 else self._rows[::-1]:
                self._shift(row, others, lefts)
        first = min(lefts.values(), default=0.0)
        return {name: x - first for name, x in lefts.items()}

    def _shift(
        self, row: Sequence[str], others: Mapping[str, list[str]], lefts: dict[str, float]
    ) -> None:
        """Move boxes towards the middle of their neighbours without overlap: the mean of the
        leftmost and the rightmost placement."""
        wanted = [self._preferred_left(name, others[name], lefts) for name in row]
        widths = [self._sizes[name].width + GAP_X for name in row]
        from_left: list[float] = []
        for want, width in zip(wanted, [0.0, *widths], strict=False):
            from_left.append(max(want, from_left[-1] + width) if from_left else want)
        from_right: list[float] = []
        for want, width in zip(wanted[::-1], widths[::-1], strict=True):
            from_right.append(min(want, from_right[-1] - width) if from_right else want)
        for name, a, b in zip(row, from_left, from_right[::-1], strict=True):
            lefts[name] = (a + b) / 2

    def _preferred_left(
        self, name: str, others: Sequence[str], lefts: Mapping[str, float]
    ) -> float:
        if not others:
            return lefts[name]
        middle = fmean(lefts[each] + self._sizes[each].width / 2 for each in others)
        return middle - self._sizes[name].width / 2


def _assign_layers(names: Iterable[str], links: Sequence[tuple[str, str]]) -> dict[str, int]:
    sorter = TopologicalSorter[str](dict.fromkeys(names, ()))
    for source, target in links:
        sorter.add(target, source)
    sorter.prepare()
    layer: dict[str, int] = {}
    for n in count():
        ready = sorter.get_ready()
        if not ready:
            break
        layer.update(dict.fromkeys(ready, n))
        sorter.done(*ready)
    return layer
