"""Who handles which kind of node."""

from __future__ import annotations

from collections.abc import Mapping

from bot.engine.workflow.model.nodes import NodeType
from bot.engine.workflow.nodes.assign import Assign
from bot.engine.workflow.nodes.base import Handler, Rounder
from bot.engine.workflow.nodes.condition import Condition
from bot.engine.workflow.nodes.delay import Delay
from bot.engine.workflow.nodes.end import End
from bot.engine.workflow.nodes.foreach import Foreach
from bot.engine.workflow.nodes.human import Human
from bot.engine.workflow.nodes.join import Join
from bot.engine.workflow.nodes.loop import Loop
from bot.engine.workflow.nodes.parallel import Parallel
from bot.engine.workflow.nodes.schedule import Schedule
from bot.engine.workflow.nodes.script import Script
from bot.engine.workflow.nodes.start import Start
from bot.engine.workflow.nodes.switch import Switch

ROUNDERS: Mapping[NodeType, Rounder] = {NodeType.LOOP: Loop(), NodeType.FOREACH: Foreach()}

HANDLERS: Mapping[NodeType, Handler] = {
    NodeType.START: Start(),
    NodeType.END: End(),
    NodeType.CONDITION: Condition(),
    NodeType.PARALLEL: Parallel(),
    NodeType.JOIN: Join(),
    NodeType.HUMAN: Human(),
    NodeType.DELAY: Delay(),
    NodeType.SCHEDULE: Schedule(),
    NodeType.SWITCH: Switch(),
    NodeType.ASSIGN: Assign(),
    NodeType.SCRIPT: Script(),
    **ROUNDERS,
}
"""All but tasks, which a worker does."""
