from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.sync.world import OWNER, SyncWorld, sync_world


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SyncWorld]:
    for name in list(os.environ):
        if name.startswith(("SHIFTBOSS_", "ANTHROPIC_", "OPENAI_", "TELEGRAM_", "FEISHU_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SHIFTBOSS_OWNERS", f"feishu:{OWNER}")
    monkeypatch.setenv("SHIFTBOSS_LANGUAGE", "en")
    monkeypatch.chdir(tmp_path)
    async with sync_world(tmp_path / "home") as made:
        yield made
