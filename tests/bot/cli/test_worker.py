"""A machine that is gone for good is given up from a shell."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.command_line import create_cli
from storage.home_files import HomeFileRepo
from tests.migrated_database import lay_out_store, open_database


def test_only_a_machine_that_is_gone_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)

    async def join() -> None:
        async with open_database(tmp_path) as db:
            await HomeFileRepo(db, "a").register("new:/home", now=now)
            await HomeFileRepo(db, "b").register("old:/home", now=now - timedelta(days=3))
            await HomeFileRepo(db, "a").forget([], {"chat": "c1"}, in_store=False, now=now)

    lay_out_store(tmp_path)
    asyncio.run(join())
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))
    monkeypatch.setenv("DATABASE_URL", "")

    def forget(place: str) -> tuple[int, str]:
        told = CliRunner().invoke(create_cli(), ["worker", "--forget", place, "--json"])
        return told.exit_code, told.output

    code, printed = forget("new:/home")
    assert (code, "in use" in printed) == (1, True)
    code, printed = forget("old:/home")
    assert (code, json.loads(printed)) == (0, {"forgotten": "old:/home", "erasures": 1})
    assert forget("old:/home")[0] == 1
