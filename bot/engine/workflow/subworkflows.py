"""Puts named workflows into the plans that use them.

A sub-workflow becomes the body of its node when a task is created, with ids of its own. So the plan
of a task is complete before it starts: checkpoint, pause, stop, preemption, cost and drawings need
no second task, and later changes of the named workflow do not reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from bot.engine.workflow.definition import Workflow, WorkflowNode
from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.input_fields import InputDefinition
from bot.engine.workflow.nodes.subworkflow import SubworkflowConfig
from bot.engine.workflow.plan import rename_nodes
from bot.engine.workflow.validation import MAX_EDGES, MAX_NODES, validate_workflow
from storage.records.workflows import WorkflowRefusalReason, WorkflowRefused

MAX_DEPTH = 4
"""How deep sub-workflows may be in each other; loops between them count too."""

_MAX_ID = 56
_FIELD = "subworkflow"


class UnknownSubworkflow(Exception):
    """`key` names the fault of a node that runs it: unknown_workflow, unknown_version or
    broken_workflow."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


OpenWorkflow: TypeAlias = Callable[[str, int | None], Workflow]
"""Finds a workflow by name, in that version or as it is written. Raises UnknownSubworkflow."""


class _VersionNeeded(Exception):
    """The text of this version has to be read first."""

    def __init__(self, name: str, number: int) -> None:
        self.version = (name, number)
        super().__init__(name, number)


async def insert_subworkflows(
    name: str,
    workflow: Workflow,
    open_file: Callable[[str], Workflow],
    read_version: Callable[[str, int], Awaitable[str | None]] | None,
) -> Workflow:
    """Like `expand`. `open_file` blocks and raises WorkflowRefused and InvalidGraph; `read_version`
    returns the text of a version, and None if there is none."""
    if not uses_subworkflows(workflow):
        return workflow
    texts: dict[tuple[str, int], str | None] = {}

    def open_workflow(name: str, version: int | None) -> Workflow:
        if not version:
            return _open_or_unknown(name, open_file)
        if (name, version) not in texts:
            raise _VersionNeeded(name, version)
        return _parse_version(texts[name, version])

    while True:
        try:
            return await asyncio.to_thread(expand, workflow, open_workflow, name=name)
        except _VersionNeeded as needed:
            found = await read_version(*needed.version) if read_version is not None else None
            texts[needed.version] = found


def _open_or_unknown(name: str, open_file: Callable[[str], Workflow]) -> Workflow:
    try:
        return open_file(name)
    except WorkflowRefused as error:
        is_unknown = error.reason is WorkflowRefusalReason.UNKNOWN
        raise UnknownSubworkflow("unknown_workflow" if is_unknown else "broken_workflow") from error
    except InvalidGraph as error:
        # Its issues are of another text than that of the node which runs it.
        raise UnknownSubworkflow("broken_workflow") from error


def _parse_version(text: str | None) -> Workflow:
    # Imported on first use, with the parser.
    from bot.engine.workflow.serialization.reader import read_workflow

    if text is None:
        raise UnknownSubworkflow("unknown_version")
    try:
        return validate_workflow(read_workflow(text))
    except InvalidGraph as error:
        raise UnknownSubworkflow("broken_workflow") from error


def uses_subworkflows(workflow: Workflow) -> bool:
    """Whether nodes of named workflows have yet to be put into it."""
    return any(_unexpanded_config(node) is not None for node in workflow.nodes)


def expand(workflow: Workflow, open_workflow: OpenWorkflow, *, name: str = "") -> Workflow:
    """Return the workflow with the nodes of its sub-workflows, in each of their own too. `name` is
    its own. Raises InvalidGraph if one cannot be found, runs itself, or gets wrong inputs."""
    if not uses_subworkflows(workflow):
        return workflow
    expansion = _Expansion(open_workflow)
    whole = expansion.expand(workflow, (name,) if name else ())
    if expansion.issues:
        raise InvalidGraph(expansion.issues)
    return validate_workflow(whole)


async def note_versions(
    workflow: Workflow,
    read_text: Callable[[str], Awaitable[tuple[str, str]]],
    number_of: Callable[[str, str], Awaitable[int]],
) -> Workflow:
    """Return an expanded workflow with the versions of what it runs; `read_text` finds its name as
    it is spelt and its text, `number_of` the version of a named workflow with this text."""
    numbers: dict[str, int] = {}
    nodes = list(workflow.nodes)
    for at, node in enumerate(nodes):
        config = node.config
        if isinstance(config, SubworkflowConfig) and config.used is None:
            name = config.workflow
            if name not in numbers:
                numbers[name] = await number_of(*await read_text(name))
            nodes[at] = replace(node, config=replace(config, used=numbers[name]))
    return replace(workflow, nodes=tuple(nodes))


