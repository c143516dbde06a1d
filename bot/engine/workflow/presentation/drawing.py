"""Drawings of a workflow: an SVG picture with nested boxes for loops, in which a run is marked, and
Mermaid text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, chain, pairwise, takewhile
from unicodedata import east_asian_width

from bot.engine.workflow.definition import (
    ROOT_GRAPH,
    ScopeGraph,
    Workflow,
    WorkflowEdge,
    WorkflowNode,
    WorkflowTopology,
    with_compensation_edges,
)
from bot.engine.workflow.nodes.contract import NodeRole, NodeShape
from bot.engine.workflow.presentation.collapse import FoldedWorkflow, fold_workflow
from bot.engine.workflow.presentation.layered_layout import (
    BoxPosition,
    BoxSize,
    LayeredLayout,
    arrange_layers,
)
from bot.engine.workflow.presentation.run_marks import NodeMark, RunMarks, mark_run
from cards import formats
from cards.catalog import TextCatalog
from cards.formats import clean_line
from storage.records.tasks import NodeRun

# Attributes of the elements are for light mode and apply where a page blocks styles.

SVG_STYLE = (
    "@media (prefers-color-scheme:dark){"
    ".wf-back{fill:#1d2123}.wf-ink{fill:#e7e6e2}.wf-soft{fill:#9da3a8}.wf-head{fill:#9da3a8}"
    ".wf-halo{stroke:#1d2123}.wf-edge{stroke:#7b8288}"
    ".wf-box{fill:#1d2123;stroke:#5a6167}.wf-body{stroke:#5a6167}"
    ".wf-edge.wf-taken{stroke:#5fb583}.wf-head.wf-taken{fill:#5fb583}"
    ".wf-done{stroke:#5fb583}.wf-failed{stroke:#e5786d}.wf-running{stroke:#6aa9e4}"
    ".wf-waiting{stroke:#d9a441}}"
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
    return "\n".join(_MermaidChart(with_compensation_edges(workflow), words).lines()) + "\n"


class _MermaidChart:
    def __init__(self, workflow: Workflow, words: TextCatalog) -> None:
        self._words = words
        self._edges = workflow.edges
        self._topology = WorkflowTopology(workflow)
        self._container_of = self._topology.container_of
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
        scope = self._container_of.get(edge.source, ROOT_GRAPH)
        label = edge_label(self._topology.scope_graphs[scope], edge, self._words)
        line = "-->" if edge.max_loops is None else "-.->"
        text = f'|"{mermaid_label(label)}"|' if label else ""
        return f"{self._names[edge.source]} {line}{text} {self._names[edge.target]}"


def edge_label(graph: ScopeGraph, edge: WorkflowEdge, words: TextCatalog) -> str:
    """The words on the edge: its label, its case, its condition or “otherwise”, and its limit."""
    source = graph.nodes[edge.source]
    label = clean_line(edge.label or source.spec.target_label(source.settings, edge.target))
    label = formats.single_line(label or clean_line(edge.condition), _MAX_EDGE_LABEL)
    bound = "" if edge.max_loops is None else f"≤{edge.max_loops}"
    others = graph.edges_from(edge.source)
    chosen = graph.chooses_target(edge.source) or any(each.condition for each in others)
    if not label and chosen and edge.name not in graph.back_edges:
        label = words("graph.otherwise")
    return " ".join(filter(None, (label, bound)))


def node_display_name(node: WorkflowNode, words: TextCatalog) -> str:
    """The title; for an untitled start or end, its type in the reader's language."""
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
_MIN_STOP_WIDTH = 20.0
_LINE_HEIGHT = 17.0
_MAX_BOX_WIDTH = 200.0
_MIN_BOX_WIDTH = 84.0
_CHAR_WIDTH, _WIDE_CHAR_WIDTH = 7.1, 13.2
_SMALL_SCALE = 0.86
_MAX_EDGE_LABEL = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedGraph:
    """A scope with its layout. `labels` has the text on an edge, by its name; a label, and an edge
    that leads back, have a place of their own in the layout, so that nothing lies under them."""

    graph: ScopeGraph
    links: tuple[WorkflowEdge, ...]
    back_edges: tuple[WorkflowEdge, ...]
    layout: LayeredLayout
    sizes: Mapping[str, BoxSize]
    labels: Mapping[str, str]

    def has_stop(self, edge: WorkflowEdge) -> bool:
        return _stop_name(edge) in self.sizes

    def stop_of(self, edge: WorkflowEdge) -> tuple[float, float]:
        """The middle of the edge's own place."""
        spot, size = self.layout.positions[_stop_name(edge)], self.sizes[_stop_name(edge)]
        return spot.x + size.width / 2, spot.y + size.height / 2

    def route(self, edge: WorkflowEdge) -> list[BoxPosition]:
        """The points of an edge, from the upper node to the lower one; from each point it runs
        straight down to the layer's bottom. An edge that leads back starts at the lower node."""
        back = edge.name in self.graph.back_edges
        upper, lower = (edge.target, edge.source) if back else (edge.source, edge.target)
        stop = _stop_name(edge)
        points = [self._port(upper, edge, back=back, top=False)]
        if stop in self.sizes:
            spot, size = self.layout.positions[stop], self.sizes[stop]
            points += self.layout.bend_points.get((upper, stop), ())
            points.append(BoxPosition(spot.x + size.width / 2, spot.y, spot.layer_bottom))
            points += self.layout.bend_points.get((stop, lower), ())
        else:
            points += self.layout.bend_points.get((upper, lower), ())
        return [*points, self._port(lower, edge, back=back, top=True)]

    def _port(self, node: str, edge: WorkflowEdge, *, back: bool, top: bool) -> BoxPosition:
        """Where the edge meets the node: in its middle, or at the side of the loop."""
        spot, size = self.layout.positions[node], self.sizes[node]
        x = spot.x + size.width / 2
        if back and self.has_stop(edge):
            x += (0.3 if self.stop_of(edge)[0] >= x else -0.3) * min(size.width, 2 * _MAX_BOX_WIDTH)
        y = spot.y if top else spot.y + size.height
        return BoxPosition(x, y, y if top else spot.layer_bottom)


