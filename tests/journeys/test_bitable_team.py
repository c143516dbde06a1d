"""A team of three plans a day in the table of its group: rows, steering, and what is not obeyed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.emulators.feishu.bitable_editor import TableEditor
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.journeys.platform_world import ask_on_feishu_as, code_in
from tests.journeys.program import running_program
from tests.thoroughness import thorough_only
from tests.waiting import wait_until

# Options that people type keep their words.
DONE, PAUSED, CANCELLED = "✅ Completed", "paused", "cancelled"


def row_id(editor: TableEditor, title: str) -> str:
    """The only row of a task with this title; steps have a parent."""
    (found,) = [
        number
        for number, row in editor.rows().items()
        if row.get("Task") == title and "Parent task" not in row
    ]
    return found


def shows(editor: TableEditor, title: str, **cells: str) -> Callable[[], bool]:
    def look() -> bool:
        rows = [each for each in editor.rows().values() if each.get("Task") == title]
        tasks = [each for each in rows if "Parent task" not in each]
        return len(tasks) == 1 and all(
            words in str(tasks[0].get(column.replace("_", " "), ""))
            for column, words in cells.items()
        )

    return look


@thorough_only
async def test_a_team_of_three_plans_a_day_in_the_table(tmp_path: Path) -> None:
    async with FeishuEmulator() as fs:
        boss, mei, eve = fs.user("Boss"), fs.user("Mei"), fs.user("Eve")
        facts = {
            **fs.settings,
            "SHIFTBOSS_OWNERS": f"feishu:{boss.open_id}",
            "SHIFTBOSS_LANGUAGE": "en",
            "SHIFTBOSS_SLOTS": "1",
            "SHIFTBOSS_BITABLE_POLL_SECONDS": "10",
        }
        async with running_program(tmp_path, **facts) as program:
            await fs.wait_for_connections()
            home, floor = fs.private_chat(boss), fs.group("Floor")
            code = code_in(await ask_on_feishu_as(mei, fs.private_chat(mei), "hello"))
            await ask_on_feishu_as(boss, home, f"/pair {code}", expects="now has access")
            await boss.says(floor, "/bitable setup", mentions=["bot"])
            await floor.wait_for(lambda m: "The Bitable is ready" in m.text)
            (base,) = fs.bitable.bases.values()
            table = base.table("Tasks")
            for_boss, for_mei, for_eve = (
                TableEditor(base=base, table=table, user=each) for each in (boss, mei, eve)
            )

            # In the morning two of them plan; a visitor writes, too.
            for_boss.add_row(Task="long", Instruction="wait 9 minutes", Priority="Urgent")
            await wait_until(shows(for_boss, "long", Status="Running"))
            for_mei.add_row(Task="letter", Instruction='write "dear" to letter.txt')
            for_mei.add_row(Task="later", Instruction='write "x" to later.txt', Priority="Normal")
            for_eve.add_row(Task="mine", Instruction="wait 1 minute")
            await wait_until(shows(for_mei, "letter", Status="Pending", Asked_by="Mei"))
            await wait_until(shows(for_mei, "later", Status="Pending", Asked_by="Mei"))
            await wait_until(shows(for_eve, "mine", Note="only people with access"))

            # They steer: one task is paused, the running one stopped, and the next one begins.
            for_boss.edit(row_id(for_boss, "later"), "Status", "paused")
            await floor.wait_for(lambda m: "⏸️ later" in f"{m.header} {m.text}")
            for_mei.edit(row_id(for_mei, "long"), "Status", "cancelled")
            await wait_until(shows(for_mei, "letter", Status=DONE))
            assert shows(for_mei, "long", Status=CANCELLED)()
            for_eve.edit(row_id(for_eve, "later"), "Task", "hers")
            await wait_until(shows(for_boss, "later", Status=PAUSED, Note="access"))

            # The program is away over noon, no announcement reaches it, and work goes on.
            await program.kill()
            fs.bitable.send_events = False
            for_mei.edit(row_id(for_mei, "later"), "Task", "report")
            for_mei.edit(row_id(for_mei, "report"), "Status", "Running")
            for_boss.delete_rows(row_id(for_boss, "letter"))
            await program.start()
            await wait_until(shows(for_boss, "report", Status=DONE))

            # In the evening the chat lists what the table shows, and nothing else.
            listed = await ask_on_feishu_as(boss, floor, "/list", mentions=["bot"])
            assert all(title in listed for title in ("long", "letter", "report"))
            assert "mine" not in listed
            titles = [row.get("Task") for row in for_boss.rows().values() if row.get("Task ID")]
            assert sorted(each for each in titles if each in {"long", "letter", "report"}) == [
                "long",
                "report",
            ]
