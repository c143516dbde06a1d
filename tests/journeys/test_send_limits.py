"""A chat's send budget, as the platform enforces it."""

from __future__ import annotations

from pathlib import Path

from tests.emulators.telegram.chats import TelegramChat
from tests.journeys.platform_world import platform_world

_SECONDS = (4, 5, 6)


async def test_three_tasks_of_a_group_end_on_their_cards_within_telegrams_limits(
    tmp_path: Path,
) -> None:
    async with platform_world(tmp_path, SHIFTBOSS_SLOTS="3") as world:
        world.telegram.enforce_limits()
        team = world.telegram.group("Team")
        for seconds in _SECONDS:
            await world.telegram_owner.says(team, f"/run wait {seconds} seconds", mention=True)

        await team.wait_until(lambda: _count(team, "✅ wait") == len(_SECONDS))
        await team.wait_until(lambda: _count(team, "✅ Task finished") == len(_SECONDS))

        assert world.telegram.refused_by_limits == 0
        assert world.telegram.violations == 0


def _count(team: TelegramChat, start: str) -> int:
    return sum(message.text.startswith(start) for message in team.from_bot)