def render_svg(
    workflow: Workflow,
    words: TextCatalog,
    *,
    styled: bool = True,
    runs: Mapping[str, NodeRun] | None = None,
) -> str:
    """Render a picture of at most `MAX_SVG_NODES` boxes, without scripts or external resources; in
    a large workflow some boxes stand for several nodes. What `runs` have done is marked. Without
    `styled`, the picture is for a page that has the styles.
    """
    style = f"<style>{SVG_STYLE}</style>" if styled else ""
    marks = None if runs is None else mark_run(WorkflowTopology(workflow), runs)
    folded = fold_workflow(with_compensation_edges(workflow))
    return "".join(_SvgPicture(folded, words, marks).parts(style))


class _SvgPicture:
    """The picture in progress. Without `marks` it shows nothing of a run."""

    def __init__(self, folded: FoldedWorkflow, words: TextCatalog, marks: RunMarks | None) -> None:
        workflow = folded.workflow
        self._words = words
        self._folded = folded
        self._marks = marks
        self._topology = WorkflowTopology(workflow)
        self._drawn_ids = {node.id for node in workflow.nodes[:MAX_SVG_NODES]}
        self._left_out = len(workflow.nodes) - len(self._drawn_ids)
        self._name = clean_line(workflow.name or workflow.plan)[:200]
        self._placed: dict[str, _PlacedGraph] = {}
        self._root = self._place_graph(ROOT_GRAPH)

    def parts(self, style: str) -> Iterator[str]:
        width = max(self._root.layout.width, _MAX_BOX_WIDTH) + 2 * _MARGIN
        height = self._root.layout.height + 2 * _MARGIN
        height += _LINE_HEIGHT + 8 if self._left_out else 0
        name = _escape(self._name or self._words("graph.drawing"))
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="wf" role="img" aria-label="{name}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
            f'font-family="system-ui, sans-serif" font-size="13">'
        )
        yield f"<title>{name}</title>{style}<defs>{_marker('wf-tip', '', _EDGE_COLOUR)}"
        if self._marks is not None:
            yield _marker("wf-tip-taken", " wf-taken", _TAKEN_COLOUR)
        yield "</defs>"
        yield f'<rect class="wf-back" fill="#ffffff" width="{width:.0f}" height="{height:.0f}"/>'
        left = (width - self._root.layout.width) / 2
        yield _group_at(left, _MARGIN, self._draw_graph(self._root))
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

        forward = drawn(chain.from_iterable(graph.outgoing.values()))
        back = drawn(graph.back_edges.values())
        labels = {edge.name: edge_label(graph, edge, self._words) for edge in (*forward, *back)}
        links: list[tuple[str, str]] = []
        for edge in (*forward, *back):
            upper, lower = edge.source, edge.target
            if edge in back:
                upper, lower = lower, upper
            if upper == lower:
                continue
            label = labels[edge.name]
            if not label and edge not in back:
                links.append((upper, lower))
                continue
            stop = _stop_name(edge)
            width = max(_MIN_STOP_WIDTH, text_width(label) * _SMALL_SCALE + 10)
            sizes[stop] = BoxSize(width, _LINE_HEIGHT if label else 0.0)
            links += [(upper, stop), (stop, lower)]
        self._placed[name] = _PlacedGraph(
            graph=graph,
            links=forward,
            back_edges=back,
            layout=arrange_layers(sizes, links),
            sizes=sizes,
            labels=labels,
        )
        return self._placed[name]

    def _box_size(self, node: WorkflowNode) -> BoxSize:
        if node.body:
            inner = self._place_graph(node.id)
            width = max(inner.layout.width, text_width(self._heading(node)) + 12)
            return BoxSize(width + 2 * _MARGIN, inner.layout.height + _HEADING_HEIGHT + _MARGIN)
        lines = self._title_lines(node)
        width = max(map(text_width, lines)) + 34
        if self._caption(node):
            width = max(width, text_width(self._caption(node)) * _SMALL_SCALE + 28)
        height = _LINE_HEIGHT * len(lines) + (15 if self._caption(node) else 0) + 16
        return BoxSize(max(_MIN_BOX_WIDTH, width), height)

    def _title_lines(self, node: WorkflowNode) -> list[str]:
        name = node_display_name(node, self._words)
        if node.id in self._folded.folded and node.id not in self._folded.beside:
            name += " …"
        return _wrap(name, 2)

    def _caption(self, node: WorkflowNode) -> str:
        """The caption of a box: the type of the node if its shape does not show it, or the persona
        of a step; and how often the node was reached if more than once.
        """
        parts: list[str] = []
        if names := self._folded.folded.get(node.id):
            key = "graph.beside" if node.id in self._folded.beside else "graph.in_a_row"
            parts.append(self._words(key, n=len(names)))
            if self._marks is not None:
                done = sum(self._marks.nodes.get(name) is NodeMark.DONE for name in names)
                parts.append(self._words("graph.done_of", done=done, n=len(names)))
        elif node.role is NodeRole.TASK or node.role.is_terminal:
            parts.append(formats.single_line(clean_line(node.persona), 24))
        else:
            parts.append(self._words(f"graph.type.{node.type}"))
        parts.append(self._limit(node))
        parts.append(self._times(node.id))
        return " · ".join(filter(None, parts))

    def _times(self, node: str) -> str:
        visits = self._marks.visits.get(node, 0) if self._marks is not None else 0
        return f"×{visits}" if visits > 1 else ""

    def _heading(self, node: WorkflowNode) -> str:
        title = formats.single_line(clean_line(node.title), 34)
        kind = self._words(f"graph.type.{node.type}")
        beside = self._words("graph.at_once") if node.has_parallel_rounds else ""
        limit, times = self._limit(node), self._times(node.id)
        return " · ".join(filter(None, (title, kind, beside, limit, times)))

    def _limit(self, node: WorkflowNode) -> str:
        seconds = node.time_limit
        return "" if seconds is None else formats.time_limit(seconds, self._words)

    def _draw_graph(self, placed: _PlacedGraph) -> Iterator[str]:
        # What was taken lies above what was not.
        for edge in sorted((*placed.links, *placed.back_edges), key=self._is_taken):
            yield self._draw_edge(placed, edge)
        for name, spot in placed.layout.positions.items():
            if name in placed.graph.nodes:
                parts = self._draw_node(placed.graph.nodes[name], placed.sizes[name])
                yield _group_at(spot.x, spot.y, parts)
        for edge in (*placed.links, *placed.back_edges):
            if (label := placed.labels[edge.name]) and placed.has_stop(edge):
                x, y = placed.stop_of(edge)
                yield _text_element(label, x, y + 4, small=True, on_line=True)

    def _is_taken(self, edge: WorkflowEdge) -> bool:
        return self._marks is not None and bool(self._marks.edges.get(edge.name))

    def _draw_edge(self, placed: _PlacedGraph, edge: WorkflowEdge) -> str:
        is_back = edge.name in placed.graph.back_edges
        title = clean_line(edge.label or edge.condition)[:200]
        if is_back:
            title = " ".join(filter(None, (f"≤{edge.max_loops}", title)))
        label = ""
        if edge.source == edge.target:
            spot, size = placed.layout.positions[edge.source], placed.sizes[edge.source]
            path = _self_loop(spot, size)
            label = _text_element(
                placed.labels[edge.name],
                spot.x + size.width + 4,
                spot.y - 4,
                small=True,
                on_line=True,
            )
        else:
            route = placed.route(edge)
            path = _route_path_up(route) if is_back else _route_path(route)
        taken = self._is_taken(edge)
        title = f"<title>{_escape(title)}</title>" if title else ""
        faded = self._marks is not None and not taken
        return _edge_path(path, title, dashed=is_back, taken=taken, faded=faded) + label

    def _mark(self, node: str) -> NodeMark | None:
        """The mark of a box. Of several nodes the most important mark; done only if all
        are done.
        """
        if self._marks is None:
            return None
        found = [self._marks.nodes.get(name) for name in self._folded.folded.get(node, (node,))]
        known = [each for each in found if each is not None]
        if not known:
            return None
        mark = min(known, key=lambda each: each.rank)
        return NodeMark.RUNNING if mark is NodeMark.DONE and len(known) < len(found) else mark

    def _draw_node(self, node: WorkflowNode, size: BoxSize) -> Iterator[str]:
        name, mark = node_display_name(node, self._words)[:200], self._mark(node.id)
        faded = ' opacity="0.45"' if mark is NodeMark.UNREACHED else ""
        yield f'<g class="wf-node"{faded}><title>{_escape(name)}</title>'
        if node.id in self._folded.folded or node.has_parallel_rounds:
            yield _group_at(4, -4, [_box_shape(node, size, None)])
        yield _box_shape(node, size, mark)
        if node.body:
            yield _text_element(self._heading(node), _MARGIN, 20, anchor="start", small=True)
            yield _badge(mark, size) + "</g>"
            inner = self._placed[node.id]
            left = (size.width - inner.layout.width) / 2
            yield _group_at(left, _HEADING_HEIGHT, self._draw_graph(inner))
            return
        lines, below = self._title_lines(node), self._caption(node)
        top = (size.height - _LINE_HEIGHT * len(lines) - (15 if below else 0)) / 2 + 13
        middle = size.width / 2
        for n, line in enumerate(lines):
            yield _text_element(line, middle, top + n * _LINE_HEIGHT)
        if below:
            yield _text_element(below, middle, top + len(lines) * _LINE_HEIGHT - 2, small=True)
        yield _badge(mark, size) + "</g>"


