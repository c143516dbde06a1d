"""What nodes of each type are told, as it is written: one function for each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from pydantic import JsonValue

from bot.engine.workflow.forms.durations import seconds_in
from bot.engine.workflow.forms.fields import Fields, as_written
from bot.engine.workflow.model import nodes
from bot.engine.workflow.model.nodes import CONFIGS, NodeType, OnLimit

_JOIN: tuple[Literal["all", "any", "n"], ...] = ("all", "any", "n")
_LOOP: tuple[Literal["while", "for", "until"], ...] = ("while", "for", "until")
_FOREACH: tuple[Literal["sequential", "parallel"], ...] = ("sequential", "parallel")
_MOST_PEOPLE = 20
_SHORT = {
    NodeType.DELAY: "value",
    NodeType.SCHEDULE: "cron",
    NodeType.SCRIPT: "expression",
    NodeType.JOIN: "mode",
    NodeType.HUMAN: "assignee",
}
"""The field that is meant where there is a word instead of a group."""

_NAMES: Mapping[NodeType, tuple[str, ...]] = {
    NodeType.JOIN: ("mode", "n"),
    NodeType.HUMAN: ("assignee", "autoApprove"),
    NodeType.DELAY: ("value", "unit", "seconds"),
    NodeType.SCHEDULE: ("cron", "datetime", "at", "timezone"),
    NodeType.LOOP: (
        "mode", "condition", "init", "end", "step", "maxIterations", "loopVar", "bodyNodes", "body",
        "onLimit",
    ),
    NodeType.FOREACH: (
        "collection", "itemVar", "indexVar", "bodyNodes", "body", "maxIterations", "mode",
        "maxParallel",
    ),
    NodeType.SWITCH: ("expression", "cases", "defaultTarget", "default"),
    NodeType.ASSIGN: ("assignments",),
    NodeType.SCRIPT: ("expression", "outputVar", "assignments"),
}  # fmt: skip
"""The fields that may also stand in the node itself."""


def config_of(node: Fields, kind: NodeType) -> nodes.Config | None:
    """What is told in the block named like the type, in `config`, or in the node itself."""
    _others(node, kind)
    if kind not in CONFIGS:
        return None
    block = _block(node, kind)
    if block is None:
        return None
    config = _READ[kind](block)
    block.check_names()
    return config


def _block(node: Fields, kind: NodeType) -> Fields | None:
    names = (kind.value, "config", f"{kind.value}Config")
    given = node.take(*names)
    if isinstance(given, Mapping):
        return Fields(given, node.faults, where=node.where, path=kind.value)
    short_list = kind is NodeType.HUMAN and isinstance(given, list)
    if given is not None and kind in _SHORT and (short_list or not isinstance(given, list)):
        short = {_SHORT[kind]: given}
        return Fields(short, node.faults, where=node.where, path=kind.value)
    if given is not None:
        node.add("not_a_group", kind.value)
        return None
    inside = [name for name in _NAMES[kind] if node.has(name)]
    return node.some(inside, path=kind.value) if inside else None


def _others(node: Fields, kind: NodeType) -> None:
    """A block for another type of node would be lost without a word."""
    for other in CONFIGS:
        if other is not kind and node.has(other.value):
            node.take(other.value)
            node.add("wrong_config", other.value)


def expression(block: Fields, *names: str, default: str = "") -> str:
    """Also where it was put in `{{ }}`, or is a plain value or list of them."""
    value = block.take(*names)
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    text = block.word(*names, default=default)
    return unwrapped(text)


def unwrapped(text: str) -> str:
    for open_, close in (("{{", "}}"), ("${", "}")):
        inside = text[len(open_) : -len(close)]
        if text.startswith(open_) and text.endswith(close) and open_ not in inside:
            return inside.strip()
    return text


def _join(block: Fields) -> nodes.Join:
    mode = block.one_of(_JOIN, "mode", "type", default="all")
    return nodes.Join(mode=mode, n=block.whole("n", "count", default=0))


def _human(block: Fields) -> nodes.Human:
    return nodes.Human(
        assignee=_people(block),
        timeout=block.seconds("timeout"),
        auto_approve=block.flag("autoApprove", default=False),
    )


def _people(block: Fields) -> tuple[str, ...]:
    """Several, with commas between them or as a list: a name with a comma in it needs one."""
    people = tuple(dict.fromkeys(filter(None, block.words("assignee"))))
    if len(people) > _MOST_PEOPLE:
        block.add("too_many_people", "assignee", most=_MOST_PEOPLE)
    return people[:_MOST_PEOPLE]


def _delay(block: Fields) -> nodes.Delay:
    value = block.take("value", "seconds", "duration")
    unit = block.word("unit", default="s")
    seconds = seconds_in(value, unit)
    if seconds is None:
        block.add("missing" if value is None else "bad_duration", "value")
    return nodes.Delay(seconds=seconds or 0.0)


def _schedule(block: Fields) -> nodes.Schedule:
    return nodes.Schedule(
        cron=block.word("cron"),
        at=block.word("datetime", "at", "time"),
        timezone=block.word("timezone", "tz"),
    )


def _loop(block: Fields) -> nodes.Loop:
    guess: Literal["while", "for"] = "while" if block.has("condition") else "for"
    mode = block.one_of(_LOOP, "type", "mode", default=guess)
    return nodes.Loop(
        mode=mode,
        body=block.words("bodyNodes", "body", "nodes"),
        condition=expression(block, "condition"),
        init=expression(block, "init", "start", default="0"),
        end=expression(block, "end", default="0"),
        step=expression(block, "step", default="1"),
        var=block.word("loopVar", "var", default="i"),
        max_iterations=block.whole("maxIterations", default=100),
        on_limit=block.choice(OnLimit, "onLimit", default=OnLimit.FAIL),
    )


def _foreach(block: Fields) -> nodes.Foreach:
    mode = block.one_of(_FOREACH, "mode", default="sequential")
    return nodes.Foreach(
        collection=expression(block, "collection", "items"),
        body=block.words("bodyNodes", "body", "nodes"),
        item_var=block.word("itemVar", default="item"),
        index_var=block.word("indexVar", default="index"),
        mode=mode,
        max_parallel=block.whole("maxParallel", default=3),
        max_iterations=block.whole("maxIterations", default=1_000),
    )


def _switch(block: Fields) -> nodes.Switch:
    cases, other = [], ""
    knows_default = block.take("defaultTarget", "default") is not None
    for case in _pairs(block, "cases", "value"):
        value, target = case.value("value", "case"), case.word("targetNode", "target", "to")
        case.check_names()
        if not target:
            case.add("missing", "targetNode")
        elif value == "default" and not knows_default:
            other = target
        elif isinstance(value, dict | list):
            case.add("not_plain", "value")
        else:
            cases.append(nodes.Case(value=value, target=target))
    return nodes.Switch(
        expression=expression(block, "expression"),
        cases=tuple(cases),
        default=block.word("defaultTarget", "default", default=other),
    )


def _assign(block: Fields) -> nodes.Assign:
    return nodes.Assign(assignments=tuple(_assignments(block)))


def _script(block: Fields) -> nodes.Script:
    return nodes.Script(
        expression=expression(block, "expression"),
        output=block.word("outputVar", "output"),
        assignments=tuple(_assignments(block)),
    )


def _assignments(block: Fields) -> Iterator[nodes.Assignment]:
    for each in _pairs(block, "assignments", "variable"):
        is_expression = each.flag("isExpression", default=False)
        value: JsonValue = each.value("value")
        if is_expression:
            value = unwrapped((as_written(value) or "").strip())
        variable = each.word("variable", "name")
        each.check_names()
        yield nodes.Assignment(variable=variable, value=value, is_expression=is_expression)


def _pairs(block: Fields, name: str, key: str) -> Iterator[Fields]:
    """The groups of a list; of a group of plain values, each as one of its own."""
    given = block.take(name)
    if not isinstance(given, Mapping):
        yield from block.groups(name)
        return
    other = "targetNode" if name == "cases" else "value"
    for each, value in given.items():
        pair: dict[str, Any] = {key: each, other: value}
        yield Fields(pair, block.faults, where=block.where, path=f"{block.path}.{name}")


_READ: Mapping[NodeType, Callable[[Fields], nodes.Config]] = {
    NodeType.JOIN: _join,
    NodeType.HUMAN: _human,
    NodeType.DELAY: _delay,
    NodeType.SCHEDULE: _schedule,
    NodeType.LOOP: _loop,
    NodeType.FOREACH: _foreach,
    NodeType.SWITCH: _switch,
    NodeType.ASSIGN: _assign,
    NodeType.SCRIPT: _script,
}
