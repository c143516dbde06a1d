"""Drawings of a workflow: an SVG picture with nested boxes for loops, and Mermaid text;
and the pictures stored in the data directory."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from itertools import accumulate, chain, pairwise, takewhile
from pathlib import Path
from unicodedata import east_asian_width

from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    ScopeGraph,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    WorkflowTopology,
)
from bot.engine.workflow.nodes.contract import NodeRole, NodeShape
from bot.engine.workflow.presentation.layered_layout import (
    BoxPosition,
    BoxSize,
    LayeredLayout,
    arrange_layers,
)
from cards import formats
from cards.catalog import TextCatalog
from cards.formats import clean_line
from storage.records.workflows import WorkflowDrawing

# Attributes of the elements are for light mode and apply where a page blocks styles.

SVG_STYLE = (
    "@media (prefers-color-scheme:dark){"
    ".wf-back{fill:#1d2123}.wf-ink{fill:#e7e6e2}.wf-soft{fill:#9da3a8}.wf-head{fill:#9da3a8}"
    ".wf-halo{stroke:#1d2123}.wf-edge{stroke:#7b8288}"
    ".wf-box{fill:#1d2123;stroke:#5a6167}.wf-body{stroke:#5a6167}}"
)


MAX_MERMAID_NODES = 200
_MAX_LABEL = 60
_MERMAID_BRACKETS = {
    NodeShape.BOX: ("[", "]"),
    NodeShape.PILL: ("([", "])"),
    NodeShape.DIAMOND: ("{", "}"),
    NodeShape.BAR: ("[[", "]]"),
    NodeShape.SLANTED: ("[/", "/]"),
    NodeShape.ROUNDED: ("(", ")"),
    NodeShape.FRAME: ("[", "]"),
}
# Characters that end a label or have a meaning for Mermaid or the page around it.
_RESERVED_CHARACTERS = frozenset('"#&;<>`\\|[]{}()*_~%')


def render_mermaid(workflow: Workflow, words: TextCatalog) -> str:
    """Render a flowchart of at most `MAX_MERMAID_NODES` nodes."""
    return "\n".join(_MermaidChart(workflow, words).lines()) + "\n"


class _MermaidChart:
    def __init__(self, workflow: Workflow, words: TextCatalog) -> None:
        self._words = words
        self._edges = workflow.edges
        self._container_of = WorkflowTopology(workflow).container_of
        self._nodes = workflow.nodes[:MAX_MERMAID_NODES]
        self._left_out = len(workflow.nodes) - len(self._nodes)
        self._names = {node.id: f"n{n}" for n, node in enumerate(self._nodes)}

    def lines(self) -> Iterator[str]:
        yield "flowchart TD"
        if self._left_out:
            yield f"  %% {self._left_out} more nodes are left out"
        yield from self._scope_lines(ROOT_GRAPH, "  ")
        for edge in self._edges:
            drawn = edge.source in self._names and edge.target in self._names
            # The box of a loop already shows the edges between it and its body.
            if drawn and self._container_of.get(edge.source) == self._container_of.get(edge.target):
                yield f"  {self._edge(edge)}"

    def _scope_lines(self, name: str, margin: str) -> Iterator[str]:
        for node in self._nodes:
            around = self._container_of.get(node.id, ROOT_GRAPH)
            if (around if around in self._names else ROOT_GRAPH) != name:
                continue
            own = self._names[node.id]
            if not node.body:
                left, right = _MERMAID_BRACKETS[node.spec.shape]
                label = mermaid_label(node_display_name(node, self._words))
                yield f'{margin}{own}{left}"{label}"{right}'
                continue
            yield f'{margin}subgraph {own}["{mermaid_label(node.title)}"]'
            yield from self._scope_lines(node.id, margin + "  ")
            yield f"{margin}end"

    def _edge(self, edge: WorkflowEdge) -> str:
        label, line = edge.label or edge.condition, "-->"
        if edge.max_loops is not None:
            label, line = f"{label} ≤{edge.max_loops}".strip(), "-.->"
        text = f'|"{mermaid_label(label)}"|' if label else ""
        return f"{self._names[edge.source]} {line}{text} {self._names[edge.target]}"


def node_display_name(node: WorkflowNode, words: TextCatalog) -> str:
    """The title; an unnamed start or end is called so in the reader's language."""
    unnamed = clean_line(node.title) in {"", node.id, str(node.type)}
    if unnamed and node.role.is_terminal:
        return words(f"graph.type.{node.type}")
    return clean_line(node.title) or node.id


