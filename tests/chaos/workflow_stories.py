"""Stories of workflows: one with branches, rounds, a person and a rest; and one whose join ends a
branch and which fails, so that all is undone; and one that is stopped, with the same end."""

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


_UNDONE = """\
name: Take it back
settings: {maxParallel: 2}
nodes:
  - {id: fork, type: parallel}
  - {id: ask, type: human, name: "May it go on?"}
  - {id: book, name: 'write "booked" to u-book.txt', onCancel: free}
  - {id: free, name: 'write "free" to u-free.txt'}
  - {id: rest, type: delay, delay: {value: 9, unit: h}}
  - {id: later, type: task, name: 'write "late" to u-late.txt'}
  - {id: meet, type: join, join: any, cancelOthers: true}
  - {id: put, name: 'write "put" to u-put.txt', onCancel: {id: take,
     name: 'write "taken" to u-take.txt'}}
  - {id: more, name: 'write "more" to u-more.txt', onCancel: {id: less,
     name: 'write "less" to u-less.txt'}}
  - {id: fail, type: readfile, path: u-missing.txt}
edges:
  - {from: fork, to: ask}
  - {from: ask, to: meet}
  - {from: fork, to: book}
  - {from: book, to: rest}
  - {from: rest, to: later}
  - {from: later, to: meet}
  - {from: meet, to: put}
  - {from: put, to: more}
  - {from: more, to: fail}
"""


async def _undoing(boss: ScriptedUser) -> None:
    folder = boss.home / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "back.yaml").write_text(_UNDONE, encoding="utf-8")
    await boss.channel.send_message("/workflow run back")
    task = str(await boss.wait_for_row("SELECT id FROM tasks"))
    await boss.wait_for_row("SELECT 1 FROM node_runs WHERE path = 'rest' AND status = 'waiting'")
    await boss.wait_for_row("SELECT 1 FROM approvals WHERE state = 'waiting'")
    await boss.channel.press("Approve", about="May it go on")
    await boss.wait_for_status(task, "failed")


_STOPPED = """\
name: Stop and take back
nodes:
  - {id: put, name: 'write "put" to v-put.txt', onCancel: {id: take,
     name: 'write "taken" to v-take.txt'}}
  - {id: more, name: 'write "more" to v-more.txt', onCancel: {id: less,
     name: 'write "less" to v-less.txt'}}
  - {id: rest, name: 'wait 60 seconds', onCancel: {id: wake,
     name: 'write "awake" to v-wake.txt'}}
"""


async def _stopping(boss: ScriptedUser) -> None:
    folder = boss.home / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "halt.yaml").write_text(_STOPPED, encoding="utf-8")
    await boss.channel.send_message("/workflow run halt")
    task = str(await boss.wait_for_row("SELECT id FROM tasks"))
    await boss.wait_for_row("SELECT 1 FROM node_runs WHERE path = 'rest' AND status = 'running'")
    await boss.channel.send_message(f"/stop {task}")
    await boss.wait_for_status(task, "cancelled")


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
    CrashStory(
        name="undoing",
        act=_undoing,
        final_statuses={"Take it back": ("failed",)},
        files={
            "u-book.txt": "booked",
            "u-free.txt": "free",
            "u-put.txt": "put",
            "u-take.txt": "taken",
            "u-more.txt": "more",
            "u-less.txt": "less",
        },
        transitions=("node.waiting>cancelled", "node.>cancelled", "node.>pending"),
        extra_transitions=("node.pending>running",),
    ),
    CrashStory(
        name="stopping",
        act=_stopping,
        final_statuses={"Stop and take back": ("cancelled",)},
        files={
            "v-put.txt": "put",
            "v-take.txt": "taken",
            "v-more.txt": "more",
            "v-less.txt": "less",
            "v-wake.txt": "awake",
        },
        transitions=(),
        extra_transitions=(
            "node.>pending",
            "node.running>pending",
            "node.pending>running",
            "node.running>done",
            "task.running>pending",
            "task.running>cancelled",
        ),
    ),
)
