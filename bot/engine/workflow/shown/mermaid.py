"""A workflow as Mermaid text, for whoever draws it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bot.engine.workflow.model.layout import OUTERMOST, Layout
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Edge, Node, Workflow
from bot.engine.workflow.shown.states import states
from cards import formats
from cards.safe_text import in_line
from cards.words import Words, words_for
from storage.records.people import Language
from storage.records.tasks import NodeRun, NodeStatus

MOST = 200
_LABEL = 60
_SHAPES = {
    NodeType.START: ("([", "])"),
    NodeType.END: ("([", "])"),
    NodeType.CONDITION: ("{", "}"),
    NodeType.SWITCH: ("{", "}"),
    NodeType.PARALLEL: ("[[", "]]"),
    NodeType.JOIN: ("[[", "]]"),
    NodeType.HUMAN: ("[/", "/]"),
    NodeType.DELAY: ("(", ")"),
    NodeType.SCHEDULE: ("(", ")"),
}
_STYLES = {
    NodeStatus.RUNNING: "stroke:#1d6b5c,stroke-width:3px",
    NodeStatus.WAITING: "stroke:#9a6206,stroke-width:3px",
    NodeStatus.DONE: "fill:#e0ede8,stroke:#2b7d4f,color:#143f37",
    NodeStatus.FAILED: "fill:#fbeae8,stroke:#b3372f,color:#5c1d18",
    NodeStatus.SKIPPED: "stroke-dasharray:4 4,color:#7c8187",
}
# Characters that end a label, or that Mermaid or a page it stands in would read as its own.
_TAKEN = frozenset('"#&;<>`\\|[]{}()*_~%')


def mermaid(
    workflow: Workflow, runs: Mapping[str, NodeRun] | None = None, words: Words | None = None
) -> str:
    """A flowchart; with `runs` it shows how far each node is. Of a very large one, the first
    nodes."""
    chart = _Chart(workflow, runs or {}, words or words_for(Language.ENGLISH))
    return "\n".join(chart.lines()) + "\n"


class _Chart:
    def __init__(self, workflow: Workflow, runs: Mapping[str, NodeRun], words: Words) -> None:
        self._words = words
        self._layout = Layout(workflow)
        self._states = states(self._layout, runs)
        self._nodes = workflow.nodes[:MOST]
        self._more = len(workflow.nodes) - len(self._nodes)
        self._names = {node.id: f"n{n}" for n, node in enumerate(self._nodes)}

    def lines(self) -> Iterator[str]:
        yield "flowchart TD"
        if self._more:
            yield f"  %% {self._more} more nodes are left out"
        yield from self._ring(OUTERMOST, "  ")
        yield from (f"  {self._edge(edge)}" for edge in self._edges())
        yield from self._marks()

    def _edges(self) -> Iterator[Edge]:
        """An edge between a loop and its own body says what the box says already."""
        around = self._layout.container
        for edge in self._layout.workflow.edges:
            shown = edge.source in self._names and edge.target in self._names
            if shown and around.get(edge.source) == around.get(edge.target):
                yield edge

    def _ring(self, name: str, margin: str) -> Iterator[str]:
        for node in self._nodes:
            around = self._layout.container.get(node.id, OUTERMOST)
            if (around if around in self._names else OUTERMOST) != name:
                continue
            own = self._names[node.id]
            if not node.body:
                yield f"{margin}{own}{self._shape(node)}"
                continue
            yield f'{margin}subgraph {own}["{label(node.title)}"]'
            yield from self._ring(node.id, margin + "  ")
            yield f"{margin}end"

    def _edge(self, edge: Edge) -> str:
        told = edge.label or edge.condition
        if edge.max_loops is not None:
            told = f"{told} ≤{edge.max_loops}".strip()
        line = "-.->" if edge.max_loops is not None else "-->"
        text = f'|"{label(told)}"|' if told else ""
        return f"{self._names[edge.source]} {line}{text} {self._names[edge.target]}"

    def _shape(self, node: Node) -> str:
        left, right = _SHAPES.get(NodeType(node.type), ("[", "]"))
        return f'{left}"{label(name_of(node, self._words))}"{right}'

    def _marks(self) -> Iterator[str]:
        for status, style in _STYLES.items():
            those = [name for node, name in self._names.items() if self._states.get(node) is status]
            if those:
                yield f"  classDef {status.value} {style}"
                yield f"  class {','.join(those)} {status.value}"


def name_of(node: Node, words: Words) -> str:
    """Its title; a start and an end that nobody has named are called so in the reader's words."""
    unnamed = in_line(node.title) in {"", node.id, str(node.type)}
    if unnamed and node.type in {NodeType.START, NodeType.END}:
        return words(f"graph.type.{node.type}")
    return in_line(node.title) or node.id


def label(text: str) -> str:
    """Somebody's words as Mermaid shows them as they are."""
    line = formats.line(in_line(text), _LABEL) or " "
    return "".join(f"#{ord(char)};" if char in _TAKEN else char for char in line)