def collapse(workflow: Workflow) -> Workflow:
    """Undo `expand`."""
    inside = workflow.nodes_inside(node.id for node in workflow.nodes if _is_expanded(node))
    if not inside:
        return workflow
    return replace(
        workflow,
        nodes=tuple(_emptied(node) for node in workflow.nodes if node.id not in inside),
        edges=tuple(edge for edge in workflow.edges if edge.source not in inside),
    )


class _Expansion:
    def __init__(self, open_workflow: OpenWorkflow) -> None:
        self.issues: list[ValidationIssue] = []
        self._open = open_workflow
        self._nodes = self._edges = 0

    def expand(self, workflow: Workflow, around: tuple[str, ...]) -> Workflow:
        """`around` are the names of the workflows that contain it, with its own."""
        nodes, edges = list(workflow.nodes), list(workflow.edges)
        parallel = workflow.parallel
        for at, node in enumerate(workflow.nodes):
            config = _unexpanded_config(node)
            inner = None if config is None else self._find(node, config, around)
            if config is None or inner is None:
                continue
            names = _new_ids(node, inner, {each.id for each in nodes})
            renamed = rename_nodes(inner, names)
            # Edges are known by their ids; `rename_nodes` drops them.
            edges += (
                replace(edge, id=f"{node.id}.{before.name}")
                for edge, before in zip(renamed.edges, inner.edges, strict=True)
            )
            nodes += renamed.nodes
            nodes[at] = replace(
                node,
                config=replace(
                    config,
                    body=_top_level(renamed),
                    parameters=inner.inputs,
                    variables=dict(inner.variables),
                    outputs=dict(renamed.outputs),
                    timeout=inner.timeout,
                    used=config.version or None,
                ),
            )
            parallel = max(parallel, inner.parallel)
        return replace(workflow, nodes=tuple(nodes), edges=tuple(edges), parallel=parallel)

    def _find(
        self, node: WorkflowNode, config: SubworkflowConfig, around: tuple[str, ...]
    ) -> Workflow | None:
        """The workflow that the node runs, itself expanded; None after an issue."""
        name = config.workflow
        if name.casefold() in {each.casefold() for each in around}:
            self._add("runs_itself", node, names=" → ".join((*around, name)))
            return None
        if len(around) > MAX_DEPTH:
            self._add("too_deep", node, most=MAX_DEPTH)
            return None
        try:
            inner = self._open(name, config.version)
        except UnknownSubworkflow as error:
            self._add(error.key, node, name=name, version=config.version or 0)
            return None
        self._nodes += len(inner.nodes)
        self._edges += len(inner.edges)
        if self._nodes > MAX_NODES or self._edges > MAX_EDGES:
            self._add("too_large", node, nodes=MAX_NODES, edges=MAX_EDGES)
            return None
        issues = tuple(_input_issues(config, inner.inputs))
        for key, field in issues:
            self._add(key, node, name=field, workflow=name)
        return None if issues else self.expand(inner, (*around, name))

    def _add(self, key: str, node: WorkflowNode, **facts: object) -> None:
        field = f"{_FIELD}.workflow"
        self.issues.append(ValidationIssue(key=key, where=node.id, field=field, facts=facts))


def _unexpanded_config(node: WorkflowNode) -> SubworkflowConfig | None:
    """The settings of a node whose workflow has yet to be put in; None for all others."""
    config = node.config
    return config if isinstance(config, SubworkflowConfig) and not config.body else None


def _is_expanded(node: WorkflowNode) -> bool:
    return isinstance(node.config, SubworkflowConfig) and bool(node.config.body)


def _emptied(node: WorkflowNode) -> WorkflowNode:
    if not isinstance(node.config, SubworkflowConfig):
        return node
    config = node.config
    bare = SubworkflowConfig(workflow=config.workflow, version=config.version, inputs=config.inputs)
    return replace(node, config=bare)


def _input_issues(
    config: SubworkflowConfig, inputs: Sequence[InputDefinition]
) -> Iterator[tuple[str, str]]:
    known = {each.name for each in inputs}
    yield from (("no_such_input", name[:40]) for name in config.inputs if name not in known)
    for each in inputs:
        if each.must_be_given and not _is_given(config, each.name):
            yield "input_missing", each.name


def _is_given(config: SubworkflowConfig, name: str) -> bool:
    value = config.inputs.get(name)
    return value is not None and value != ""


def _new_ids(node: WorkflowNode, inner: Workflow, taken: set[str]) -> Mapping[str, str]:
    names: dict[str, str] = {}
    for each in inner.nodes:
        plain = f"{node.id}_{each.id}"[:_MAX_ID]
        name = next(
            name for n in count(1) if (name := plain if n == 1 else f"{plain}_{n}") not in taken
        )
        names[each.id] = name
        taken.add(name)
    return names


def _top_level(workflow: Workflow) -> tuple[str, ...]:
    """The nodes that are in no body, without those that undo others."""
    inner = {name for node in workflow.nodes for name in node.body} | workflow.compensations
    return tuple(node.id for node in workflow.nodes if node.id not in inner)
