"""The real program between emulated platforms, as the journeys start it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.journeys.program import ShiftbossProcess, program_at_first_start


@dataclass(frozen=True, slots=True)
class BenchmarkProgram:
    program: ShiftbossProcess
    telegram: TelegramEmulator
    feishu: FeishuEmulator


@asynccontextmanager
async def both_channels(home: Path, **settings: str) -> AsyncGenerator[BenchmarkProgram, None]:
    async with (
        TelegramEmulator() as telegram,
        FeishuEmulator() as feishu,
        program_at_first_start(
            home,
            **telegram.settings,
            **feishu.settings,
            **settings,
        ) as running,
    ):
        yield BenchmarkProgram(running, telegram, feishu)
