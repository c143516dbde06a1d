"""The tables of a sync world on the emulated platform, through the real client."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from bot.setup.bitable_setup import BaseSetup
from bot.sync.layout import base_name
from bot.sync.ports import (
    BaseId,
    CellValue,
    FieldId,
    RecordAction,
    RecordId,
    RecordPage,
    RecordsChanged,
    TableField,
    TableId,
    TableRecord,
    TableRef,
)
from bot.transports.feishu.api import FeishuApi, build_http_client
from bot.transports.feishu.bitable import FeishuTableService, parse_field, parse_record
from bot.transports.feishu.bitable_events import parse_table_change
from storage.records.bitable import BitableBase, TableRole
from storage.records.people import ChatId, Language, PersonId
from tests.bot.sync.world import MEMBER, OWNER, STRANGER, SyncWorld, sync_world
from tests.emulators.feishu.bitable import BaseTable
from tests.emulators.feishu.bitable_editor import TableEditor
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.users import FeishuUser
from tests.fakes.tables import FakeTables


@dataclass
class StrictTables:
    """Offers what FakeTables offers. `calls` counts the methods called, `service.calls` the
    requests."""

    fs: FeishuEmulator
    service: FeishuTableService
    made: BitableBase
    on_call: Callable[[], None] = lambda: None
    calls: Counter[str] = field(default_factory=Counter)

    def base(self, chat: ChatId, owner: PersonId) -> BitableBase:
        return self.made

    def field_id(self, role: TableRole, key: str) -> FieldId:
        return FieldId(self.made.tables[role].fields[key])

    # People.

    def editor(self, person: str, role: TableRole = TableRole.TASKS) -> TableEditor:
        user = FeishuUser(fs=self.fs, open_id=person, name=self.fs.world.people[person])
        return TableEditor(
            base=self.fs.bitable.bases[self.made.base], table=self._table(role), user=user
        )

    def _table(self, role: TableRole) -> BaseTable:
        return self.fs.bitable.bases[self.made.base].tables[self.made.tables[role].table]

    def _names(self, role: TableRole, cells: Mapping[str, CellValue]) -> dict[str, CellValue]:
        shown = {each.field_id: each.name for each in self._table(role).columns}
        return {shown[self.field_id(role, key)]: value for key, value in cells.items()}

    def rows(self, role: TableRole = TableRole.TASKS) -> Sequence[TableRecord]:
        """As the platform has them now, however far reads lag."""
        lag, self.fs.bitable.read_lag = self.fs.bitable.read_lag, 0.0
        try:
            found = self.fs.bitable.read_all(self._table(role))
        finally:
            self.fs.bitable.read_lag = lag
        fields = (parse_field(each.describe()) for each in self._table(role).columns)
        by_name = {each.name: each for each in fields}
        return [parse_record(each, by_name) for each in found]

    def cell(self, record: RecordId, key: str, role: TableRole = TableRole.TASKS) -> CellValue:
        row = next(each for each in self.rows(role) if each.id == record)
        return row.cells.get(self.field_id(role, key))

    def add(
        self, person: str, cells: Mapping[str, CellValue], role: TableRole = TableRole.TASKS
    ) -> RecordId:
        return RecordId(self.editor(person, role).add_row_of(self._names(role, cells)))

    def edit(
        self,
        person: str,
        record: RecordId,
        cells: Mapping[str, CellValue],
        role: TableRole = TableRole.TASKS,
    ) -> RecordsChanged:
        """Returns the event."""
        for name, value in self._names(role, cells).items():
            self.editor(person, role).edit(record, name, value)
        return self._event(person, record, RecordAction.EDITED, role)

    def delete(
        self, person: str, record: RecordId, role: TableRole = TableRole.TASKS
    ) -> RecordsChanged:
        self.editor(person, role).delete_rows(record)
        return self._event(person, record, RecordAction.DELETED, role)

    def _event(
        self, person: str, record: RecordId, action: RecordAction, role: TableRole
    ) -> RecordsChanged:
        ref = TableRef(base=BaseId(self.made.base), table=TableId(self.made.tables[role].table))
        at = self.fs.clock.now_ms()
        return RecordsChanged(ref=ref, records={record: action}, operator=person, at=at)

    # The service.

    async def list_fields(self, ref: TableRef) -> tuple[TableField, ...]:
        self.calls["list_fields"] += 1
        return await self.service.list_fields(ref)

    async def subscribe_changes(self, base: BaseId) -> None:
        await self.service.subscribe_changes(base)

    async def search(self, ref: TableRef, **how: Any) -> RecordPage:
        self.calls["search"] += 1
        return await self.service.search(ref, **how)

    async def get_records(
        self, ref: TableRef, ids: Sequence[RecordId]
    ) -> Mapping[RecordId, TableRecord]:
        self.calls["get_records"] += 1
        return await self.service.get_records(ref, ids)

    async def create_records(
        self, ref: TableRef, rows: Sequence[Mapping[FieldId, CellValue]], *, client_token: str
    ) -> tuple[RecordId, ...]:
        self.calls["create_records"] += 1
        self.on_call()
        made = await self.service.create_records(ref, rows, client_token=client_token)
        self.on_call()
        return made

    async def update_records(
        self, ref: TableRef, changes: Mapping[RecordId, Mapping[FieldId, CellValue]]
    ) -> frozenset[RecordId]:
        self.calls["update_records"] += 1
        self.on_call()
        missing = await self.service.update_records(ref, changes)
        self.on_call()
        return missing

    async def delete_records(self, ref: TableRef, ids: Sequence[RecordId]) -> None:
        self.calls["delete_records"] += 1
        self.on_call()
        await self.service.delete_records(ref, ids)
        self.on_call()


@asynccontextmanager
async def strict_world(home: Path) -> AsyncIterator[tuple[SyncWorld, StrictTables]]:
    """A sync world whose tables were set up on the emulated platform; they share one clock."""
    async with FeishuEmulator() as fs, sync_world(home) as world:
        fs.clock.now = world.clock.elapsed  # type: ignore[method-assign]
        for open_id in (OWNER, MEMBER, STRANGER):
            fs.world.people[open_id] = open_id.removeprefix("ou_")
        async with build_http_client(fs.domain) as client:

            async def sleep(seconds: float) -> None:
                world.clock.moved += timedelta(seconds=seconds)

            service = FeishuTableService(
                FeishuApi(
                    client=client,
                    app_id=fs.app_id,
                    app_secret=fs.app_secret,
                    now=world.clock.elapsed,
                    on_call=lambda: None,
                ),
                web_domain=fs.domain,
                sleep=sleep,
            )
            new = await service.create_base(base_name(Language.ENGLISH))
            found = await BaseSetup(
                tables=service, base=new.id, language=Language.ENGLISH, repairs=True
            ).run()
            base = BitableBase(
                base=new.id,
                name=new.name,
                url=new.url,
                language=Language.ENGLISH,
                chat_id=world.chat.id,
                owner=world.owner.id,
                tables=found.tables,
            )
            await service.subscribe_changes(new.id)
            strict = StrictTables(fs=fs, service=service, made=base)
            world.tables = cast("FakeTables", strict)
            await world.sync.deps.repo.save_base(base)
            world.restart()
            fs.push_event = _tell(world)  # type: ignore[method-assign]
            yield world, strict


def _tell(world: SyncWorld) -> Callable[..., Any]:
    def push(_kind: str, event: dict[str, Any]) -> None:
        change = parse_table_change(event)
        assert change is not None
        world.sync.on_table_change(change)

    return push
