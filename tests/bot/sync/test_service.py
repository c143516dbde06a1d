"""The table and the store in step: what flows out, what people order in rows, what goes wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from bot.sync.ports import (
    BaseUnreachable,
    FieldId,
    FieldType,
    RecordAction,
    TableFull,
    TablePlatformUnreachable,
    TableQuotaExhausted,
    TableServiceError,
)
from storage.records.bitable import BitableState, SyncedRowState, TableRole, TaskField
from storage.records.messages import ChatAddress, MessageSender
from storage.records.people import Channel, ChatKind
from storage.records.task_logs import LogKind, NewLog
from storage.records.tasks import TaskPriority, TaskStatus
from tests.bot.sync.soak import Killed, Soak
from tests.bot.sync.world import MEMBER, OWNER, STRANGER, SyncWorld

STATUS, TITLE, NOTE = TaskField.STATUS, TaskField.TITLE, TaskField.NOTE


async def test_tasks_and_logs_of_the_chat_flow_out_and_then_it_is_quiet(world: SyncWorld) -> None:
    task = await world.task("Write the report")
    elsewhere = ChatAddress(channel=Channel.FEISHU, chat="oc_private", kind=ChatKind.PRIVATE)
    async with world.core.repositories.db.write() as tx:
        private = await world.core.repositories.chats.get_or_create(
            tx, elsewhere, MessageSender(external_id=OWNER), world.clock.now()
        )
        new = NewLog(task_id=task.id, source="s", kind=LogKind.FINDING, text="It is blue")
        await world.core.repositories.work.logs.add(tx, new, now=world.clock.now())
    await world.task("Secret", chat=private)

    await world.settle()
    before = dict(world.tables.calls)
    await world.settle(1)

    (row,) = world.tables.rows()
    assert await world.shown(task, TITLE) == "Write the report"
    assert await world.shown(task, STATUS) == "🆕 Pending"
    assert row.cells[world.tables.tables[TableRole.TASKS].fields[0].id] == "Write the report"
    (log,) = world.tables.rows(TableRole.LOGS)
    assert "It is blue" in log.cells.values()
    assert world.tables.calls == before, "a quiet system calls nobody"


async def test_what_is_collected_longer_is_looked_at_later(world: SyncWorld) -> None:
    world.sync.hold = lambda: 10.0

    assert await world.sync.cycle() == 10.0


async def test_a_change_in_the_store_is_one_call(world: SyncWorld) -> None:
    tasks = [await world.task(f"Task {n}") for n in range(5)]
    await world.settle()
    await world.sync.cycle()
    world.sync._outflow.reads_first = False
    world.tables.calls.clear()

    for task in tasks:
        await world.core.services.tasks.set_priority(
            task, TaskPriority.URGENT, by=world.owner, source=f"p:{task.id}"
        )
    await world.sync.cycle()

    assert [await world.shown(task, TaskField.PRIORITY) for task in tasks] == ["🔴 Urgent"] * 5
    assert dict(world.tables.calls) == {"update_records": 1}


async def test_an_edit_in_the_table_is_an_order_of_its_editor(world: SyncWorld) -> None:
    task = await world.task("Old name")
    await world.settle()
    record = await world.record(task)

    event = world.tables.edit(MEMBER, record, {TITLE: "New name", STATUS: "⏸️ Paused"})
    world.sync.on_table_change(event)
    await world.settle()

    changed = await world.read(task)
    assert (changed.title, changed.status) == ("New name", TaskStatus.PAUSED)
    assert await world.shown(task, STATUS) == "⏸️ Paused"
    assert (await world.row(task)).orders == {}


async def test_different_columns_changed_on_both_sides_both_stand(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    world.tables.edit(MEMBER, await world.record(task), {TITLE: "Theirs"})
    await world.core.services.tasks.set_priority(
        task, TaskPriority.URGENT, by=world.owner, source="ours"
    )

    await world.settle(700)

    changed = await world.read(task)
    assert (changed.title, changed.priority) == ("Theirs", TaskPriority.URGENT)
    assert await world.shown(task, TITLE) == "Theirs"
    assert await world.shown(task, TaskField.PRIORITY) == "🔴 Urgent"


@pytest.mark.parametrize("table_is_later", [True, False])
async def test_of_two_changes_of_a_column_the_later_stands_with_a_note(
    world: SyncWorld, *, table_is_later: bool
) -> None:
    task = await world.task()
    await world.settle()
    record = await world.record(task)

    async def here() -> None:
        await world.core.services.tasks.set_priority(
            task, TaskPriority.URGENT, by=world.owner, source="ours"
        )

    if table_is_later:
        await here()
        world.tables.edit(MEMBER, record, {TaskField.PRIORITY: "🟡 Important"})
    else:
        world.tables.edit(MEMBER, record, {TaskField.PRIORITY: "🟡 Important"})
        world.clock.moved = -world.clock.moved
        world.tables.edit(MEMBER, record, {TaskField.PRIORITY: "🟡 Important"})
        world.clock.moved = -world.clock.moved
        await here()
    await world.settle(700)

    wanted = TaskPriority.IMPORTANT if table_is_later else TaskPriority.URGENT
    assert (await world.read(task)).priority is wanted
    assert "both" not in str(await world.shown(task, NOTE))
    assert "later change" in str(await world.shown(task, NOTE))


async def test_what_shiftboss_fills_in_is_put_back_with_a_note(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    record = await world.record(task)

    world.tables.edit(MEMBER, record, {TaskField.COST: 99.0, TaskField.ID: "x"})
    await world.settle(700)

    assert await world.shown(task, TaskField.COST) == 0.0
    assert await world.shown(task, TaskField.ID) == task.id
    assert "was undone" in str(await world.shown(task, NOTE))


@pytest.mark.parametrize("who", [STRANGER, "cli_app"])
async def test_nobody_without_access_changes_a_task(world: SyncWorld, who: str) -> None:
    task = await world.task()
    await world.settle()

    world.tables.edit(who, await world.record(task), {STATUS: "🚫 Cancelled", TITLE: "Mine"})
    await world.settle(700)

    assert (await world.read(task)).status is TaskStatus.PENDING
    assert await world.shown(task, TITLE) == "Do it"
    assert "access" in str(await world.shown(task, NOTE))


async def test_an_order_that_makes_no_sense_is_put_back(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()

    world.tables.edit(OWNER, await world.record(task), {STATUS: "✅ Completed"})
    await world.settle(700)

    assert (await world.read(task)).status is TaskStatus.PENDING
    assert await world.shown(task, STATUS) == "🆕 Pending"
    assert "Not possible right now" in str(await world.shown(task, NOTE))


async def test_a_row_becomes_a_task_of_the_person_who_wrote_it(world: SyncWorld) -> None:
    await world.settle()
    record = world.tables.add(MEMBER, {})
    event = world.tables.edit(
        MEMBER,
        record,
        {TITLE: 'Say "hi"', TaskField.INSTRUCTION: "Line 1\nLine 2", TaskField.PRIORITY: "urgent"},
    )
    world.sync.on_table_change(event)

    await world.settle()
    await world.settle()

    (task,) = await world.new_tasks()
    assert (task.title, task.instruction) == ('Say "hi"', "Line 1\nLine 2")
    assert (task.created_by, task.chat_id) == (world.member.id, world.chat.id)
    assert task.priority is TaskPriority.URGENT
    assert await world.record(task) == record
    assert await world.shown(task, TaskField.ID) == task.id
    assert len(world.tables.rows()) == 1


async def test_an_empty_row_waits_and_a_strangers_row_becomes_nothing(world: SyncWorld) -> None:
    await world.settle()
    world.tables.add(MEMBER, {})
    strange = world.tables.add(STRANGER, {TITLE: "rm -rf"})

    await world.settle(700)

    assert await world.new_tasks() == []
    assert "only people with access" in str(world.tables.cell(strange, NOTE))


async def test_nobody_borrows_the_rights_of_who_touched_the_row_last(world: SyncWorld) -> None:
    await world.settle()
    record = world.tables.add(MEMBER, {TITLE: "Members' words"})
    world.tables.edit(OWNER, record, {TaskField.PRIORITY: "🔴 Urgent"})
    other = world.tables.add(STRANGER, {TITLE: "Stranger's words"})
    world.tables.edit(OWNER, other, {TaskField.PRIORITY: "🔴 Urgent"})

    await world.settle(700)

    (task,) = await world.new_tasks()
    assert task.created_by == world.member.id


async def test_rows_that_were_there_before_are_left_alone(world: SyncWorld) -> None:
    for n in range(3):
        world.tables.add(OWNER, {TITLE: f"Old plan {n}"})
    world.clock.moved *= 1
    await world.clock.sleep(60)

    await world.settle(700)

    assert await world.new_tasks() == []


async def test_rows_written_after_a_first_look_that_was_cut_off_are_orders(
    world: SyncWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut_off(*_: object, **__: object) -> None:
        raise TablePlatformUnreachable("down")

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "search", cut_off)
        await world.failing_cycle()
    world.restart()
    await world.clock.sleep(60)
    world.tables.add(MEMBER, {TITLE: "Written early"})
    await world.clock.sleep(60)

    await world.settle()
    await world.settle()

    assert [task.title for task in await world.new_tasks()] == ["Written early"]


async def test_a_copied_row_is_a_new_task(world: SyncWorld) -> None:
    task = await world.task("Weekly")
    await world.settle()
    original = world.tables.rows()[0]
    keys = {each.id: each.name for each in world.tables.tables[TableRole.TASKS].fields}
    copied = {
        field.removeprefix(f"fld_{TableRole.TASKS}_"): value
        for field, value in original.cells.items()
        if field in keys
    }

    world.tables.add(MEMBER, copied)
    await world.settle(700)

    assert len({each.id for each in await world.new_tasks()}) == 2
    ids = {record.cells[FieldId("fld_tasks_id")] for record in world.tables.rows()}
    assert len(ids) == 2
    assert task.id in ids


async def test_a_deleted_row_of_a_live_task_comes_back_with_a_note(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()

    world.sync.on_table_change(world.tables.delete(MEMBER, await world.record(task)))
    await world.settle()

    assert (await world.read(task)).status is TaskStatus.PENDING
    assert "the task continues" in str(await world.shown(task, NOTE))
    assert len(world.tables.rows()) == 1


async def test_a_deleted_row_of_a_finished_task_stays_deleted(world: SyncWorld) -> None:
    task = await world.task()
    await world.core.services.tasks.stop(task, by=world.owner, source="stop")
    await world.settle()

    world.sync.on_table_change(world.tables.delete(MEMBER, await world.record(task)))
    await world.settle()
    gone = await world.row(task)
    await world.core.services.tasks.retry(task, by=world.owner, source="retry")
    await world.settle()

    assert gone.state is SyncedRowState.GONE
    assert await world.shown(task, STATUS) == "🆕 Pending", "it is live again"


async def test_a_renamed_option_keeps_its_meaning(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    world.tables.rename_option(TableRole.TASKS, STATUS, "pending", "Backlog")
    world.sync._reload = True
    await world.settle(1)

    assert await world.shown(task, STATUS) == "Backlog"
    world.tables.edit(MEMBER, await world.record(task), {STATUS: "暂停"})
    await world.settle(700)
    assert (await world.read(task)).status is TaskStatus.PAUSED
    await world.core.services.tasks.resume(task, by=world.owner, source="go")
    await world.settle()
    assert await world.shown(task, STATUS) == "Backlog"


async def test_missing_and_foreign_columns_are_left_alone(world: SyncWorld) -> None:
    table = world.tables.tables[TableRole.TASKS]
    table.fields = [
        replace(each, type=FieldType.FORMULA) if each.id == "fld_tasks_cost" else each
        for each in table.fields
        if each.id != "fld_tasks_plan"
    ]
    task = await world.task()
    await world.settle()

    cells = world.tables.rows()[0].cells
    assert cells[FieldId("fld_tasks_id")] == task.id
    assert not {"fld_tasks_cost", "fld_tasks_plan"} & cells.keys()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (BaseUnreachable("gone"), "gone"),
        (TableQuotaExhausted("quota"), "quota"),
        (TableFull("full"), "full"),
    ],
)
async def test_a_base_that_cannot_be_used_is_told_once_and_caught_up(
    world: SyncWorld, error: TableServiceError, reason: str
) -> None:
    await world.settle()
    world.tables.fail = error
    task = await world.task()
    waits = [await world.failing_cycle() for _ in range(3)]
    stopped = await world.sync.deps.repo.get_base()
    world.tables.fail = None
    await world.settle()

    assert min(waits) >= 600
    assert stopped is not None
    assert (stopped.state, stopped.reason) == (BitableState.STOPPED, reason)
    assert len(world.notices) == 1
    assert await world.shown(task, TITLE) == "Do it"
    base = await world.sync.deps.repo.get_base()
    assert base is not None
    assert base.state is BitableState.ACTIVE


async def test_an_outage_loses_nothing_on_either_side(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    world.tables.fail = TablePlatformUnreachable("503")
    world.tables.edit(MEMBER, await world.record(task), {TITLE: "During"})
    await world.core.services.tasks.set_priority(
        task, TaskPriority.URGENT, by=world.owner, source="ours"
    )
    for _ in range(3):
        await world.failing_cycle()
    world.tables.fail = None
    await world.settle(700)

    changed = await world.read(task)
    assert (changed.title, changed.priority) == ("During", TaskPriority.URGENT)
    assert await world.shown(task, TaskField.PRIORITY) == "🔴 Urgent"
    assert world.notices == []


async def test_a_layout_without_what_is_needed_is_told(world: SyncWorld) -> None:
    table = world.tables.tables[TableRole.TASKS]
    table.fields = [each for each in table.fields if each.id != "fld_tasks_id"]

    await world.failing_cycle()

    assert ["layout" in key for key, _ in world.notices] == [True]


async def test_reads_that_lag_are_no_edits(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    world.tables.lag = 3000
    await world.core.services.tasks.set_priority(
        task, TaskPriority.URGENT, by=world.owner, source="ours"
    )
    await world.sync.cycle()
    world.sync._polled_at = None
    await world.sync.cycle()
    await world.settle()

    assert (await world.read(task)).priority is TaskPriority.URGENT
    assert await world.shown(task, TaskField.PRIORITY) == "🔴 Urgent"
    assert await world.shown(task, NOTE) is None


async def test_an_event_before_its_change_can_be_read_is_not_lost(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    world.sync._polled_at = world.clock.elapsed() + 10_000
    record = await world.record(task)
    world.tables.lag = 4000
    world.sync.on_table_change(world.tables.edit(MEMBER, record, {TITLE: "Late"}))

    await world.sync.cycle()
    early = (await world.read(task)).title
    await world.settle()

    assert early == "Do it"
    assert (await world.read(task)).title == "Late"


async def test_a_forgotten_and_a_deleted_thing_leaves_the_tables(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    async with world.core.repositories.db.write() as tx:
        held = await world.core.repositories.work.tasks.lock(tx, task.id)
        await world.core.repositories.work.tasks.update(tx, held, deleted_at=world.clock.now())
    await world.sync.deps.repo.require_scan()
    await world.settle()

    assert world.tables.rows() == ()
    assert await world.sync.deps.repo.list_rows() == ()


async def test_a_rebuild_makes_the_table_what_the_store_says(world: SyncWorld) -> None:
    kept, gone = await world.task("Kept"), await world.task("Gone")
    await world.core.services.tasks.stop(gone, by=world.owner, source="stop")
    await world.settle()
    world.sync.on_table_change(world.tables.delete(MEMBER, await world.record(gone)))
    await world.settle()
    world.tables.edit(STRANGER, await world.record(kept), {TITLE: "Spoiled", TaskField.COST: 7.0})
    world.tables.add("cli_app", {TITLE: "From another store", TaskField.ID: "zzzzzz"})

    await world.sync.deps.repo.require_scan(rebuild=True)
    await world.settle()

    assert {record.cells[FieldId("fld_tasks_title")] for record in world.tables.rows()} == {
        "Kept",
        "Gone",
    }
    assert (await world.read(kept)).title == "Kept"


async def test_a_restored_store_takes_its_rows_up_again(world: SyncWorld) -> None:
    task = await world.task("Kept")
    await world.settle()
    repo = world.sync.deps.repo
    rows = await repo.list_rows()
    async with world.core.repositories.db.write() as tx:
        await repo.delete_rows(tx, [row.id for row in rows])
    await repo.require_scan()
    world.restart()
    await world.settle()

    assert len(world.tables.rows()) == 1
    assert await world.shown(task, TITLE) == "Kept"


async def test_an_event_of_our_own_write_reads_nothing(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    world.tables.calls.clear()
    event = world.tables.event("cli_app", await world.record(task), RecordAction.EDITED)
    world.sync.on_table_change(event)
    await world.settle(1)

    assert not world.tables.calls


async def test_what_is_written_before_the_last_order_is_carried_out_counts_too(
    world: SyncWorld,
) -> None:
    task = await world.task()
    await world.settle()
    record = await world.record(task)
    world.sync.on_table_change(world.tables.edit(MEMBER, record, {STATUS: "⏸️ Paused"}))
    world.clock.moved += timedelta(seconds=6)
    await world.sync.cycle()
    world.sync.on_table_change(world.tables.edit(MEMBER, record, {STATUS: "🚫 Cancelled"}))
    await world.settle()

    assert (await world.read(task)).status is TaskStatus.CANCELLED
    assert world.sync._inflow.waiting == {}


async def test_a_row_changed_while_its_task_is_made_keeps_the_change(world: SyncWorld) -> None:
    await world.settle()
    record = world.tables.add(MEMBER, {TITLE: "First"})
    world.clock.moved += timedelta(seconds=700)
    await world.sync.cycle()
    world.tables.edit(OWNER, record, {TITLE: "Second"})
    world.sync._polled_at = None
    await world.sync.cycle()
    await world.settle()

    (task,) = await world.new_tasks()
    assert (task.title, task.instruction) == ("Second", "First")


async def test_a_strangers_change_never_counts_as_that_of_who_was_announced(
    world: SyncWorld,
) -> None:
    task = await world.task()
    await world.settle()
    record = await world.record(task)
    event = world.tables.edit(OWNER, record, {STATUS: "⏸️ Paused"})
    world.tables.edit(STRANGER, record, {TITLE: "Mine"})
    world.sync.on_table_change(event)
    await world.settle()

    assert (await world.read(task)).title == "Do it"
    assert await world.shown(task, TITLE) == "Do it"
    assert "couldn't tell who" in str(await world.shown(task, NOTE))


async def test_an_announced_person_counts_when_shiftboss_wrote_last(world: SyncWorld) -> None:
    task = await world.task()
    await world.settle()
    record = await world.record(task)
    event = world.tables.edit(MEMBER, record, {TITLE: "Theirs"})
    world.tables.edit("cli_app", record, {NOTE: "something"})
    world.sync.on_table_change(event)
    await world.settle()

    assert (await world.read(task)).title == "Theirs"


async def test_memories_of_the_chat_are_shown_and_forgotten_ones_leave(world: SyncWorld) -> None:
    await world.say(OWNER, "/remember We deploy on Fridays")
    await world.settle()
    (row,) = world.tables.rows(TableRole.MEMORIES)
    world.tables.edit(MEMBER, row.id, {"content": "We never deploy"}, TableRole.MEMORIES)
    await world.sync.deps.repo.require_scan()
    await world.settle()
    put_back = world.tables.cell(row.id, "content", TableRole.MEMORIES)
    number = str(world.tables.cell(row.id, "id", TableRole.MEMORIES))
    await world.say(OWNER, f"/memory forget {number}")
    await world.settle()

    assert put_back == "We deploy on Fridays"
    assert world.tables.rows(TableRole.MEMORIES) == ()


@pytest.mark.parametrize("writes", [2, 3, 4])
async def test_a_row_that_is_changed_after_a_crash_is_ordered_once(
    world: SyncWorld, writes: int
) -> None:
    soak = Soak(world, Random(1))
    await world.settle()
    before = len(await world.new_tasks())
    record = world.tables.add(MEMBER, {TITLE: "Milk", TaskField.INSTRUCTION: "Buy milk"})
    event = world.tables.edit(MEMBER, record, {TITLE: "Some milk"})
    world.sync.on_table_change(event)
    soak.switch.left = writes
    with pytest.raises(Killed):
        await world.settle()
    soak.switch.left = 0
    await world.handle_messages()
    world.tables.edit(MEMBER, record, {TaskField.PRIORITY: "🔴 Urgent"})
    world.restart()
    await world.sync.start(None)  # type: ignore[arg-type]

    await soak.rest()

    made = [task for task in await world.new_tasks() if task.instruction == "Buy milk"]
    assert (len(made), len(await world.new_tasks())) == (1, before + 1)
    assert made[0].priority is TaskPriority.URGENT
    assert [row.id for row in world.tables.rows() if row.id == record] == [record]
    assert await soak.differences() == []