def mermaid_label(text: str) -> str:
    """Escape user text for a Mermaid label."""
    line = formats.single_line(clean_line(text), _MAX_LABEL) or " "
    return "".join(f"#{ord(char)};" if char in _RESERVED_CHARACTERS else char for char in line)


MAX_SVG_NODES = 200
"""Maximum number of boxes in one picture."""

_MARGIN = 16.0
_HEADING_HEIGHT = 30.0
_BACK_LANE_WIDTH = 16.0
_LINE_HEIGHT = 17.0
_MAX_BOX_WIDTH = 200.0
_MIN_BOX_WIDTH = 84.0
_CHAR_WIDTH, _WIDE_CHAR_WIDTH = 7.1, 13.2
_SMALL_SCALE = 0.86
_MAX_EDGE_LABEL = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedGraph:
    """A scope with its layout."""

    graph: ScopeGraph
    links: tuple[WorkflowEdge, ...]
    back_edges: tuple[WorkflowEdge, ...]
    layout: LayeredLayout
    sizes: Mapping[str, BoxSize]
    width: float

    def route(self, edge: WorkflowEdge) -> list[BoxPosition]:
        """The points of a forward edge; from each it runs straight down to the layer's bottom."""
        a, b = self.layout.positions[edge.source], self.layout.positions[edge.target]
        a_size, b_size = self.sizes[edge.source], self.sizes[edge.target]
        start = BoxPosition(a.x + a_size.width / 2, a.y + a_size.height, a.layer_bottom)
        end = BoxPosition(b.x + b_size.width / 2, b.y, b.y)
        return [start, *self.layout.bend_points.get((edge.source, edge.target), ()), end]


def render_svg(workflow: Workflow, words: TextCatalog, *, styled: bool = True) -> str:
    """Render a picture without scripts or external resources of at most `MAX_SVG_NODES` nodes. One
    that is not `styled` is for a page that has the styles."""
    style = f"<style>{SVG_STYLE}</style>" if styled else ""
    return "".join(_SvgPicture(workflow, words).parts(style))


