"""A step for a worker."""

from __future__ import annotations

from bot.engine.workflow.nodes.contract import NodeRole, NodeShape, NodeTypeSpec


class TaskNode(NodeTypeSpec[None]):
    """Work for a worker in a session of the task. `prompt` adds instructions to the name. This is
    the default type."""

    name = "task"
    role = NodeRole.TASK
    shape = NodeShape.BOX
    planner_hint = "work for a worker"
    aliases = ("", "work", "agent", "subtask")
    markdown_names = ("任务",)
    example = """\
nodes:
  - {id: write, name: Write, prompt: "One page on {{inputs.topic}}", persona: writer}
inputs: [{name: topic}]
"""
