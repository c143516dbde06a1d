"""The node that a workflow starts with."""

from __future__ import annotations

from bot.engine.workflow.nodes.contract import NodeRole, NodeShape, NodeTypeSpec


class StartNode(NodeTypeSpec[None]):
    """Every path through the workflow starts here. A workflow without a start gets one."""

    name = "start"
    role = NodeRole.START
    shape = NodeShape.PILL
    example = """\
nodes:
  - {id: begin, type: start}
  - {id: write, name: Write}
"""
