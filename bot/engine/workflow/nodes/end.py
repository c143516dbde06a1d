"""The node that a workflow ends with."""

from __future__ import annotations

from bot.engine.workflow.nodes.contract import NodeRole, NodeShape, NodeTypeSpec


class EndNode(NodeTypeSpec[None]):
    """The workflow is complete when all reachable ends are. A workflow without an end gets one."""

    name = "end"
    role = NodeRole.END
    shape = NodeShape.PILL
    example = """\
nodes:
  - {id: write, name: Write}
  - {id: over, type: end}
"""
