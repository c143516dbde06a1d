"""Changes of a Bitable come over the long connection and reach the listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bot.sync.ports import (
    BaseId,
    FieldsChanged,
    RecordAction,
    RecordId,
    RecordsChanged,
    TableChange,
    TableId,
    TableRef,
)
from bot.transports.feishu.bitable_events import parse_table_change
from bot.transports.feishu.transport import FeishuTransport
from storage.records.people import Channel
from tests.bot.transports.feishu.builders import InstantSleep
from tests.emulators.feishu.bitable_editor import TableEditor
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.fakes.inbox import FakeInbox


@pytest.fixture
async def heard(fs: FeishuEmulator, tmp_path: Path) -> AsyncIterator[list[TableChange]]:
    """The changes that a connected transport has announced."""
    changes: list[TableChange] = []
    transport = FeishuTransport(
        app_id=fs.app_id,
        app_secret=fs.app_secret,
        domain=fs.domain,
        inbox=FakeInbox(Channel.FEISHU, "Paused"),
        home=tmp_path,
        on_table_change=changes.append,
        sleep=InstantSleep(),
    )
    async with AsyncExitStack() as stack:
        await transport.start(stack)
        running = asyncio.create_task(transport.run())
        await fs.wait_for_connections()
        yield changes
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_persons_edits_are_announced(fs: FeishuEmulator, heard: list[TableChange]) -> None:
    base = fs.bitable.new_base("Work")
    base.subscribed = True
    anna = TableEditor(base=base, table=base.table("数据表"), user=fs.user("Anna"))
    ref = TableRef(base=BaseId(base.token), table=TableId(anna.table.table_id))

    row = anna.add_row(文本="new")
    anna.edit(row, "文本", "changed")
    anna.delete_rows(row)
    anna.rename_column("文本", "Title")
    await fs.wait_until(lambda: len(heard) == 4)

    assert all(push.codes == [200] for push in fs.pushes)
    fields = [each for each in heard if isinstance(each, FieldsChanged)]
    assert fields == [FieldsChanged(ref=ref)]
    records = [each for each in heard if isinstance(each, RecordsChanged)]
    assert {each.ref for each in records} == {ref}
    assert {each.operator for each in records} == {anna.user.open_id}
    assert {each.records[RecordId(row)] for each in records} == set(RecordAction)
    assert all(abs(each.at - fs.clock.now_ms()) < 60_000 for each in records)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"file_token": 7, "table_id": "tbl1"},
        {"file_token": "b", "table_id": ""},
        {"file_token": "b", "table_id": ["tbl1"]},
    ],
)
def test_an_event_of_no_table_is_nothing(event: dict[str, Any]) -> None:
    assert parse_table_change(event) is None


def test_whatever_else_an_event_holds_is_survived() -> None:
    event = {
        "file_token": "b",
        "table_id": "t",
        "operator_id": "nobody",
        "update_time": "soon",
        "action_list": [7, {"record_id": 1}, {"record_id": "rec1", "action": "record_merged"}],
    }

    change = parse_table_change(event)

    assert isinstance(change, RecordsChanged)
    assert change.records == {RecordId("rec1"): RecordAction.EDITED}
    assert (change.operator, change.at) == (None, 0)