class _SvgPicture:
    def __init__(self, workflow: Workflow, words: TextCatalog) -> None:
        self._words = words
        self._topology = WorkflowTopology(workflow)
        self._drawn_ids = {node.id for node in workflow.nodes[:MAX_SVG_NODES]}
        self._left_out = len(workflow.nodes) - len(self._drawn_ids)
        self._name = clean_line(workflow.name or workflow.plan)[:200]
        self._placed: dict[str, _PlacedGraph] = {}
        self._root = self._place_graph(ROOT_GRAPH)

    def parts(self, style: str) -> Iterator[str]:
        width = max(self._root.width, _MAX_BOX_WIDTH) + 2 * _MARGIN
        height = self._root.layout.height + 2 * _MARGIN
        height += _LINE_HEIGHT + 8 if self._left_out else 0
        name = _escape(self._name or self._words("graph.drawing"))
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="wf" role="img" aria-label="{name}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
            f'font-family="system-ui, sans-serif" font-size="13">'
        )
        yield f"<title>{name}</title>{style}"
        yield (
            '<defs><marker id="wf-tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" '
            'markerHeight="7" orient="auto-start-reverse"><path class="wf-head" fill="#82878d" '
            'd="M0 .5 8 4 0 7.5z"/></marker></defs>'
        )
        yield f'<rect class="wf-back" fill="#ffffff" width="{width:.0f}" height="{height:.0f}"/>'
        yield _group_at((width - self._root.width) / 2, _MARGIN, self._draw_graph(self._root))
        if self._left_out:
            more = self._words("graph.more", n=self._left_out)
            yield _text_element(more, width / 2, height - _MARGIN, small=True)
        yield "</svg>"

    def _place_graph(self, name: str) -> _PlacedGraph:
        graph = self._topology.scope_graphs[name]
        nodes = [node for node in graph.nodes.values() if node.id in self._drawn_ids]
        sizes = {node.id: self._box_size(node) for node in nodes}

        def drawn(edges: Iterable[WorkflowEdge]) -> tuple[WorkflowEdge, ...]:
            return tuple(edge for edge in edges if edge.source in sizes and edge.target in sizes)

        links = drawn(chain.from_iterable(graph.outgoing.values()))
        back = drawn(graph.back_edges.values())
        layout = arrange_layers(sizes, [(edge.source, edge.target) for edge in links])
        lanes = _BACK_LANE_WIDTH * (len(back) + 1) if back else 0.0
        self._placed[name] = _PlacedGraph(
            graph=graph,
            links=links,
            back_edges=back,
            layout=layout,
            sizes=sizes,
            width=layout.width + lanes,
        )
        return self._placed[name]

    def _box_size(self, node: WorkflowNode) -> BoxSize:
        if node.body:
            inner = self._place_graph(node.id)
            width = max(inner.width, _text_width(self._heading(node)) + 12)
            return BoxSize(width + 2 * _MARGIN, inner.layout.height + _HEADING_HEIGHT + _MARGIN)
        lines = self._title_lines(node)
        width = max(map(_text_width, lines)) + 34
        if self._caption(node):
            width = max(width, _text_width(self._caption(node)) * _SMALL_SCALE + 28)
        height = _LINE_HEIGHT * len(lines) + (15 if self._caption(node) else 0) + 16
        return BoxSize(max(_MIN_BOX_WIDTH, width), height)

    def _title_lines(self, node: WorkflowNode) -> list[str]:
        return _wrap(node_display_name(node, self._words), 2)

    def _caption(self, node: WorkflowNode) -> str:
        """The type of the node if its shape does not show it, or the persona of a step."""
        if node.role is NodeRole.TASK or node.role.is_terminal:
            return formats.single_line(clean_line(node.persona), 24)
        return self._words(f"graph.type.{node.type}")

    def _heading(self, node: WorkflowNode) -> str:
        title = formats.single_line(clean_line(node.title), 34)
        return f"{title} · {self._words(f'graph.type.{node.type}')}"

    def _draw_graph(self, placed: _PlacedGraph) -> Iterator[str]:
        for n, edge in enumerate(placed.back_edges, 1):
            yield _back_edge(placed, edge, placed.layout.width + n * _BACK_LANE_WIDTH)
        routes = [(edge, placed.route(edge)) for edge in placed.links]
        for _, route in routes:
            yield _edge_path(_route_path(route))
        for name, spot in placed.layout.positions.items():
            parts = self._draw_node(placed.graph.nodes[name], placed.sizes[name])
            yield _group_at(spot.x, spot.y, parts)
        for edge, (start, first, *_) in routes:
            label = formats.single_line(clean_line(edge.label or edge.condition), _MAX_EDGE_LABEL)
            if label:
                x, y = (start.x + 3 * first.x) / 4, first.y - 14
                yield _text_element(label, x, y, small=True, on_line=True)

    def _draw_node(self, node: WorkflowNode, size: BoxSize) -> Iterator[str]:
        name = node_display_name(node, self._words)[:200]
        yield f'<g class="wf-node"><title>{_escape(name)}</title>{_box_shape(node, size)}'
        if node.body:
            yield _text_element(self._heading(node), _MARGIN, 20, anchor="start", small=True)
            yield "</g>"
            inner = self._placed[node.id]
            left = (size.width - inner.width) / 2
            yield _group_at(left, _HEADING_HEIGHT, self._draw_graph(inner))
            return
        lines, below = self._title_lines(node), self._caption(node)
        top = (size.height - _LINE_HEIGHT * len(lines) - (15 if below else 0)) / 2 + 13
        middle = size.width / 2
        for n, line in enumerate(lines):
            yield _text_element(line, middle, top + n * _LINE_HEIGHT)
        if below:
            yield _text_element(below, middle, top + len(lines) * _LINE_HEIGHT - 2, small=True)
        yield "</g>"