_EDGE_COLOUR, _TAKEN_COLOUR = "#82878d", "#2e7d4f"
_MARK_COLOURS = {
    NodeMark.DONE: "#2e7d4f",
    NodeMark.FAILED: "#c0392b",
    NodeMark.RUNNING: "#2f6fb2",
    NodeMark.WAITING: "#b7791f",
    NodeMark.CANCELLED: "#82878d",
}
_BADGES = {
    NodeMark.DONE: "M-3.5 0 -1 2.8 3.5 -2.6",
    NodeMark.FAILED: "M-2.6 -2.6 2.6 2.6M2.6 -2.6 -2.6 2.6",
    NodeMark.RUNNING: "M-1.8 -3 2.8 0 -1.8 3z",
    NodeMark.WAITING: "M0 -3.2V0L2.4 1.6",
    NodeMark.CANCELLED: "M-3.2 0H3.2",
}


def _stop_name(edge: WorkflowEdge) -> str:
    return f"\0{edge.name}"


def _marker(name: str, kind: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" '
        f'markerHeight="7" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path '
        f'class="wf-head{kind}" fill="{colour}" d="M0 .5 8 4 0 7.5z"/></marker>'
    )


def _badge(mark: NodeMark | None, size: BoxSize) -> str:
    """A sign at the corner of the box that shows how the node ended."""
    if mark is None or mark not in _BADGES:
        return ""
    return (
        f'<g class="wf-badge" transform="translate({size.width - 3:.1f} 3)"><circle r="7.5" '
        f'fill="{_MARK_COLOURS[mark]}"/><path d="{_BADGES[mark]}" fill="none" stroke="#ffffff" '
        f'stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round"/></g>'
    )


