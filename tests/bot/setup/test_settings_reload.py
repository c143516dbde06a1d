"""Settings that are read again: all or none, at once or after a restart, told by name."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.app.container import Container, open_container
from bot.config.settings import Settings, load_settings
from bot.setup.settings_reload import SettingsReloader
from cards.catalog import catalog_for
from cards.model import Card
from cards.render.text import render
from cards.views.system import settings_card
from storage.records.people import Language
from storage.records.system import SettingsReading
from storage.records.usage import BudgetScope
from tests.migrated_database import lay_out_store


@pytest.fixture
async def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Container, None]:
    for name in list(os.environ):
        if name.startswith(("SHIFTBOSS_", "ANTHROPIC_", "OPENAI_", "TELEGRAM_", "FEISHU_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    settings, level = load_settings(), logging.getLogger().level
    lay_out_store(settings.home)
    async with open_container(settings) as core:
        yield core
    logging.getLogger().setLevel(level)


def write(core: Container, text: str) -> None:
    (core.settings.home / ".env").write_text(text)


async def read(reloader: SettingsReloader) -> SettingsReading:
    reloader._asked_at = None
    return await reloader.reload()


def shown(reading: SettingsReading) -> str:
    return render(settings_card(reading, catalog_for(Language.ENGLISH))).text


async def test_what_applies_at_once_is_in_force_and_the_rest_is_named(core: Container) -> None:
    write(
        core,
        "SHIFTBOSS_CAP_DAY=3 USD\nSHIFTBOSS_SLOTS=7\nSHIFTBOSS_TOOLS_DENY=exec(ls *)\n"
        "SHIFTBOSS_RISK_WORDS=frobnicate\nSHIFTBOSS_QUIET_HOURS=23:00-08:00\n"
        "SHIFTBOSS_RETENTION={spans_days: 3}\nSHIFTBOSS_HEARTBEAT_MINUTES=0\n"
        "SHIFTBOSS_LOG_LEVEL=ERROR\nSHIFTBOSS_WEB_PORT=9999\n"
        "TELEGRAM_BOT_TOKEN=123:abcdefghijkl\n",
    )

    reading = await read(core.reloader)

    engine = core.engine
    assert engine.rules.caps.by_scope[BudgetScope.DAY].micros == 3_000_000
    assert engine.dispatcher.slots == 7
    assert engine.rules.step_approvals.rules.words == ("frobnicate",)
    assert engine.schedule.service.due_times.quiet_hours is not None
    assert core.autonomy.retention.keep.spans_days == 3
    assert logging.getLogger().level == logging.ERROR
    assert not engine.heartbeat.every
    assert set(reading.applied) == {
        "SHIFTBOSS_CAP_DAY",
        "SHIFTBOSS_SLOTS",
        "SHIFTBOSS_TOOLS_DENY",
        "SHIFTBOSS_RISK_WORDS",
        "SHIFTBOSS_QUIET_HOURS",
        "SHIFTBOSS_RETENTION.spans_days",
        "SHIFTBOSS_HEARTBEAT_MINUTES",
        "SHIFTBOSS_LOG_LEVEL",
    }
    assert set(reading.waiting) == {"SHIFTBOSS_WEB_PORT", "TELEGRAM_BOT_TOKEN"}
    text = shown(reading)
    assert "Now in effect" in text
    assert "After a restart" in text
    assert "abcdefghijkl" not in text

    again = await read(core.reloader)
    assert (again.applied, again.waiting) == ((), reading.waiting), "still after a restart"
    write(core, "")
    back = await read(core.reloader)
    assert "SHIFTBOSS_SLOTS" in back.applied
    assert not back.waiting


async def test_one_fault_leaves_all_as_it_was(core: Container) -> None:
    for fault in ("SHIFTBOSS_SLOT=2", "SHIFTBOSS_WEB_PORT=many", "SHIFTBOSS_TOOLS_ALLOW=exec("):
        write(core, f"SHIFTBOSS_SLOTS=7\n{fault}\n")

        reading = await read(core.reloader)

        assert core.engine.dispatcher.slots == 3
        assert core.reloader.in_force.slots == 3
        assert fault.partition("=")[0] in shown(reading)
    assert 0 < (await core.reloader.reload()).retry_seconds <= 10, "asked again at once"


async def test_a_changed_file_is_followed_once_its_writer_is_done_and_told_once(
    core: Container,
) -> None:
    chat = await core.get_local_chat()
    sent: list[str] = []
    looking, looked = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def sleep(_seconds: float) -> None:
        looked.release()
        await looking.acquire()

    async def look(times: int) -> None:
        for _ in range(times):
            looking.release()
            await looked.acquire()

    async def send(_to: object, card: Card, **_more: object) -> None:
        sent.append(render(card).text)

    reloader = core.reloader
    reloader.sleep = sleep
    courier = core.courier
    courier.send = send  # type: ignore[method-assign, assignment]
    async with AsyncExitStack() as stack:
        await reloader.start(stack)
        running = asyncio.create_task(reloader.run())
        await looked.acquire()
        write(core, "SHIFTBOSS_SLOTS=many\n")
        await look(1)
        assert not sent, "its writer may not be done"
        await look(3)
        assert [("SHIFTBOSS_SLOTS" in each, "Nothing was changed" in each) for each in sent] == [
            (True, True)
        ]
        write(core, "SHIFTBOSS_SLOTS=4\n")
        await look(3)
        assert len(sent) == 2
        assert core.engine.dispatcher.slots == 4
        running.cancel()
    assert chat.id


def test_all_that_applies_at_once_are_settings(core: Container) -> None:
    assert core.reloader.appliers.keys() <= Settings.model_fields.keys()
