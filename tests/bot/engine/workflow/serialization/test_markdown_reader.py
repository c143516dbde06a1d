"""The Markdown format, in either language."""

from __future__ import annotations

import pytest

from bot.engine.workflow.definition import Workflow, WorkflowEdge
from bot.engine.workflow.field_reader import InvalidGraph
from bot.engine.workflow.nodes.delay import DelayConfig
from bot.engine.workflow.nodes.human import HumanConfig
from bot.engine.workflow.serialization.reader import read_workflow

CHINESE = """\
# 周报

## 背景
每周一发给团队。
要短。

## 任务

### 1. 收集
- Agent: Explorer
- 描述: 收集本周的进展
  以及问题

### 2. 撰写
- Agent: auto
- 依赖: 1
- 描述:
写成一页。

```markdown
### 3. 这不是任务
- 依赖: 无
```

### 3. 审阅
- 类型: human
- 审批人: 王芳、Bo
- 依赖: 撰写
- 描述: 请审阅

### 4. 修改
- 依赖: task-3
- 条件: outputs.task_3.approved == false
- 超时: 30m

### 5. 发送
- 依赖: 审阅、收集
- 条件: outputs.task_3.approved == true

## 循环
- 修改 → 审阅 (当 outputs.task_4.done == true, 最多 4 次)
- 4 -> 撰写
"""

ENGLISH = """\
# Weekly report
## Background
Sent every Monday.
## Tasks
### 1. Collect
- Persona: Explorer
- Description: Collect what was done
### 2. Write
- Depends: Collect
- Retries: 2
### 3. Wait
- Type: delay
- Depends on: 2
- Value: 2h
## Loops
Write -> Collect (when outputs.task_2.short == true, at most 2 times)
"""


def edge_pairs(workflow: Workflow) -> list[tuple[str, str]]:
    return [(edge.source, edge.target) for edge in workflow.edges if not edge.label]


def loops(workflow: Workflow) -> list[WorkflowEdge]:
    return [edge for edge in workflow.edges if edge.label == "loop"]


def test_tasks_are_nodes_in_the_order_of_their_dependencies() -> None:
    workflow = read_workflow(CHINESE)

    assert workflow.name == "周报"
    assert workflow.plan == "每周一发给团队。\n要短。"
    assert [node.title for node in workflow.nodes[1:-1]] == ["收集", "撰写", "审阅", "修改", "发送"]
    assert edge_pairs(workflow) == [
        ("start", "task-1"),
        ("task-1", "task-2"),
        ("task-2", "task-3"),
        ("task-3", "task-4"),
        ("task-3", "task-5"),
        ("task-1", "task-5"),
        ("task-5", "end"),
    ]


def test_a_task_is_told_what_stands_under_it() -> None:
    known = read_workflow(CHINESE).nodes_by_id

    assert known["task-1"].detail == "收集本周的进展\n  以及问题"
    assert known["task-1"].persona == "Explorer"
    assert "### 3. 这不是任务" in known["task-2"].detail
    assert known["task-2"].persona == ""
    assert known["task-4"].timeout == 1_800
    assert known["task-3"].config == HumanConfig(assignee=("王芳", "Bo"), timeout=86_400)


def test_conditions_stand_on_the_edges_that_lead_there() -> None:
    conditions = {
        edge.target: edge.condition for edge in read_workflow(CHINESE).edges if edge.condition
    }

    assert conditions["task-4"] == "outputs.task_3.approved == false"
    assert conditions["task-5"] == "outputs.task_3.approved == true"


def test_loops_lead_back_so_many_times() -> None:
    first, second = loops(read_workflow(CHINESE))

    assert (first.source, first.target, first.max_loops) == ("task-4", "task-3", 4)
    assert first.condition == "outputs.task_4.done == true"
    assert (second.source, second.target, second.max_loops) == ("task-4", "task-2", 3)
    assert second.condition == ""


def test_english_headings_do_as_well() -> None:
    workflow = read_workflow(ENGLISH)

    assert workflow.plan == "Sent every Monday."
    assert edge_pairs(workflow) == [
        ("start", "task-1"),
        ("task-1", "task-2"),
        ("task-2", "task-3"),
        ("task-3", "end"),
    ]
    assert workflow.nodes_by_id["task-1"].persona == "Explorer"
    assert workflow.nodes_by_id["task-2"].retry is not None
    assert workflow.nodes_by_id["task-3"].config == DelayConfig(seconds=7_200)
    assert [(edge.max_loops, edge.condition) for edge in loops(workflow)] == [
        (2, "outputs.task_2.short == true")
    ]


def test_tasks_without_numbers_are_numbered_in_order() -> None:
    workflow = read_workflow("# x\n## Tasks\n### First\n### Second\n- After: First\n")

    assert edge_pairs(workflow)[1] == ("task-1", "task-2")


@pytest.mark.parametrize(
    ("field", "name"), [("Undone by", "Cancel it"), ("onCancel", "3"), ("撤销", "task-3")]
)
def test_a_task_may_name_what_undoes_it(field: str, name: str) -> None:
    tasks = (
        f"### 1. Book\n- {field}: {name}\n### 2. Pay\n- Depends: 1\n### 3. Cancel it\nBy phone.\n"
    )
    workflow = read_workflow(f"# x\n## Tasks\n{tasks}")

    assert workflow.nodes_by_id["task-1"].on_cancel == "task-3"
    assert edge_pairs(workflow) == [("start", "task-1"), ("task-1", "task-2"), ("task-2", "end")]


def test_a_page_without_tasks_is_refused() -> None:
    with pytest.raises(InvalidGraph, match="nodes: missing"):
        read_workflow("# x\n## Tasks\n")


def test_a_comment_in_yaml_is_no_heading() -> None:
    assert read_workflow("# my workflow\n## Tasks\nname: x\nnodes:\n  - id: a\n").name == "x"
