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


async def test_owners_are_told_once_for_each_threshold_of_feishus_month(tmp_path: Path) -> None:
    async with platform_world(tmp_path, FEISHU_MONTHLY_QUOTA="40") as world:
        chat = world.feishu_chat
        await world.ask("/chat")
        while world.feishu.rates.calls <= 34:
            await world.ask_on_feishu("/chat")
        await chat.wait_for(lambda m: "Less than 20%" in m.text)
        await world.program.stop()
        await world.program.start()
        await world.wait_until_connected()
        await world.ask_on_feishu("/chat")
        await world.ask_on_feishu("/chat")

        told = [m.text for m in chat.from_bot if "monthly API calls" in m.header]
        at_home = [m.text for m in world.telegram_chat.from_bot if "monthly API calls" in m.text]
    for texts in (told, at_home):
        assert len([text for text in texts if "Less than 50%" in text]) == 1
        assert len([text for text in texts if "Less than 20%" in text]) == 1
