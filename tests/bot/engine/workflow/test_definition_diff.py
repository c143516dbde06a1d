"""What differs between two definitions of a workflow."""

from __future__ import annotations

from bot.engine.workflow.definition import dump_workflow, load_workflow
from bot.engine.workflow.definition_diff import diff_workflows
from bot.engine.workflow.serialization.reader import read_workflow

OLD = """
name: Note
nodes:
  - {id: write, name: Write, prompt: Short}
  - {id: check, name: Check}
  - {id: send, name: Send}
edges:
  - {from: write, to: check}
  - {from: check, to: send, condition: outputs.check.ok}
settings: {timeout: 1h}
"""
NEW = """
name: Note
nodes:
  - {id: write, name: Write, prompt: Long}
  - {id: send, name: Send}
  - {id: wait, type: delay, delay: 5m}
edges:
  - {from: write, to: send, maxLoops: 2, condition: outputs.write.ok}
  - {from: write, to: wait}
settings: {timeout: 2h}
"""


def test_nodes_edges_and_settings_are_compared() -> None:
    old, new = read_workflow(OLD), read_workflow(NEW)

    changes = diff_workflows(load_workflow(dump_workflow(old)), new)
    found = {(each.kind.value, each.what, each.name, each.field) for each in changes}

    assert {
        ("changed", "setting", "", "timeout"),
        ("changed", "node", "write", "detail"),
        ("removed", "node", "check", ""),
        ("added", "node", "wait", ""),
        ("removed", "edge", "write → check", ""),
        ("added", "edge", "write → send", ""),
    } <= found
    assert diff_workflows(old, old) == ()
