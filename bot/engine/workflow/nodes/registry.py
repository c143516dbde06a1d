"""All node types: add a new one here. Stored plans are parsed in this order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

from bot.engine.workflow.nodes.assign import AssignNode
from bot.engine.workflow.nodes.command import CommandNode
from bot.engine.workflow.nodes.contract import NodeConfig, NodeTypeSpec
from bot.engine.workflow.nodes.delay import DelayNode
from bot.engine.workflow.nodes.foreach import ForeachNode
from bot.engine.workflow.nodes.http import HttpNode
from bot.engine.workflow.nodes.human import HumanNode
from bot.engine.workflow.nodes.join import JoinNode
from bot.engine.workflow.nodes.loop import LoopNode
from bot.engine.workflow.nodes.plain import (
    ConditionNode,
    EndNode,
    ParallelNode,
    StartNode,
    TaskNode,
)
from bot.engine.workflow.nodes.readfile import ReadFileNode
from bot.engine.workflow.nodes.schedule import ScheduleNode
from bot.engine.workflow.nodes.script import ScriptNode
from bot.engine.workflow.nodes.subworkflow import SubworkflowNode
from bot.engine.workflow.nodes.switch import SwitchNode
from bot.engine.workflow.nodes.writefile import WriteFileNode


class NodeType(StrEnum):
    """The name of each type, with its specification."""

    spec: NodeTypeSpec[Any]

    def __new__(cls, spec: NodeTypeSpec[Any]) -> Self:
        member = str.__new__(cls, spec.name)
        member._value_ = spec.name
        member.spec = spec
        return member

    START = StartNode()
    END = EndNode()
    TASK = TaskNode()
    CONDITION = ConditionNode()
    PARALLEL = ParallelNode()
    JOIN = JoinNode()
    HUMAN = HumanNode()
    DELAY = DelayNode()
    SCHEDULE = ScheduleNode()
    LOOP = LoopNode()
    FOREACH = ForeachNode()
    SWITCH = SwitchNode()
    ASSIGN = AssignNode()
    SCRIPT = ScriptNode()
    SUBWORKFLOW = SubworkflowNode()
    HTTP = HttpNode()
    COMMAND = CommandNode()
    READFILE = ReadFileNode()
    WRITEFILE = WriteFileNode()


_SPECS: Mapping[str, NodeTypeSpec[Any]] = {kind.value: kind.spec for kind in NodeType}
CONFIG_TYPES: tuple[type[NodeConfig], ...] = tuple(
    spec.config for spec in _SPECS.values() if spec.config is not None
)


def foreign_type_name(name: str) -> str:
    """The type that other programs call by this name; empty if none."""
    # `n8n-nodes-base.httpRequest` is an http node.
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name.rpartition(".")[2])
    for word in (name.casefold(), *map(str.casefold, words)):
        for kind in NodeType:
            if word in {*kind.spec.foreign_names, *kind.spec.aliases, kind.value}:
                return kind.value
    return ""


def spec_of(node_type: str) -> NodeTypeSpec[Any]:
    """The specification of a type; the task type's if the name is unknown."""
    return _SPECS.get(node_type, NodeType.TASK.spec)
