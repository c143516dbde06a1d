"""The self-check on the real program: what breaks is told, repaired or looked into, and over."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from tests.emulators.telegram.chats import TelegramMessage
from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.faults import RefusalFault
from tests.journeys.platform_world import PlatformWorld, platform_world
from tests.journeys.program_store import open_store
from tests.waiting import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[PlatformWorld, None]:
    async with platform_world(tmp_path_factory.mktemp("home")) as made:
        yield made


def change_store(home: Path, statement: str, *values: object) -> int:
    with open_store(home) as store:
        return int(store.execute(statement, values).rowcount)


def make_check_due(home: Path) -> None:
    """Instead of waiting for it; the program must not run."""
    due = datetime.now(UTC) + timedelta(seconds=1)
    moved = change_store(
        home,
        "UPDATE schedules SET next_due = ? WHERE source = 'builtin:self-check'",
        round(due.timestamp() * 1_000_000),
    )
    assert moved == 1


def count_dead(home: Path) -> int:
    with open_store(home) as store:
        (found,) = store.execute("SELECT count(*) FROM outbox WHERE state = 'dead'").fetchone()
        return int(found)


def shows(message: TelegramMessage, *parts: str) -> bool:
    return all(part in message.text for part in parts)


async def test_a_broken_file_is_told_once_looked_into_and_its_end_is_told(
    world: PlatformWorld,
) -> None:
    boss, chat, home = world.telegram_owner, world.telegram_chat, world.program.home
    await world.ask("/self")
    await world.program.kill()
    (home / "mcp.json").write_text("{ this is no JSON")
    make_check_due(home)
    await world.program.start()

    told = await chat.wait_for(lambda m: shows(m, "Self-check: 1 problem", "mcp.json"))
    assert shows(told, "Correct the file")
    # A kill may double the card, as it may any message that was just sent.
    await world.program.stop()
    make_check_due(home)
    await world.program.start()
    assert "1 problem" in await world.ask("/self", expects="Health")
    await boss.presses(told, "Give it to a worker")
    await chat.wait_for(lambda m: shows(m, "[self]", "mcp.json"))

    (home / "mcp.json").unlink()
    await boss.says(chat, "/self check")
    await chat.wait_for(lambda m: shows(m, "1 problem resolved", "mcp.json"))
    assert sum(shows(m, "Self-check: 1 problem", "Correct") for m in chat.from_bot) == 1
    assert "– now" not in await world.ask("/self history")


async def test_what_was_given_up_is_sent_again_once_the_platform_takes_it(
    world: PlatformWorld,
) -> None:
    boss, chat, home = world.telegram_owner, world.telegram_chat, world.program.home
    refusal = bad_request("this message cannot be sent")
    for _ in ("the card", "its plain text"):
        world.telegram.inject_fault("sendMessage", RefusalFault(error=refusal))
    await boss.says(chat, "/cost")
    await wait_until(lambda: count_dead(home) >= 1)
    # This answer shows that messages are taken again.
    await world.ask("/self history")

    await boss.says(chat, "/self check")

    await chat.wait_for(lambda m: shows(m, "again to"))
    await chat.wait_for(lambda m: shows(m, "💰 Cost"))
    assert count_dead(home) == 0


async def test_the_shell_reports_without_a_running_program(world: PlatformWorld) -> None:
    await world.program.stop()
    status, printed = await world.program.run_to_end("self", "check", "--json")
    assert '"grade"' in printed
    assert status in {0, 1}
    await world.program.start()
