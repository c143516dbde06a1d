"""The table service against the emulated Bitable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from bot.sync import ports
from bot.sync.ports import FieldId, FieldType, NewTableField, RecordId, TableField, TableRef
from bot.transports.feishu.api import FeishuApi, build_http_client
from bot.transports.feishu.bitable import FeishuTableService
from tests.emulators.feishu.bitable_editor import TableEditor
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import (
    ConnectionCut,
    FeishuApiError,
    quota_used_up,
    rate_limited,
)

COLUMNS = (
    NewTableField(name="Title", type=FieldType.TEXT),
    NewTableField(name="Status", type=FieldType.SINGLE_SELECT, options=("🆕 Pending", "✅ Done")),
    NewTableField(name="Labels", type=FieldType.MULTI_SELECT),
    NewTableField(name="Count", type=FieldType.NUMBER),
    NewTableField(name="Due", type=FieldType.DATE),
    NewTableField(name="Active", type=FieldType.CHECKBOX),
    NewTableField(name="Link", type=FieldType.URL),
    NewTableField(name="Who", type=FieldType.PERSON),
    NewTableField(name="Changed", type=FieldType.MODIFIED_TIME),
)


@dataclass
class Bench:
    """One table, the service, and a person who edits it."""

    fs: FeishuEmulator
    service: FeishuTableService
    ref: TableRef
    anna: TableEditor
    slept: list[float] = field(default_factory=list)

    async def ids(self) -> dict[str, FieldId]:
        return {each.name: each.id for each in await self.service.list_fields(self.ref)}

    async def create(self, **cells: ports.CellValue) -> RecordId:
        ids = await self.ids()
        row = {ids[name]: value for name, value in cells.items()}
        made = await self.service.create_records(self.ref, [row], client_token=str(uuid4()))
        return made[0]


@pytest.fixture
async def fs() -> AsyncIterator[FeishuEmulator]:
    async with FeishuEmulator() as emulator:
        yield emulator


@pytest.fixture
async def bench(fs: FeishuEmulator) -> AsyncIterator[Bench]:
    async with build_http_client(fs.domain) as client:
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            fs.advance(seconds)

        api = FeishuApi(
            client=client,
            app_id=fs.app_id,
            app_secret=fs.app_secret,
            now=fs.clock.now,
            on_call=lambda: None,
        )
        service = FeishuTableService(api, web_domain=fs.domain, sleep=sleep, jitter=lambda: 0.0)
        base = await service.create_base("Work")
        table = await service.create_table(base.id, "Tasks", COLUMNS, view="All")
        emulated = fs.bitable.bases[base.id]
        anna = TableEditor(base=emulated, table=emulated.tables[table], user=fs.user("Anna"))
        yield Bench(fs, service, TableRef(base=base.id, table=table), anna, slept)


async def test_values_are_read_back_as_they_were_written(bench: Bench) -> None:
    ids = await bench.ids()
    written: dict[str, ports.CellValue] = {
        "Title": "写方案 · plan",
        "Status": "✅ Done",
        "Labels": ("a", "b"),
        "Count": 12.5,
        "Due": 1_800_000_000_000,
        "Active": True,
        "Link": "https://example.com/a",
        "Who": (bench.anna.user.open_id,),
    }
    bench.fs.bitable.text_numbers = True

    made = await bench.create(**written)

    found = (await bench.service.get_records(bench.ref, [made]))[made]
    shown = {name: found.cells.get(key) for name, key in ids.items() if name != "Changed"}
    assert shown == written
    assert found.created_by == found.modified_by == bench.fs.bot_id


async def test_a_cleared_cell_is_absent(bench: Bench) -> None:
    ids = await bench.ids()
    made = await bench.create(Title="x", Count=1.0)

    await bench.service.update_records(bench.ref, {made: {ids["Count"]: None}})

    cells = (await bench.service.get_records(bench.ref, [made]))[made].cells
    assert ids["Count"] not in cells
    assert cells[ids["Title"]] == "x"


async def test_rich_text_and_formulas_are_read_as_text(bench: Bench) -> None:
    bench.anna.add_column("Shout", 20, compute=lambda row: row["Title"].upper())
    row = bench.anna.add_row(Title="x")
    bench.anna.paste(row, "Title", "see ", ("the page", "https://example.com"), "!")

    page = await bench.service.search(bench.ref)

    ids = await bench.ids()
    cells = page.records[0].cells
    assert cells[ids["Title"]] == "see the page!"
    assert cells[ids["Shout"]] == "SEE THE PAGE!"
    assert page.records[0].modified_by == bench.anna.user.open_id


async def test_a_renamed_column_is_written_by_its_id(bench: Bench) -> None:
    ids = await bench.ids()
    made = await bench.create(Title="before")
    bench.anna.rename_column("Title", "Aufgabe")

    missing = await bench.service.update_records(bench.ref, {made: {ids["Title"]: "after"}})

    assert missing == frozenset()
    assert bench.anna.rows()[made]["Aufgabe"] == "after"
    found = (await bench.service.get_records(bench.ref, [made]))[made]
    assert found.cells[ids["Title"]] == "after"


async def test_a_deleted_column_is_an_unknown_field(bench: Bench) -> None:
    ids = await bench.ids()
    made = await bench.create(Title="x")
    bench.anna.delete_column("Count")

    with pytest.raises(ports.UnknownTableField):
        await bench.service.update_records(bench.ref, {made: {ids["Count"]: 1.0}})


async def test_a_creation_repeated_after_a_lost_answer_creates_nothing_twice(bench: Bench) -> None:
    ids = await bench.ids()
    token, rows = str(uuid4()), [{ids["Title"]: "once"}]
    bench.fs.inject_fault("POST", "batch_create", cut=ConnectionCut.AFTER)

    with pytest.raises(ports.TablePlatformUnreachable):
        await bench.service.create_records(bench.ref, rows, client_token=token)
    again = await bench.service.create_records(bench.ref, rows, client_token=token)

    assert list(bench.anna.rows()) == list(again)
    with pytest.raises(ports.ClientTokenConflict):
        await bench.service.create_records(bench.ref, [{ids["Title"]: "other"}], client_token=token)


async def test_large_batches_are_split_within_the_limits(bench: Bench) -> None:
    ids = await bench.ids()
    rows = [{ids["Title"]: str(number)} for number in range(1001)]

    made = await bench.service.create_records(bench.ref, rows, client_token=str(uuid4()))
    calls = bench.service.calls
    found = await bench.service.get_records(bench.ref, made[:250])
    await bench.service.delete_records(bench.ref, made[:501])

    assert [found[each].cells[ids["Title"]] for each in made[:250]] == [str(n) for n in range(250)]
    assert bench.service.calls - calls == 3 + 2
    assert len(bench.anna.rows()) == 500


async def test_rows_that_are_gone_do_not_stop_the_others(bench: Bench) -> None:
    ids = await bench.ids()
    made = [await bench.create(Title=str(number)) for number in range(5)]
    bench.anna.delete_rows(made[1], made[3])

    missing = await bench.service.update_records(
        bench.ref, {each: {ids["Title"]: "new"} for each in made}
    )
    await bench.service.delete_records(bench.ref, [made[0], made[1]])

    assert missing == {made[1], made[3]}
    assert {row["Title"] for row in bench.anna.rows().values()} == {"new"}
    assert len(bench.anna.rows()) == 2


async def test_a_new_row_that_reads_do_not_show_yet_is_not_taken_for_missing(bench: Bench) -> None:
    ids = await bench.ids()
    bench.fs.bitable.read_lag = 5.0
    made = [await bench.create(Title=str(number)) for number in range(3)]
    bench.anna.delete_rows(made[1])

    missing = await bench.service.update_records(
        bench.ref, {each: {ids["Title"]: "new"} for each in made}
    )

    assert missing == {made[1]}
    assert [row["Title"] for row in bench.anna.rows().values()] == ["new", "new"]


async def test_parallel_writes_of_one_table_wait_for_each_other(bench: Bench) -> None:
    ids = await bench.ids()
    made = [await bench.create(Title=str(number)) for number in range(4)]
    bench.fs.bitable.write_seconds = 0.05

    await asyncio.gather(
        *(bench.service.update_records(bench.ref, {each: {ids["Title"]: "new"}}) for each in made)
    )

    assert bench.slept == []
    assert {row["Title"] for row in bench.anna.rows().values()} == {"new"}


@pytest.mark.parametrize("code", [1254290, 1254291, 1254607])
async def test_a_busy_table_is_tried_again(bench: Bench, code: int) -> None:
    refusal = FeishuApiError(code, "later", status=200)
    bench.fs.inject_fault("POST", "batch_create", error=refusal, times=2)

    await bench.create(Title="x")

    assert bench.slept == [0.5, 1.0]
    assert len(bench.anna.rows()) == 1


async def test_a_table_that_stays_busy_is_reported(bench: Bench) -> None:
    bench.fs.inject_fault("POST", "batch_create", error=rate_limited(3.0), times=100)

    with pytest.raises(ports.TableBusy) as caught:
        await bench.create(Title="x")

    assert caught.value.retry_after == 3.0
    assert bench.slept == [3.0, 3.0, 3.0, 4.0]


async def test_a_quota_that_is_used_up_is_told(bench: Bench) -> None:
    bench.fs.inject_fault("POST", "search", error=quota_used_up())

    with pytest.raises(ports.TableQuotaExhausted):
        await bench.service.search(bench.ref)


async def test_only_recent_rows_are_read_newest_first(bench: Bench) -> None:
    made = [await bench.create(Title=str(number)) for number in range(4)]
    bench.fs.advance(60)
    since = bench.fs.clock.now_ms()
    bench.anna.edit(made[1], "Title", "changed")
    bench.fs.advance(1)
    new = bench.anna.add_row(Title="new")

    page = await bench.service.search(bench.ref, modified_since=since)

    assert [each.id for each in page.records] == [new, made[1]]
    assert (page.next_page, page.total) == ("", 5)


async def test_recent_rows_are_found_without_a_column_for_changes(bench: Bench) -> None:
    made = [await bench.create(Title=str(number)) for number in range(2)]
    bench.fs.advance(60)
    since = bench.fs.clock.now_ms()
    bench.anna.delete_column("Changed")
    bench.anna.edit(made[1], "Title", "changed")

    page = await bench.service.search(bench.ref, modified_since=since)

    assert [each.id for each in page.records] == [made[1]]


async def test_the_column_for_changes_may_be_renamed(bench: Bench) -> None:
    await bench.create(Title="x")
    bench.anna.rename_column("Changed", "geändert")

    page = await bench.service.search(bench.ref, modified_since=0)

    assert len(page.records) == 1


async def test_twenty_thousand_rows_are_read_in_pages_and_no_more_fit(bench: Bench) -> None:
    ids = await bench.ids()
    bench.fs.bitable.max_rows = 1200
    rows = [{ids["Title"]: str(number)} for number in range(1200)]
    await bench.service.create_records(bench.ref, rows, client_token=str(uuid4()))

    read: list[ports.TableRecord] = []
    page = await bench.service.search(bench.ref)
    read += page.records
    while page.next_page:
        page = await bench.service.search(bench.ref, page=page.next_page)
        read += page.records

    assert len({each.id for each in read}) == 1200
    with pytest.raises(ports.TableFull):
        await bench.create(Title="one too many")


@pytest.mark.parametrize(
    "take",
    [
        TableEditor.remove_app,
        TableEditor.delete_base,
        TableEditor.delete_table,
        lambda editor: editor.user.fs.app.scopes.clear(),
    ],
    ids=["app removed", "base deleted", "table deleted", "scope taken"],
)
async def test_a_base_that_is_taken_away_is_told(
    bench: Bench, take: Callable[[TableEditor], None]
) -> None:
    take(bench.anna)

    with pytest.raises(ports.BaseUnreachable):
        await bench.service.search(bench.ref)


async def test_wrong_values_are_refused_before_they_are_sent(bench: Bench) -> None:
    ids = await bench.ids()
    before = bench.service.calls

    for name, value in (("Count", "ten"), ("Count", float("nan")), ("Due", "today")):
        rows = [{ids[name]: value}]
        with pytest.raises(ports.CellRefused):
            await bench.service.create_records(bench.ref, rows, client_token=str(uuid4()))

    assert bench.service.calls == before


async def test_options_keep_their_ids_when_renamed(bench: Bench) -> None:
    before = next(e for e in await bench.service.list_fields(bench.ref) if e.name == "Status")
    made = await bench.create(Title="x", Status="✅ Done")
    bench.anna.rename_option("Status", "✅ Done", "🎉 Finished")

    after = next(e for e in await bench.service.list_fields(bench.ref) if e.name == "Status")
    cells = (await bench.service.get_records(bench.ref, [made]))[made].cells

    assert [each.id for each in after.options] == [each.id for each in before.options]
    assert cells[after.id] == "🎉 Finished"


async def test_a_field_gets_an_option_more_and_another_name(bench: Bench) -> None:
    known = next(e for e in await bench.service.list_fields(bench.ref) if e.name == "Status")
    options = (*known.options, ports.FieldOption(name="⏸️ Paused"))

    changed = await bench.service.update_field(
        bench.ref,
        TableField(id=known.id, name="State", type=known.type, options=options),
    )

    assert changed.name == "State"
    assert [each.name for each in changed.options][-1] == "⏸️ Paused"
    assert changed.options[:2] == known.options


async def test_a_base_is_shared_and_subscribed_once(bench: Bench) -> None:
    for _ in range(2):
        await bench.service.share_with(bench.ref.base, bench.anna.user.open_id)
        await bench.service.subscribe_changes(bench.ref.base)

    assert bench.anna.base.members == {bench.anna.user.open_id: "full_access"}
    assert bench.anna.base.subscribed
    assert len(bench.fs.calls("POST", "/members")) == 1
    assert len(bench.fs.calls("POST", "/subscribe")) == 1


async def test_nothing_is_called_when_the_quota_is_kept_for_messages(bench: Bench) -> None:
    bench.service._may_call = lambda: False

    with pytest.raises(ports.TableQuotaExhausted):
        await bench.service.search(bench.ref)
