"""Reports on the real program: asked for and scheduled, in Telegram, Feishu and the web chat."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser import needs_chromium, open_browser, open_visitor
from tests.emulators.feishu.tenant import components
from tests.emulators.telegram.chats import TelegramMessage
from tests.journeys.platform_world import PlatformWorld, platform_world
from tests.journeys.program_store import open_store

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[PlatformWorld, None]:
    async with platform_world(tmp_path_factory.mktemp("home")) as made:
        haiku = "/run write a haiku about queues and save it to haiku.md"
        await made.telegram_owner.says(made.telegram_chat, haiku)
        await made.telegram_chat.wait_for(lambda m: "Task finished" in m.text)
        await made.program.kill()
        _add_history(made.program.home)
        await made.program.start()
        yield made


def _add_history(home: Path) -> None:
    """Three weeks of steps and costs; the program must not run."""
    now = datetime.now(UTC)
    with open_store(home) as store:
        (task,) = store.execute("SELECT id FROM tasks").fetchone()
        for n in range(120):
            at = _micros(now - timedelta(hours=4 * n + n % 3))
            store.execute(
                "INSERT INTO node_attempts (task_id, path, attempt, started_at) VALUES (?,?,1,?)",
                (task, f"old{n}", at),
            )
            store.execute(
                "INSERT INTO usage (at, purpose, backend, model, task_id, requests, input_tokens,"
                " output_tokens, cache_read_tokens, cache_write_tokens, cost_micros)"
                " VALUES (?, 'work', 'b', 'm', ?, 1, 900, 100, 0, 0, ?)",
                (at, task, 10_000 + 1_000 * (n % 7)),
            )


def _make_due(home: Path, title: str) -> None:
    """Move the due time instead of waiting for it; the program must not run."""
    due = datetime.now(UTC).replace(second=0, microsecond=0)
    with open_store(home) as store:
        moved = store.execute(
            "UPDATE schedules SET next_due = ? WHERE state = 'active' AND title = ?",
            (_micros(due), title),
        )
        assert moved.rowcount == 1


def _is_scheduled(message: TelegramMessage) -> bool:
    return all(part in message.text for part in ("Steps by hour", "To stop this report"))


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


async def test_a_weekly_report_on_telegram_comes_with_both_pictures(world: PlatformWorld) -> None:
    chat = world.telegram_chat

    text = await world.ask("/report week", expects="Weekly report")

    assert "haiku about queues" in text
    await chat.wait_for(lambda m: m.from_bot and "photo" in m.media and "Heat map" in m.text)
    await chat.wait_for(lambda m: m.from_bot and "photo" in m.media and "Cost of each" in m.text)
    shown = await chat.wait_for(lambda m: "Weekly report" in m.text and bool(m.buttons))
    await world.telegram_owner.presses(shown, "Day")
    day = await chat.wait_for(lambda m: "Daily report" in m.text and bool(m.buttons))
    assert day.buttons == ["Week", "Month"]


async def test_a_scheduled_report_on_telegram_comes_once_although_the_program_died(
    world: PlatformWorld,
) -> None:
    chat = world.telegram_chat
    assert "18:00" in await world.ask("/report daily 18:00", expects="Daily report")
    assert "Daily report" in await world.ask("/schedule", expects="1 schedule")

    await world.program.kill()
    _make_due(world.program.home, "Daily report")
    await world.program.start()
    await chat.wait_for(lambda m: _is_scheduled(m) and "Waiting" not in m.text)
    await world.program.kill()
    await world.program.start()

    await world.ask("/report off", expects="are off")
    sent = [m for m in chat.from_bot if _is_scheduled(m)]
    # Telegram cannot say whether the first attempt arrived: a second one says so.
    assert sum("Sent again" not in m.text for m in sent) == 1


async def test_a_scheduled_report_on_feishu_shows_its_pictures_in_the_card(
    world: PlatformWorld,
) -> None:
    chat = world.feishu_chat
    await world.ask_on_feishu("/report weekly mon 9:00", expects="Weekly report")

    await world.program.kill()
    _make_due(world.program.home, "Weekly report")
    await world.program.start()

    card = await chat.wait_for(lambda m: "To stop this report" in m.text and "Cost" in m.text)
    pictures = list(components(card.card, "img"))
    assert [each["img_key"] in world.feishu.world.images for each in pictures] == [True, True]
    assert "Heat map" in pictures[0]["alt"]["content"]
    await world.ask_on_feishu("/report off", expects="are off")


@needs_chromium
async def test_the_web_chat_shows_the_pictures(world: PlatformWorld, tmp_path: Path) -> None:
    async with open_browser() as browser:
        for name, scheme, width in (("light", "light", 1000), ("dark-phone", "dark", 390)):
            visitor = await open_visitor(
                browser, color_scheme=scheme, viewport={"width": width, "height": 1500}
            )
            await visitor.open(world.program.address)
            await visitor.send_message("/report week")
            report = visitor.bot_messages("Weekly report").last
            pictures = report.locator("img")
            await expect(pictures).to_have_count(2)
            for picture in await pictures.all():
                await expect(picture).to_have_js_property("complete", True)
                assert await picture.evaluate("each => each.naturalWidth") > 1000
            await visitor.save_screenshot(f"report-{name}", tmp_path)
            await visitor.context.close()
            assert visitor.console_errors == []
