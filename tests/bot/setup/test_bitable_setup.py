"""The setup of a Bitable: the real store and client against the emulated platform."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.app.container import Container, open_container
from bot.config.settings import load_settings
from bot.setup.bitable_setup import BitableDiagnosis
from handlers.errors import UserError
from storage.bitable import BitableRepo
from storage.records.bitable import (
    BitableBase,
    BitableGapKind,
    BitableReport,
    BitableState,
    TableRole,
    TaskField,
)
from storage.records.messages import ChatAddress, MessageSender
from storage.records.people import Channel, Chat, ChatKind, Language, Person
from tests.emulators.feishu.bitable import FeishuBase
from tests.emulators.feishu.bitable_editor import TableEditor
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.refusals import ConnectionCut, scope_missing
from tests.migrated_database import lay_out_store


@dataclass
class Bench:
    fs: FeishuEmulator
    core: Container
    owner: Person
    chat: Chat
    """The owner's private chat in Feishu."""

    @property
    def repo(self) -> BitableRepo:
        return BitableRepo(self.core.repositories.db)

    async def set_up(
        self, token: str = "", *, chat: Chat | None = None, language: Language = Language.CHINESE
    ) -> BitableReport:
        return await self.core.services.bitable.set_up(
            token, by=self.owner, chat=chat or self.chat, language=language
        )

    async def saved(self) -> BitableBase:
        base = await self.repo.get_base()
        assert base is not None
        return base

    def editor(self, base: FeishuBase, table: str) -> TableEditor:
        return TableEditor(base=base, table=base.table(table), user=self.fs.user("Anna"))

    async def group(self) -> Chat:
        emulated = self.fs.group("team")
        place = ChatAddress(channel=Channel.FEISHU, chat=emulated.chat_id, kind=ChatKind.GROUP)
        store = self.core.repositories
        async with store.db.write() as tx:
            sender = MessageSender(external_id=self.fs.user("Anna").open_id)
            return await store.chats.get_or_create(tx, place, sender, self.core.clock.now())


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Bench, None]:
    for name in list(os.environ):
        if name.startswith(("SHIFTBOSS_", "TELEGRAM_", "FEISHU_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    lay_out_store(tmp_path / "home")
    async with AsyncExitStack() as stack:
        fs = await stack.enter_async_context(FeishuEmulator())
        anna = fs.user("Anna")
        for name, value in fs.settings.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SHIFTBOSS_OWNERS", f"feishu:{anna.open_id}")
        core = await stack.enter_async_context(open_container(load_settings()))
        owner = await core.repositories.people.find_by_account(Channel.FEISHU, anna.open_id)
        assert owner is not None
        chat = await core.repositories.chats.get_private(owner.id)
        yield Bench(fs=fs, core=core, owner=owner, chat=chat)


async def test_a_base_with_three_tables_is_made_and_shared_with_the_owner(bench: Bench) -> None:
    report = await bench.set_up()

    base = bench.fs.bitable.bases[report.base.base]
    assert [each.name for each in base.tables.values()] == ["任务表", "执行日志表", "记忆库"]
    assert base.members == {bench.fs.user("Anna").open_id: "full_access"}
    assert base.subscribed
    tasks = bench.editor(base, "任务表")
    assert tasks.columns[:3] == ["任务名称", "状态", "优先级"]
    assert list(tasks.table.column("优先级").options.values()) == ["🔴 紧急", "🟡 重要", "🟢 普通"]
    assert [each["view_name"] for each in tasks.table.views] == ["默认视图", "按状态"]
    assert tasks.rows() == {}
    assert (report.is_new, report.is_good, report.announces) == (True, True, True)
    assert report.calls <= 20
    assert await bench.saved() == report.base
    assert report.base.state is BitableState.ACTIVE
    assert report.base.chat_id == bench.chat.id


async def test_an_english_owner_gets_english_tables(bench: Bench) -> None:
    report = await bench.set_up(language=Language.ENGLISH)

    base = bench.fs.bitable.bases[report.base.base]
    assert [each.name for each in base.tables.values()] == ["Tasks", "Logs", "Memories"]
    assert "⏸️ Paused" in base.table("Tasks").column("Status").options.values()


async def test_a_second_setup_makes_nothing_twice(bench: Bench) -> None:
    first = await bench.set_up()

    again = await bench.set_up()

    assert len(bench.fs.bitable.bases) == 1
    assert again.base == first.base
    assert (again.is_new, again.gaps) == (False, ())


async def test_a_setup_that_was_cut_off_goes_on_with_the_same_base(bench: Bench) -> None:
    bench.fs.inject_fault("POST", r"/tables$", cut=ConnectionCut.AFTER)
    with pytest.raises(UserError, match="bitable_later"):
        await bench.set_up()
    assert (await bench.saved()).state is BitableState.STOPPED

    report = await bench.set_up()

    (base,) = bench.fs.bitable.bases.values()
    assert [each.name for each in base.tables.values()] == ["任务表", "执行日志表", "记忆库"]
    assert report.is_new
    assert base.members


async def test_renamed_columns_and_options_are_recognised_by_their_ids(bench: Bench) -> None:
    before = (await bench.set_up()).base
    base = bench.fs.bitable.bases[before.base]
    tasks = bench.editor(base, "任务表")
    tasks.rename_column("任务名称", "要做的事")
    tasks.rename_column("备注", "状态说明")
    tasks.rename_option("状态", "✅ 已完成", "🎉 收工")
    tasks.move_column("状态", 5)
    tasks.add_column("我的列", 1)
    base.table("任务表").name = "本周计划"

    report = await bench.core.services.bitable.repair()

    assert report.gaps == ()
    assert report.base.tables == before.tables
    assert "我的列" in tasks.columns


async def test_what_people_deleted_is_found_and_made_again(bench: Bench) -> None:
    before = (await bench.set_up()).base
    base = bench.fs.bitable.bases[before.base]
    tasks = bench.editor(base, "任务表")
    tasks.delete_column("备注")
    tasks.delete_option("状态", "🔴 阻塞")
    bench.editor(base, "执行日志表").delete_table()

    found = await bench.core.services.bitable.check()
    assert {(each.kind, each.name) for each in found.gaps} == {
        (BitableGapKind.COLUMN, "备注"),
        (BitableGapKind.OPTION, "🔴 阻塞"),
        (BitableGapKind.TABLE, "执行日志表"),
    }
    assert not found.is_good
    assert "备注" not in tasks.columns

    await bench.core.services.bitable.repair()
    after = await bench.core.services.bitable.check()

    assert after.gaps == ()
    assert "备注" in tasks.columns
    fields = after.base.tables[TableRole.TASKS].fields
    assert fields[TaskField.NOTE] != before.tables[TableRole.TASKS].fields[TaskField.NOTE]
    assert fields[TaskField.STATUS] == before.tables[TableRole.TASKS].fields[TaskField.STATUS]


async def test_a_table_of_others_is_adopted_with_its_own_words(bench: Bench) -> None:
    """The columns and options of an earlier program: other symbols, a text where we want a
    number, and one column that two of ours could mean."""
    base = bench.fs.bitable.new_base("AI Agent 外脑")
    theirs = [("任务名称", 1), ("状态", 3), ("Token 开销", 1), ("任务进展", 1)]
    table = bench.fs.bitable.new_table(base, "任务表", theirs, "默认视图")
    tasks = bench.editor(base, "任务表")
    for option in ("🕐 待开始", "🚧 阻塞", "归档"):
        tasks.add_option("状态", option)

    report = await bench.set_up(f"https://team.feishu.cn/base/{base.token}?table={table.table_id}")

    adopted = report.base.tables[TableRole.TASKS]
    assert adopted.table == table.table_id
    assert adopted.fields[TaskField.TITLE] == table.column("任务名称").field_id
    status = table.column("状态").options
    assert status[adopted.options[TaskField.STATUS]["blocked"]] == "🚧 阻塞"
    assert status[adopted.options[TaskField.STATUS]["completed"]] == "✅ 已完成"
    assert "归档" in status.values()
    assert adopted.fields[TaskField.TOKENS] == table.column("Token 开销 (Shiftboss)").field_id
    assert "数据表" in [each.name for each in base.tables.values()]
    assert base.members == {}
    assert (report.is_new, report.is_repaired) == (False, True)


async def test_the_base_of_a_group_can_be_edited_by_its_members(bench: Bench) -> None:
    group = await bench.group()

    report = await bench.set_up(chat=group)

    base = bench.fs.bitable.bases[report.base.base]
    assert base.members[group.external_id] == "edit"
    assert report.base.chat_id == group.id
    with pytest.raises(UserError, match="bitable_elsewhere"):
        await bench.set_up()


async def test_a_setup_from_elsewhere_is_for_the_owners_private_chat(bench: Bench) -> None:
    local = await bench.core.get_local_chat()
    await bench.core.repositories.people.set_language(bench.owner, Language.CHINESE)

    report = await bench.set_up(chat=local, language=Language.ENGLISH)

    assert report.base.chat_id == bench.chat.id
    assert report.base.language is Language.CHINESE


async def test_without_events_the_setup_says_so(bench: Bench) -> None:
    bench.fs.inject_fault("*", r"subscribe", error=scope_missing("drive:drive"))

    report = await bench.set_up()

    assert (report.is_good, report.announces) == (True, False)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("not a link", "bitable_token"),
        ("https://team.feishu.cn/wiki/Abc123Abc123", "bitable_unreachable"),
        ("https://team.feishu.cn/wiki/Page000Page000", "bitable_wiki"),
        ("bascnDoesNotExist00000", "bitable_unreachable"),
    ],
)
async def test_a_wrong_link_is_refused_and_leaves_nothing(
    bench: Bench, given: str, key: str
) -> None:
    bench.fs.bitable.wiki["Page000Page000"] = ("docx", "doccn1")
    with pytest.raises(UserError, match=key):
        await bench.set_up(given)

    assert await bench.repo.get_base() is None
    assert bench.fs.bitable.bases == {}


