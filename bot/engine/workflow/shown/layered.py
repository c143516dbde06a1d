"""Where the boxes of a drawing stand: layer under layer, along the edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

GAP_X = 26.0
GAP_Y = 46.0
_SWEEPS = 6
_MOST_BENDS = 3_000
_BEND = 14.0


@dataclass(frozen=True, slots=True)
class Size:
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Spot:
    """The left upper corner of a box, and the lower end of its layer."""

    x: float
    y: float
    floor: float


@dataclass(slots=True)
class Drawn:
    """`ways` are the points that a line over several layers goes through, by its two ends."""

    spots: dict[str, Spot] = field(default_factory=dict)
    ways: dict[tuple[str, str], tuple[Spot, ...]] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0


def arranged(sizes: Mapping[str, Size], links: Sequence[tuple[str, str]]) -> Drawn:
    """`links` lead forward only: no circles. The order of `sizes` is kept where nothing speaks
    against it."""
    return _Arrangement(sizes, links).drawn()


class _Arrangement:
    def __init__(self, sizes: Mapping[str, Size], links: Sequence[tuple[str, str]]) -> None:
        self._sizes = dict(sizes)
        self._links = list(dict.fromkeys(links))
        self._layer = _layers(sizes, self._links)
        self._bends: dict[tuple[str, str], list[str]] = {}
        self._up: dict[str, list[str]] = defaultdict(list)
        self._down: dict[str, list[str]] = defaultdict(list)
        self._bend_long_ones()
        self._rows: list[list[str]] = [[] for _ in range(max(self._layer.values(), default=-1) + 1)]
        for name in self._sizes:
            self._rows[self._layer[name]].append(name)

    def drawn(self) -> Drawn:
        for n in range(_SWEEPS):
            self._sweep(down=n % 2 == 0)
        lefts = self._lefts()
        spots: dict[str, Spot] = {}
        y = 0.0
        for row in self._rows:
            floor = y + max((self._sizes[each].height for each in row), default=0.0)
            spots.update({each: Spot(lefts[each], y, floor) for each in row})
            y = floor + GAP_Y
        right = max((lefts[name] + self._sizes[name].width for name in spots), default=0.0)
        ways = {
            link: tuple(_middle(spots[each]) for each in bends)
            for link, bends in self._bends.items()
        }
        bends = {each for each in spots if each not in self._names()}
        shown = {name: spot for name, spot in spots.items() if name not in bends}
        return Drawn(spots=shown, ways=ways, width=right, height=max(0.0, y - GAP_Y))

    def _names(self) -> set[str]:
        bends = {each for row in self._bends.values() for each in row}
        return set(self._sizes) - bends

    def _bend_long_ones(self) -> None:
        """A line over several layers takes a place of its own in each, as long as they are few."""
        spans = [self._layer[b] - self._layer[a] - 1 for a, b in self._links]
        bend = sum(spans) <= _MOST_BENDS
        for link, span in zip(self._links, spans, strict=True):
            source, target = link
            stops = [f"{source}\0{target}\0{n}" for n in range(span)] if bend else []
            for n, stop in enumerate(stops, 1):
                self._sizes[stop] = Size(_BEND, 0.0)
                self._layer[stop] = self._layer[source] + n
            self._bends[link] = stops
            chain = [source, *stops, target]
            for a, b in pairwise(chain):
                self._down[a].append(b)
                self._up[b].append(a)

    def _sweep(self, *, down: bool) -> None:
        """Each where the middle of its neighbours is."""
        others = self._up if down else self._down
        rows = self._rows if down else self._rows[::-1]
        before: dict[str, int] = {}
        for row in rows:
            if before:
                place = {name: n for n, name in enumerate(row)}
                means = {name: _mean(others[name], before, place[name]) for name in row}
                row.sort(key=means.__getitem__)
            before = {name: n for n, name in enumerate(row)}

    def _lefts(self) -> Mapping[str, float]:
        lefts: dict[str, float] = {}
        for row in self._rows:
            x = 0.0
            for name in row:
                lefts[name] = x
                x += self._sizes[name].width + GAP_X
        for n in range(_SWEEPS):
            others = self._up if n % 2 == 0 else self._down
            for row in self._rows if n % 2 == 0 else self._rows[::-1]:
                self._shift(row, others, lefts)
        first = min(lefts.values(), default=0.0)
        return {name: x - first for name, x in lefts.items()}

    def _shift(
        self, row: Sequence[str], others: Mapping[str, list[str]], lefts: dict[str, float]
    ) -> None:
        """Towards the middle of the neighbours, without passing one another: as far left as that
        goes, as far right as that goes, and between the two."""
        wanted = [self._wanted(name, others.get(name, []), lefts) for name in row]
        widths = [self._sizes[name].width + GAP_X for name in row]
        from_left: list[float] = []
        for want, width in zip(wanted, [0.0, *widths], strict=False):
            from_left.append(max(want, from_left[-1] + width) if from_left else want)
        from_right: list[float] = []
        for want, width in zip(wanted[::-1], widths[::-1], strict=True):
            from_right.append(min(want, from_right[-1] - width) if from_right else want)
        for name, a, b in zip(row, from_left, from_right[::-1], strict=True):
            lefts[name] = (a + b) / 2

    def _wanted(self, name: str, others: Sequence[str], lefts: Mapping[str, float]) -> float:
        if not others:
            return lefts[name]
        middles = [lefts[each] + self._sizes[each].width / 2 for each in others]
        return sum(middles) / len(middles) - self._sizes[name].width / 2


def _layers(names: Mapping[str, object], links: Sequence[tuple[str, str]]) -> dict[str, int]:
    behind: dict[str, list[str]] = defaultdict(list)
    left = dict.fromkeys(names, 0)
    for source, target in links:
        behind[source].append(target)
        left[target] += 1
    layer = dict.fromkeys(names, 0)
    free = [name for name, n in left.items() if not n]
    for name in free:
        for other in behind[name]:
            layer[other] = max(layer[other], layer[name] + 1)
            left[other] -= 1
            if not left[other]:
                free.append(other)
    return layer


def _mean(names: Sequence[str], at: Mapping[str, int], own: int) -> float:
    found = [at[name] for name in names if name in at]
    return sum(found) / len(found) if found else float(own)


def _middle(spot: Spot) -> Spot:
    return Spot(spot.x + _BEND / 2, spot.y, spot.floor)
