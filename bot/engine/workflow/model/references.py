"""Whether all that expressions and templates speak of can be there when they are worked out."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from bot.engine.workflow.expressions.language import ExpressionError, references
from bot.engine.workflow.expressions.templates import holes, rest
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.faults import Fault
from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.model.shape import Node, Workflow

_EVERYWHERE = frozenset({"outputs", "variables", "inputs", "nodeStates", "loopCount"})
_MOST_SHOWN = 60
_MEANT = {"unknown_name": "unknown_hole", "bad_expression": "bad_hole"}


def unknown_in(workflow: Workflow) -> Iterator[Fault]:
    """A fault for each name that nobody can know where it stands, and for templates with a hole
    that is not closed. What is picked while it runs, like `outputs[name]`, is not looked at; nor
    is what cannot be read, which is another fault."""
    known = _known(workflow)
    owner = {inner: node for node in workflow.nodes for inner in node.body}
    for node in workflow.nodes:
        around = _around(node.id, owner)
        for field, text in _expressions(node):
            yield from known.faults(text, around, node.id, field)
        template = f"{node.title}\n{node.detail}"
        for hole in dict.fromkeys(holes(template)):
            for fault in known.faults(hole, around, node.id, "prompt"):
                yield in_hole(fault, hole, template)
        if "{{" in rest(template):
            yield Fault(key="open_hole", where=node.id, field="prompt")
    for edge in workflow.edges:
        around = _around(edge.source, owner)
        yield from known.faults(edge.condition, around, edge.name, "condition")
    for name, text in workflow.outputs.items():
        yield from known.faults(text, _EVERYWHERE, "", f"outputs.{name}")


def in_hole(fault: Fault, hole: str, template: str) -> Fault:
    """What is written as in a shell may be meant as it stands: then the fault tells how."""
    key = _MEANT.get(fault.key)
    if key is None or f"${{{hole}}}" not in template:
        return fault
    return replace(fault, key=key, facts={**fault.facts, "written": f"$${{{hole[:_MOST_SHOWN]}}}"})


@dataclass(frozen=True, slots=True)
class _Known:
    """What each of the names that hold others has."""

    nodes: AbstractSet[str]
    inputs: AbstractSet[str]
    variables: AbstractSet[str]

    def faults(
        self, text: str, around: AbstractSet[str], where: str, field: str
    ) -> Iterator[Fault]:
        if not text.strip():
            return
        try:
            spoken = sorted(references(text), key=str)
        except ExpressionError:
            return
        for name, part in spoken:
            if (key := self._wrong(name, part, around)) is not None:
                told = name if part is None else f"{name}.{part}"
                facts = {"reference": told[:_MOST_SHOWN]}
                yield Fault(key=key, where=where, field=field, facts=facts)

    def _wrong(self, name: str, part: str | None, around: AbstractSet[str]) -> str | None:
        if name not in around:
            return "unknown_name" if part is None else None
        if part is None:
            return None
        match name:
            case "outputs" | "nodeStates" if part not in self.nodes:
                return "unknown_output"
            case "inputs" if part not in self.inputs:
                return "unknown_input"
            case "variables" if part not in self.variables:
                return "unknown_variable"
            case _:
                return None


def _known(workflow: Workflow) -> _Known:
    ids = {node.id for node in workflow.nodes}
    return _Known(
        nodes=ids | {name.replace("-", "_") for name in ids},
        inputs={each.name for each in workflow.inputs} | workflow.values.keys(),
        variables=workflow.variables.keys() | set(_set_in(workflow)),
    )


def _set_in(workflow: Workflow) -> Iterator[str]:
    for node in workflow.nodes:
        match node.config:
            case nodes.Assign(assignments=assignments):
                yield from (each.variable for each in assignments)
            case nodes.Script(output=output, assignments=assignments):
                yield from (each.variable for each in assignments)
                yield output
            case _:
                pass


def _around(name: str, owner: dict[str, Node]) -> AbstractSet[str]:
    """What may be spoken of there: the names of every round that it runs in, too."""
    found, passed = set(_EVERYWHERE), set[str]()
    while name in owner and name not in passed:
        passed.add(name)
        found |= _of_rounds(owner[name])
        name = owner[name].id
    return found


def _of_rounds(node: Node) -> AbstractSet[str]:
    match node.config:
        case nodes.Foreach(item_var=item, index_var=index):
            return {"item", "index", "total", item, index}
        case nodes.Loop(var=var):
            return {var}
        case _:
            return set()


def _expressions(node: Node) -> Iterator[tuple[str, str]]:
    """Those in its settings that are ever worked out, each with its field."""
    match node.config:
        case nodes.Loop(mode="for") as loop:
            yield from ((f"loop.{part}", getattr(loop, part)) for part in ("init", "end", "step"))
        case nodes.Loop(condition=condition):
            yield "loop.condition", condition
        case nodes.Foreach(collection=collection):
            yield "foreach.collection", collection
        case nodes.Switch(expression=expression):
            yield "switch.expression", expression
        case nodes.Script(expression=expression) if expression:
            yield "script.expression", expression
        case nodes.Assign(assignments=given) | nodes.Script(assignments=given):
            kind = NodeType.ASSIGN if isinstance(node.config, nodes.Assign) else NodeType.SCRIPT
            for each in given:
                if each.is_expression:
                    yield f"{kind.value}.value", str(each.value)
        case _:
            pass
