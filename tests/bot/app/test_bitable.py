"""The synchronisation runs while a base is in use, and hears of changes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.app.bitable import BitableConnection, FeishuAppClient
from bot.config.settings import Settings
from bot.sync.ports import BaseId, FieldsChanged, TableChange, TableId, TableRef
from bot.transports.alerts import ChannelAlerts
from bot.transports.feishu.bitable import FeishuTableService
from bot.transports.quota import MonthlyQuota
from storage.bitable import BitableRepo
from storage.key_value import KeyValueStore
from storage.records.bitable import BitableBase, SyncedTable, TableRole
from storage.records.people import Channel, Language
from tests.engine_harness import BOSS, GROUP, EngineHarness, run_engine
from tests.waiting import ChangeSignal

BASE = BitableBase(
    base="bascn1",
    name="Work",
    url="https://feishu.example/base/bascn1",
    language=Language.CHINESE,
    chat_id=GROUP.id,
    owner=BOSS.id,
    tables={TableRole.TASKS: SyncedTable(table="tbl1", fields={"title": "fld1"})},
)
CHANGE = FieldsChanged(ref=TableRef(base=BaseId("bascn1"), table=TableId("tbl1")))


@dataclass(kw_only=True, eq=False)
class FakeSync:
    """Runs until it is cancelled; with `fails`, it ends at once."""

    signal: ChangeSignal
    fails: bool = False
    heard: list[TableChange] = field(default_factory=list)
    is_running: bool = False
    drained: int = 0

    async def start(self, stack: AsyncExitStack) -> None:
        stack.callback(self.signal.notify)

    async def run(self) -> None:
        if self.fails:
            raise RuntimeError("a fault")
        self.is_running = True
        self.signal.notify()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_running = False

    async def drain(self) -> None:
        self.drained += 1

    def on_table_change(self, change: TableChange) -> None:
        self.heard.append(change)


@dataclass(kw_only=True, eq=False)
class Bench:
    signal: ChangeSignal = field(default_factory=ChangeSignal)
    built: list[FakeSync] = field(default_factory=list)
    failing: int = 0

    def build(self, _tables: FeishuTableService) -> FakeSync:
        sync = FakeSync(signal=self.signal, fails=len(self.built) < self.failing)
        self.built.append(sync)
        return sync

    async def pause(self, _seconds: float) -> None:
        await asyncio.sleep(0)

    def connect(self, world: EngineHarness, home: Path) -> BitableConnection:
        given: dict[str, Any] = {
            "SHIFTBOSS_HOME": str(home),
            "FEISHU_APP_ID": "cli_x",
            "FEISHU_APP_SECRET": "secret",
        }
        settings = Settings(**given)
        alerts = ChannelAlerts([], now=world.clock)
        quota = MonthlyQuota(
            Channel.FEISHU,
            key_values=KeyValueStore(world.db),
            alerts=alerts,
            now=world.clock,
        )
        return BitableConnection(
            repo=BitableRepo(world.db),
            client=FeishuAppClient(settings=lambda: settings, quota=quota),
            build=self.build,
            sleep=self.pause,
        )


async def test_it_runs_while_a_base_is_in_use(tmp_path: Path) -> None:
    bench = Bench()
    async with run_engine(tmp_path) as world:
        repo, connection = BitableRepo(world.db), bench.connect(world, tmp_path)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(connection.run())
            connection.on_table_change(CHANGE)
            await connection.drain()
            assert bench.built == []

            await repo.save_base(BASE)
            connection.notify_changed()
            await bench.signal.until_true(lambda: any(each.is_running for each in bench.built))
            connection.on_table_change(CHANGE)
            await repo.save_base(replace(BASE, base="bascn2"))
            connection.notify_changed()
            await bench.signal.until_true(
                lambda: len(bench.built) == 2 and bench.built[1].is_running
            )
            await connection.drain()
            running.cancel()
        await connection.client.aclose()

    first, second = bench.built
    assert first.heard == [CHANGE]
    assert (second.heard, second.drained) == ([], 1)
    assert not first.is_running
    assert not second.is_running


async def test_a_fault_is_survived(tmp_path: Path) -> None:
    bench = Bench(failing=2)
    async with run_engine(tmp_path) as world:
        connection = bench.connect(world, tmp_path)
        await BitableRepo(world.db).save_base(BASE)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(connection.run())
            await bench.signal.until_true(lambda: any(each.is_running for each in bench.built))
            running.cancel()
        await connection.client.aclose()

    assert [each.fails for each in bench.built] == [True, True, False]