async def test_a_base_in_a_wiki_is_found_by_its_page(bench: Bench) -> None:
    base = bench.fs.bitable.new_base("Plan")
    bench.fs.bitable.wiki["Node000Node000"] = ("bitable", base.token)
    link = "https://team.feishu.cn/wiki/Node000Node000?table=tbl1"
    bench.fs.app.scopes["wiki:wiki:readonly"] = 0
    with pytest.raises(UserError, match="bitable_unreachable") as refused:
        await bench.set_up(link)
    bench.fs.app.scopes["wiki:wiki:readonly"] = 1

    report = await bench.set_up(link)

    assert "wiki:wiki:readonly" in str(refused.value.facts["reason"])
    assert report.base.base == base.token


async def test_an_app_without_the_scope_is_told_what_it_needs(bench: Bench) -> None:
    bench.fs.app.scopes["bitable:app"] = 2

    with pytest.raises(UserError, match="bitable_unreachable") as refused:
        await bench.set_up()

    assert "bitable:app" in str(refused.value.facts["reason"])


async def test_a_base_is_left_as_it_is(bench: Bench) -> None:
    report = await bench.set_up()

    await bench.core.services.bitable.disconnect()

    assert await bench.repo.get_base() is None
    assert len(bench.fs.bitable.bases[report.base.base].tables) == 3
    with pytest.raises(UserError, match="bitable_none"):
        await bench.core.services.bitable.check()


async def test_the_doctor_looks_at_the_base_in_use(bench: Bench) -> None:
    async def found() -> list[str]:
        probe = BitableDiagnosis(bench.core.services.bitable)
        return [each.text for each in await probe.find()]

    assert await found() == []
    report = await bench.set_up()
    assert await found() == ["bitable_reached"]
    base = bench.fs.bitable.bases[report.base.base]
    bench.editor(base, "任务表").delete_column("备注")
    assert await found() == ["bitable_gaps"]
    base.deleted = True
    assert await found() == ["bitable_refused"]
