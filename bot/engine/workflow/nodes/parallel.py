"""A fork into parallel branches."""

from __future__ import annotations

from bot.engine.workflow.nodes.contract import NodeRole, NodeShape, NodeTypeSpec


class ParallelNode(NodeTypeSpec[None]):
    """Takes every outgoing edge; the branches run in parallel."""

    name = "parallel"
    role = NodeRole.FORK
    shape = NodeShape.BAR
    planner_hint = "takes all its edges at the same time"
    markdown_names = ("并行",)
    example = """\
nodes:
  - {id: fork, type: parallel}
  - {id: read, name: Read}
  - {id: ask, name: Ask}
edges: [{from: fork, to: read}, {from: fork, to: ask}]
"""