def _group_at(x: float, y: float, parts: Iterable[str]) -> str:
    return f'<g transform="translate({x:.1f} {y:.1f})">{"".join(parts)}</g>'


def _route_path(route: Sequence[BoxPosition]) -> str:
    path = f"M{route[0].x:.1f} {route[0].y:.1f}V{route[0].layer_bottom:.1f}"
    for a, b in pairwise(route):
        middle = (a.layer_bottom + b.y) / 2
        path += f"C{a.x:.1f} {middle:.1f} {b.x:.1f} {middle:.1f} {b.x:.1f} {b.y:.1f}"
        if b.layer_bottom > b.y:
            path += f"V{b.layer_bottom:.1f}"
    return path


def _back_edge(placed: _PlacedGraph, edge: WorkflowEdge, lane: float) -> str:
    a, b = placed.layout.positions[edge.source], placed.layout.positions[edge.target]
    a_size, b_size = placed.sizes[edge.source], placed.sizes[edge.target]
    start_y, end_y = a.y + a_size.height * 0.6, b.y + b_size.height * 0.4
    path = (
        f"M{a.x + a_size.width:.1f} {start_y:.1f}H{lane - 8:.1f}Q{lane:.1f} {start_y:.1f} "
        f"{lane:.1f} {start_y - 8:.1f}V{end_y + 8:.1f}Q{lane:.1f} {end_y:.1f} {lane - 8:.1f} "
        f"{end_y:.1f}H{b.x + b_size.width:.1f}"
    )
    bound = f"≤{edge.max_loops}"
    title = f"{bound} {clean_line(edge.label or edge.condition)}".strip()[:200]
    label = _text_element(bound, lane, (start_y + end_y) / 2, small=True, on_line=True)
    return _edge_path(path, f"<title>{_escape(title)}</title>", dashed=True) + label


def _edge_path(path: str, title: str = "", *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<path class="wf-edge" d="{path}" fill="none" stroke="#82878d"{dash} '
        f'stroke-width="1.5" marker-end="url(#wf-tip)">{title}</path>'
    )


def _box_shape(node: WorkflowNode, size: BoxSize) -> str:
    kind, fill = ("wf-body", "none") if node.body else ("wf-box", "#ffffff")
    look = f'class="{kind}" fill="{fill}" stroke="#aeb2b6" stroke-width="1.5"'
    if node.body:
        look += ' stroke-dasharray="4 3"'
    w, h = size.width, size.height
    if node.spec.shape is NodeShape.DIAMOND:
        corners = ((0, h / 2), (12, 0), (w - 12, 0), (w, h / 2), (w - 12, h), (12, h))
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        return f'<polygon {look} points="{points}"/>'
    radius = {NodeShape.PILL: h / 2, NodeShape.BAR: 3}.get(node.spec.shape, 9)
    return f'<rect {look} width="{w:.1f}" height="{h:.1f}" rx="{radius:.1f}"/>'


