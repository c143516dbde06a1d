"""A choice by the conditions of the outgoing edges."""

from __future__ import annotations

from bot.engine.workflow.nodes.contract import EdgeRule, NodeRole, NodeShape, NodeTypeSpec


class ConditionNode(NodeTypeSpec[None]):
    """Takes only the first edge whose condition holds, or else the edges without a condition."""

    name = "condition"
    role = NodeRole.CHOICE
    shape = NodeShape.DIAMOND
    edge_rule = EdgeRule.FIRST_HOLDING
    planner_hint = "takes the first edge whose condition holds, or else the one without"
    aliases = ("if",)
    markdown_names = ("条件",)
    example = """\
nodes:
  - {id: review, name: Review}
  - {id: good, type: condition}
  - {id: send, name: Send}
  - {id: fix, name: Fix}
edges:
  - {from: review, to: good}
  - {from: good, to: send, condition: outputs.review.approved}
  - {from: good, to: fix}
"""
