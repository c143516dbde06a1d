"""A workflow as a picture: boxes in layers, bodies of loops in boxes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from unicodedata import east_asian_width

from bot.engine.workflow.model.layout import OUTERMOST, Layout, Ring
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Edge, Node, Workflow
from bot.engine.workflow.shown.layered import Drawn, Size, Spot, arranged
from bot.engine.workflow.shown.mermaid import name_of
from bot.engine.workflow.shown.paint import COLOURS, STYLE, Colour
from bot.engine.workflow.shown.states import Now, is_taken, states
from cards import formats
from cards.safe_text import in_line
from cards.words import Words, words_for
from storage.records.people import Language
from storage.records.tasks import NodeRun, NodeStatus

MOST = 200
"""Boxes in one picture: more can be read by nobody."""

_EDGE = 16.0
_HEAD = 30.0
_LANE = 16.0
_LINE = 17.0
_WIDE = 200.0
_SLIM = 84.0
_CHAR, _FULL = 7.1, 13.2
_SMALL = 0.86
_TOLD = 26
_ROUND = {NodeType.START, NodeType.END}
_CHOICES = {NodeType.CONDITION, NodeType.SWITCH}
_PLUMBING = {*_CHOICES, NodeType.PARALLEL, NodeType.JOIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inside:
    """A ring as it is laid out, with those inside its nodes."""

    ring: Ring
    links: tuple[Edge, ...]
    back: tuple[Edge, ...]
    drawn: Drawn
    sizes: Mapping[str, Size]
    width: float


def svg(
    workflow: Workflow,
    runs: Mapping[str, NodeRun] | None = None,
    words: Words | None = None,
) -> str:
    """A picture without script or anything from elsewhere; with `runs` it shows how far each node
    is. Of a very large workflow it shows the first nodes."""
    return "".join(_Picture(workflow, runs or {}, words or words_for(Language.ENGLISH)).parts())


class _Picture:
    def __init__(self, workflow: Workflow, runs: Mapping[str, NodeRun], words: Words) -> None:
        self._words = words
        self._layout = Layout(workflow)
        self._now = Now(self._layout, runs)
        self._states = states(self._layout, runs)
        self._shown = {node.id for node in workflow.nodes[:MOST]}
        self._more = len(workflow.nodes) - len(self._shown)
        self._name = in_line(workflow.name or workflow.plan)[:200]
        self._rings: dict[str, _Inside] = {}
        self._outermost = self._measure(OUTERMOST)

    def parts(self) -> Iterator[str]:
        width = max(self._outermost.width, _WIDE) + 2 * _EDGE
        height = self._outermost.drawn.height + 2 * _EDGE + (_LINE + 8 if self._more else 0)
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="wf" role="img" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
            f'font-family="system-ui, sans-serif" font-size="13">'
        )
        yield f"<title>{_safe(self._name or self._words('graph.drawing'))}</title>"
        yield f"<style>{STYLE}</style>"
        yield (
            '<defs><marker id="wf-tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse"><path class="wf-head" fill="#82878d" '
            'd="M0 .5 8 4 0 7.5z"/></marker></defs>'
        )
        yield f'<rect class="wf-back" fill="#ffffff" width="{width:.0f}" height="{height:.0f}"/>'
        shift = (width - 2 * _EDGE - self._outermost.width) / 2
        yield from self._ring(self._outermost, _EDGE + shift, _EDGE)
        if self._more:
            more = self._words("graph.more", n=self._more)
            yield _text(more, width / 2, height - _EDGE, small=True)
        yield "</svg>"

    def _measure(self, name: str) -> _Inside:
        ring = self._layout.rings[name]
        nodes = [node for node in ring.nodes.values() if node.id in self._shown]
        sizes = {node.id: self._size(node) for node in nodes}
        links = [e for row in ring.out.values() for e in row if {e.source, e.target} <= set(sizes)]
        back = [e for e in ring.back.values() if {e.source, e.target} <= set(sizes)]
        drawn = arranged(sizes, [(e.source, e.target) for e in links])
        lanes = _LANE * (len(back) + 1) if back else 0.0
        inside = _Inside(
            ring=ring,
            links=tuple(links),
            back=tuple(back),
            drawn=drawn,
            sizes=sizes,
            width=drawn.width + lanes,
        )
        self._rings[name] = inside
        return inside

    def _size(self, node: Node) -> Size:
        if node.body:
            inner = self._measure(node.id)
            width = max(inner.width, _long(self._head(node)) + 12)
            return Size(width + 2 * _EDGE, inner.drawn.height + _HEAD + _EDGE)
        lines = self._lines(node)
        width = max(map(_long, lines)) + 34
        if self._below(node):
            width = max(width, _long(self._below(node)) * _SMALL + 28)
        height = _LINE * len(lines) + (15 if self._below(node) else 0) + 16
        return Size(max(_SLIM, width), height)

    def _lines(self, node: Node) -> list[str]:
        return _wrapped(name_of(node, self._words), 2)

    def _below(self, node: Node) -> str:
        """What kind of node it is, where its shape does not tell."""
        if node.type in {NodeType.TASK, *_ROUND}:
            return formats.line(in_line(node.persona), 24)
        return self._words(f"graph.type.{node.type}")

    def _head(self, node: Node) -> str:
        return f"{formats.line(in_line(node.title), 34)} · {self._words(f'graph.type.{node.type}')}"

    def _ring(self, inside: _Inside, x: float, y: float) -> Iterator[str]:
        for n, edge in enumerate(inside.back, 1):
            yield self._returning(inside, edge, x, y, x + inside.drawn.width + n * _LANE)
        for edge in inside.links:
            yield self._link(inside, edge, x, y)
        for name, spot in inside.drawn.spots.items():
            yield from self._node(
                inside.ring.nodes[name], inside.sizes[name], x + spot.x, y + spot.y
            )
        for edge in inside.links:
            yield self._told(inside, edge, x, y)

    def _node(self, node: Node, size: Size, x: float, y: float) -> Iterator[str]:
        status = self._states.get(node.id, NodeStatus.PENDING)
        colour = COLOURS[status]
        state = self._words(f"render.web.state_{status.value}") if self._states else ""
        told = " — ".join(filter(None, (name_of(node, self._words)[:200], state)))
        yield f'<g class="wf-{status.value}"><title>{_safe(told)}</title>'
        yield _shape(node, size, x, y, colour)
        if node.body:
            yield _text(self._head(node), x + _EDGE, y + 20, anchor="start", small=True)
            inner = self._rings[node.id]
            left = x + (size.width - inner.width) / 2
            yield "</g>"
            yield from self._ring(inner, left, y + _HEAD)
            return
        lines, below = self._lines(node), self._below(node)
        top = y + (size.height - _LINE * len(lines) - (15 if below else 0)) / 2 + 13
        middle = x + size.width / 2
        for n, line in enumerate(lines):
            mark = f"{colour.mark} " if colour.mark and not n else ""
            yield _text(mark + line, middle, top + n * _LINE)
        if below:
            yield _text(below, middle, top + len(lines) * _LINE - 2, small=True)
        yield "</g>"

    def _link(self, inside: _Inside, edge: Edge, x: float, y: float) -> str:
        start, end = _ends(inside, edge, x, y)
        path = [f"M{start.x:.1f} {start.y:.1f}"]
        if start.floor > start.y:
            path.append(f"V{start.floor:.1f}")
        at = (start.x, start.floor)
        for stop in (*_stops(inside, edge, x, y), end):
            path.append(_curve(at, (stop.x, stop.y)))
            if stop is not end and stop.floor > stop.y:
                path.append(f"V{stop.floor:.1f}")
            at = (stop.x, stop.floor)
        return self._path(edge, "".join(path))

    def _returning(self, inside: _Inside, edge: Edge, x: float, y: float, lane: float) -> str:
        boxes = {name: (inside.drawn.spots[name], inside.sizes[name]) for name in inside.sizes}
        (a, a_size), (b, b_size) = boxes[edge.source], boxes[edge.target]
        start_y, end_y = y + a.y + a_size.height * 0.6, y + b.y + b_size.height * 0.4
        start_x, end_x = x + a.x + a_size.width, x + b.x + b_size.width
        path = (
            f"M{start_x:.1f} {start_y:.1f}H{lane - 8:.1f}Q{lane:.1f} {start_y:.1f} {lane:.1f} "
            f"{start_y - 8:.1f}V{end_y + 8:.1f}Q{lane:.1f} {end_y:.1f} {lane - 8:.1f} {end_y:.1f}"
            f"H{end_x:.1f}"
        )
        words = f"≤{edge.max_loops} {in_line(edge.label or edge.condition)}".strip()
        title = f"<title>{_safe(words[:200])}</title>"
        bound = f"≤{edge.max_loops}"
        shown = _text(bound, lane, (start_y + end_y) / 2, small=True, on_line=True)
        return self._path(edge, path, title, dashed=True) + shown

    def _path(self, edge: Edge, path: str, title: str = "", *, dashed: bool = False) -> str:
        taken = self._taken(edge)
        kind = {True: " wf-taken", False: " wf-left", None: ""}[taken]
        colour = {True: "#2b7d4f", False: "#c9c6bd", None: "#82878d"}[taken]
        dash = ' stroke-dasharray="5 4"' if dashed or taken is False else ""
        return (
            f'<path class="wf-edge{kind}" d="{path}" fill="none" stroke="{colour}"{dash} '
            f'stroke-width="1.5" marker-end="url(#wf-tip)">{title}</path>'
        )

    def _taken(self, edge: Edge) -> bool | None:
        """Not said of edges in bodies: each round may have gone another way."""
        if edge.source in self._layout.container:
            return None
        return is_taken(edge, self._now.run("", edge.source))

    def _told(self, inside: _Inside, edge: Edge, x: float, y: float) -> str:
        told = formats.line(in_line(edge.label or edge.condition), _TOLD)
        if not told:
            return ""
        stops = _stops(inside, edge, x, y)
        start, end = _ends(inside, edge, x, y)
        first = stops[0] if stops else end
        return _text(told, (start.x + 3 * first.x) / 4, first.y - 14, small=True, on_line=True)


def _ends(inside: _Inside, edge: Edge, x: float, y: float) -> tuple[Spot, Spot]:
    """Where a line leaves, with the end of that layer, and where it comes to."""
    a, b = inside.drawn.spots[edge.source], inside.drawn.spots[edge.target]
    a_size, b_size = inside.sizes[edge.source], inside.sizes[edge.target]
    start = Spot(x + a.x + a_size.width / 2, y + a.y + a_size.height, y + a.floor)
    return start, Spot(x + b.x + b_size.width / 2, y + b.y, y + b.y)


def _stops(inside: _Inside, edge: Edge, x: float, y: float) -> list[Spot]:
    ways = inside.drawn.ways.get((edge.source, edge.target), ())
    return [Spot(x + way.x, y + way.y, y + way.floor) for way in ways]


def _curve(a: tuple[float, float], b: tuple[float, float]) -> str:
    middle = (a[1] + b[1]) / 2
    return f"C{a[0]:.1f} {middle:.1f} {b[0]:.1f} {middle:.1f} {b[0]:.1f} {b[1]:.1f}"


def _shape(node: Node, size: Size, x: float, y: float, colour: Colour) -> str:
    look = (
        f'class="wf-box" fill="{colour.fill}" stroke="{colour.line}" stroke-width="{colour.bold}"'
    )
    if colour.dashed or node.body:
        look += ' stroke-dasharray="4 3"'
    w, h = size.width, size.height
    if node.type in _CHOICES:
        side = 12
        points = (
            f"{x:.1f},{y + h / 2:.1f} {x + side:.1f},{y:.1f} {x + w - side:.1f},{y:.1f} "
            f"{x + w:.1f},{y + h / 2:.1f} {x + w - side:.1f},{y + h:.1f} {x + side:.1f},{y + h:.1f}"
        )
        return f'<polygon {look} points="{points}"/>'
    radius = h / 2 if node.type in _ROUND else 3 if node.type in _PLUMBING else 9
    where = f'x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius:.1f}"'
    if node.body:
        look = look.replace(f'fill="{colour.fill}"', 'fill="none"').replace("wf-box", "wf-body")
    return f"<rect {look} {where}/>"


def _text(
    text: str,
    x: float,
    y: float,
    *,
    anchor: str = "middle",
    small: bool = False,
    on_line: bool = False,
) -> str:
    kind, colour = ("wf-soft", "#62676e") if small else ("wf-ink", "#20242a")
    size = ' font-size="11"' if small else ""
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    halo = ' stroke="#ffffff" stroke-width="3" paint-order="stroke"' if on_line else ""
    kind += " wf-halo" if on_line else ""
    return f'<text class="{kind}" fill="{colour}"{halo}{size} {where}>{_safe(text)}</text>'


def _safe(text: str) -> str:
    return escape(in_line(text))


def _long(text: str) -> float:
    return sum(_FULL if east_asian_width(char) in "WF" else _CHAR for char in text)


def _wrapped(text: str, most: int) -> list[str]:
    """In lines that fit a box, broken between words where that goes; the last may be cut."""
    lines: list[str] = []
    rest = text
    while rest and len(lines) < most:
        line = _first(rest)
        rest = rest[len(line) :].lstrip()
        lines.append(line.rstrip())
    if rest:
        last = lines[-1]
        while last and _long(last + "…") > _WIDE - 34:
            last = last[:-1]
        lines[-1] = last.rstrip() + "…"
    return lines


def _first(text: str) -> str:
    fits = text[: _fitting(text)]
    if len(fits) == len(text):
        return fits
    at = fits.rfind(" ")
    return fits[: at + 1] if at > len(fits) // 3 else fits


def _fitting(text: Iterable[str]) -> int:
    width, n = 0.0, 0
    for n, char in enumerate(text, 1):
        width += _FULL if east_asian_width(char) in "WF" else _CHAR
        if width > _WIDE - 34:
            return max(1, n - 1)
    return n
