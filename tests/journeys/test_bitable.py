"""A team plans in the table: the real program with an emulated Bitable."""

from __future__ import annotations

import json
from pathlib import Path

from tests.emulators.feishu.bitable_editor import TableEditor
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.journeys.program import running_program
from tests.waiting import wait_until

DONE = "✅ Completed"


def by_title(editor: TableEditor, title: str) -> list[dict[str, object]]:
    """Rows of tasks with this title; steps have a parent."""
    return [
        row
        for row in editor.rows().values()
        if row.get("Task") == title and "Parent task" not in row
    ]


def is_done(editor: TableEditor, title: str) -> bool:
    return [row.get("Status") for row in by_title(editor, title)] == [DONE]


async def test_tasks_become_rows_and_rows_become_tasks(tmp_path: Path) -> None:
    async with FeishuEmulator() as fs:
        boss = fs.user("Boss")
        chat = fs.private_chat(boss)
        owner = {"SHIFTBOSS_OWNERS": f"feishu:{boss.open_id}", "SHIFTBOSS_LANGUAGE": "en"}
        async with running_program(tmp_path, **fs.settings, **owner) as program:
            await fs.wait_for_connections()
            await boss.says(chat, '/run --title before write "hello" to a.txt')
            await chat.wait_for(lambda m: "Task finished" in f"{m.header} {m.text}")

            await boss.says(chat, "/bitable setup")
            made = await chat.wait_for(lambda m: "The Bitable is ready" in m.text)
            (base,) = fs.bitable.bases.values()
            assert base.url in made.content
            tasks = TableEditor(base=base, table=base.table("Tasks"), user=boss)
            await wait_until(lambda: is_done(tasks, "before"))

            tasks.add_row(Task="second", Instruction='write "hi" to b.txt')
            await wait_until(lambda: is_done(tasks, "second"))

            await program.kill()
            fs.bitable.send_events = False
            tasks.add_row(Task="third", Instruction='write "ho" to c.txt')
            tasks.rename_column("Instruction", "What to do")
            await program.start()
            await wait_until(lambda: is_done(tasks, "third"))
            assert [len(by_title(tasks, each)) for each in ("before", "second", "third")] == [1] * 3

            status, told = await program.run_to_end("bitable", "setup", "--check", "--json")
            assert (status, json.loads(told)["gaps"]) == (0, [])
