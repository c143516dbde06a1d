from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import pytest
import pytest_asyncio

from bot.transports.telegram.diagnosis import DELETE_WEBHOOK, TelegramDiagnosis
from storage.records.autonomy import HealthFinding
from storage.records.people import Channel, Chat, ChatId, ChatKind, ChatSettings
from tests.emulators.telegram.chats import TelegramChat
from tests.emulators.telegram.emulator import TelegramEmulator


@pytest_asyncio.fixture
async def telegram() -> AsyncGenerator[TelegramEmulator, None]:
    """With one group that the bot is in."""
    async with TelegramEmulator() as emulator:
        emulator.group("Team")
        yield emulator


def group_of(telegram: TelegramEmulator) -> TelegramChat:
    return next(chat for chat in telegram.world.chats.values() if chat.kind == "group")


def diagnosis(telegram: TelegramEmulator, **changed: str) -> TelegramDiagnosis:
    group = Chat(
        id=ChatId("c1"),
        channel=Channel.TELEGRAM,
        external_id=str(group_of(telegram).id),
        thread="",
        kind=ChatKind.GROUP,
        title="Team",
        person_id=None,
        settings=ChatSettings(),
    )

    async def groups() -> list[Chat]:
        return [group]

    facts = {"token": telegram.token, "base_url": telegram.base_url, **changed}
    return TelegramDiagnosis(**facts, groups=groups)


def problems(found: list[HealthFinding]) -> list[str]:
    return [each.text for each in found if each.points]


async def test_a_bot_that_may_write_everywhere_is_fine(telegram: TelegramEmulator) -> None:
    found = list(await diagnosis(telegram).find())

    assert problems(found) == []
    assert [each.text for each in found] == ["telegram_bot", "telegram_privacy"]
    assert found[0].facts == {"name": f"@{telegram.world.bot['username']}"}


def set_webhook(telegram: TelegramEmulator) -> None:
    telegram.world.updates.webhook = "https://elsewhere.example/hook"


def leave(telegram: TelegramEmulator) -> None:
    group_of(telegram).closed_reason = "Forbidden: bot was kicked from the group chat"


def mute(telegram: TelegramEmulator) -> None:
    group_of(telegram).bot_is_muted = True


def pile_up(telegram: TelegramEmulator) -> None:
    for number in range(60):
        telegram.world.updates.put("message", {"message_id": number})


def refuse_token(telegram: TelegramEmulator) -> None:
    telegram.world.token_valid = False


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (set_webhook, "telegram_webhook"),
        (leave, "telegram_left"),
        (mute, "telegram_muted"),
        (pile_up, "telegram_backlog"),
        (refuse_token, "telegram_token"),
    ],
)
async def test_a_planted_fault_is_found_alone(
    telegram: TelegramEmulator, plant: Callable[[TelegramEmulator], None], found: str
) -> None:
    plant(telegram)

    assert problems(list(await diagnosis(telegram).find())) == [found]


async def test_a_server_that_does_not_answer_is_found(telegram: TelegramEmulator) -> None:
    away = diagnosis(telegram, base_url="http://127.0.0.1:9")

    assert problems(list(await away.find())) == ["telegram_unreachable"]


async def test_a_webhook_is_removed_when_asked(telegram: TelegramEmulator) -> None:
    set_webhook(telegram)
    doctor = diagnosis(telegram)

    assert await doctor.repair(DELETE_WEBHOOK, await doctor.find()) == 1
    assert problems(list(await doctor.find())) == []
