"""The real program between emulated platforms, as the journeys start it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.feishu.server import FeishuEmulator
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program import Program, program


@dataclass(frozen=True, slots=True)
class Setting:
    program: Program
    telegram: TelegramEmulator
    feishu: FeishuEmulator


@asynccontextmanager
async def both_channels(home: Path, **settings: str) -> AsyncGenerator[Setting, None]:
    async with (
        TelegramEmulator() as telegram,
        FeishuEmulator() as feishu,
        program(
            home,
            TELEGRAM_BOT_TOKEN=telegram.token,
            TELEGRAM_BASE_URL=telegram.base_url,
            FEISHU_APP_ID=feishu.app_id,
            FEISHU_APP_SECRET=feishu.app_secret,
            FEISHU_DOMAIN=feishu.domain,
            **settings,
        ) as running,
    ):
        yield Setting(running, telegram, feishu)