def _self_loop(spot: BoxPosition, size: BoxSize) -> str:
    """A path from the right side of a box around its corner to its top."""
    x, y = spot.x + size.width, spot.y
    return f"M{x:.1f} {y + 14:.1f}h8q8 0 8 -8v-10q0 -8 -8 -8h-14q-8 0 -8 8v8"


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


def _route_path_up(route: Sequence[BoxPosition]) -> str:
    """The route as a path from its end to its beginning."""
    path = f"M{route[-1].x:.1f} {route[-1].y:.1f}"
    for b, a in pairwise(reversed(route)):
        if b.layer_bottom > b.y:
            path += f"V{b.y:.1f}"
        middle = (a.layer_bottom + b.y) / 2
        path += f"C{b.x:.1f} {middle:.1f} {a.x:.1f} {middle:.1f} {a.x:.1f} {a.layer_bottom:.1f}"
    return path if route[0].y == route[0].layer_bottom else f"{path}V{route[0].y:.1f}"


def _edge_path(
    path: str, title: str = "", *, dashed: bool = False, taken: bool = False, faded: bool = False
) -> str:
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    dash += ' opacity="0.5"' if faded else ""
    kind, colour = (" wf-taken", _TAKEN_COLOUR) if taken else ("", _EDGE_COLOUR)
    width, tip = ("2.4", "wf-tip-taken") if taken else ("1.5", "wf-tip")
    return (
        f'<path class="wf-edge{kind}" d="{path}" fill="none" stroke="{colour}"{dash} '
        f'stroke-width="{width}" marker-end="url(#{tip})">{title}</path>'
    )


def _box_shape(node: WorkflowNode, size: BoxSize, mark: NodeMark | None) -> str:
    kind, fill = ("wf-body", "none") if node.body else ("wf-box", "#ffffff")
    stroke, width = "#aeb2b6", "1.5"
    if mark in _MARK_COLOURS:
        kind, stroke, width = f"{kind} wf-{mark}", _MARK_COLOURS[mark], "2"
    look = f'class="{kind}" fill="{fill}" stroke="{stroke}" stroke-width="{width}"'
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


def text_width(text: str) -> float:
    """The width of a text in units of the picture, at its usual font size."""
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
        while last and text_width(last + "…") > _MAX_BOX_WIDTH - 34:
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