def _text_element(
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
    return f'<text class="{kind}" fill="{colour}"{halo}{size} {where}>{_escape(text)}</text>'


def _escape(text: str) -> str:
    return escape(clean_line(text))


def _char_width(char: str) -> float:
    return _WIDE_CHAR_WIDTH if east_asian_width(char) in "WF" else _CHAR_WIDTH


def _text_width(text: str) -> float:
    return sum(map(_char_width, text))


def _wrap(text: str, most: int) -> list[str]:
    """Break into at most `most` lines that fit a box, between words if possible."""
    lines: list[str] = []
    rest = text
    while rest and len(lines) < most:
        line = _first_line(rest)
        rest = rest[len(line) :].lstrip()
        lines.append(line.rstrip())
    if rest:
        last = lines[-1]
        while last and _text_width(last + "…") > _MAX_BOX_WIDTH - 34:
            last = last[:-1]
        lines[-1] = last.rstrip() + "…"
    return lines


def _first_line(text: str) -> str:
    fits = text[: _fitting_length(text)]
    at = fits.rfind(" ")
    return fits[: at + 1] if len(fits) < len(text) and at > len(fits) // 3 else fits


def _fitting_length(text: str) -> int:
    """The number of characters that fit a line, at least one."""
    ends = accumulate(map(_char_width, text))
    return max(1, sum(1 for _ in takewhile(lambda end: end <= _MAX_BOX_WIDTH - 34, ends)))


_DRAWINGS_FOLDER = Path("files", "workflows")
REPORTS_FOLDER = Path("files", "reports")
_DAY_SECONDS = 86_400.0
UNUSED_DAYS = 30
"""Days after its last use before a picture is deleted."""

_FILES_LOCK = threading.Lock()
"""Prevents removing a picture while it is being reused."""


def save_drawing(home: Path, workflow: Workflow, words: TextCatalog) -> WorkflowDrawing:
    """Blocking. Returns no picture if it cannot be written."""
    text = render_mermaid(workflow, words)
    picture = render_svg(workflow, words).encode()
    try:
        path = store_picture(home, _DRAWINGS_FOLDER, picture, ".svg")
    except OSError:
        return WorkflowDrawing(mermaid=text)
    return WorkflowDrawing(mermaid=text, svg=path, size=len(picture))


def store_export(home: Path, data: bytes) -> str:
    """Like `store_picture`, for an exported workflow."""
    return store_picture(home, _DRAWINGS_FOLDER, data, ".yaml")


def store_picture(home: Path, folder: Path, picture: bytes, suffix: str) -> str:
    """Store a picture in this folder of the data directory, where `prune_pictures` deletes it once
    it is unused. Return its path there. Blocking. Raises OSError."""
    path = folder / f"{hashlib.sha256(picture).hexdigest()[:16]}{suffix}"
    with _FILES_LOCK:
        _write_picture(home / path, picture)
    return path.as_posix()


def _write_picture(whole: Path, picture: bytes) -> None:
    """The name is a hash of the content, so an existing file only needs a new timestamp."""
    with suppress(FileNotFoundError):
        os.utime(whole)
        return
    whole.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = whole.with_name(f".{whole.name}.{os.getpid()}.new")
    new.write_bytes(picture)
    new.replace(whole)


def prune_pictures(home: Path, now: Callable[[], float] = time.time) -> int:
    """Delete unused pictures and incomplete files; return how many. Blocking. Raises OSError."""
    before = now() - UNUSED_DAYS * _DAY_SECONDS
    return sum(_prune(home / each, before) for each in (_DRAWINGS_FOLDER, REPORTS_FOLDER))


def _prune(place: Path, before: float) -> int:
    if place.is_symlink() or not place.is_dir():
        return 0
    gone = 0
    for each in (
        each for ending in ("*.svg", "*.png", "*.yaml", ".*.new") for each in place.glob(ending)
    ):
        with _FILES_LOCK, suppress(FileNotFoundError):
            if each.lstat().st_mtime < before:
                each.unlink()
                gone += 1
    return gone
