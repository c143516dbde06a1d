"""A workflow with branches, rounds, a person and a rest, as a story."""

from __future__ import annotations

from tests.chaos.story import CrashStory, ScriptedUser

_ITEMS = ("a", "b", "c")
_GRAPH = """\
name: Many branches
settings: {maxParallel: 2}
variables: {items: [a, b, c]}
nodes:
  - {id: fork, type: parallel}
  - {id: each, type: foreach, foreach: {collection: variables.items, mode: parallel,
     maxParallel: 2, bodyNodes: [put]}}
  - {id: put, type: task, name: 'write "{{item}}" to g-{{item}}.txt'}
  - {id: try, type: task, name: "prove the Riemann hypothesis", onError: skip}
  - {id: ask, type: human, name: "May the graph end?"}
  - {id: rest, type: delay, delay: {value: 1, unit: s}}
  - {id: all, type: join}
  - {id: many, type: condition}
  - {id: yes, type: task, name: 'write "end" to g-end.txt'}
  - {id: no, type: task, name: 'write "no" to g-no.txt'}
edges:
  - {from: fork, to: each}
  - {from: each, to: all}
  - {from: fork, to: try}
  - {from: try, to: ask}
  - {from: ask, to: rest}
  - {from: rest, to: all}
  - {from: all, to: many}
  - {from: many, to: yes, condition: "len(outputs.each.results) == 3"}
  - {from: many, to: no}
"""


async def _branches(boss: ScriptedUser) -> None:
    folder = boss.home / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "many.yaml").write_text(_GRAPH, encoding="utf-8")
    await boss.channel.send_message("/workflow run many")
    task = str(await boss.wait_for_row("SELECT id FROM tasks"))
    await boss.wait_for_row("SELECT 1 FROM approvals WHERE state = 'waiting'")
    await boss.channel.press("Approve", about="May the graph end")
    await boss.wait_for_status(task, "completed")


STORIES = (
    CrashStory(
        name="a graph",
        act=_branches,
        final_statuses={"Many branches": ("completed",)},
        files={**{f"g-{item}.txt": item for item in _ITEMS}, "g-end.txt": "end"},
        transitions=(
            "node.>waiting",
            "node.>done",
            "node.>skipped",
            "node.waiting>done",
            "node.running>skipped",
        ),
    ),
)
