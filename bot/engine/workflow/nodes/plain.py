"""The node types without settings: where workflows start, end, work, choose and fork."""

from __future__ import annotations

from bot.engine.workflow.nodes.contract import EdgeRule, NodeRole, NodeShape, NodeTypeSpec


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


class TaskNode(NodeTypeSpec[None]):
    """Work for a worker in a session of the task. `prompt` adds instructions to the name. This is
    the default type."""

    name = "task"
    role = NodeRole.TASK
    shape = NodeShape.BOX
    planner_hint = "work for a worker"
    aliases = ("", "work", "agent", "subtask")
    markdown_names = ("任务",)
    foreign_names = ("llm", "prompt", "job", "model", "chat")
    example = """\
nodes:
  - {id: write, name: Write, prompt: "One page on {{inputs.topic}}", persona: writer}
inputs: [{name: topic}]
"""


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


class ParallelNode(NodeTypeSpec[None]):
    """Takes every outgoing edge; the branches run in parallel."""

    name = "parallel"
    role = NodeRole.FORK
    shape = NodeShape.BAR
    planner_hint = "takes all its edges at the same time"
    markdown_names = ("并行",)
    foreign_names = ("fork", "concurrent")
    example = """\
nodes:
  - {id: fork, type: parallel}
  - {id: read, name: Read}
  - {id: ask, name: Ask}
edges: [{from: fork, to: read}, {from: fork, to: ask}]
"""
