"""Backing up, restoring and checking a data directory, from outside."""

from __future__ import annotations

import json
from pathlib import Path

from tests.journeys.program import running_program


async def test_a_backup_is_made_beside_a_running_program_and_without_one(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".env").write_text("OPENAI_API_KEY=sk-not-a-real-key-000000\n")
    async with running_program(tmp_path / "home") as shiftboss:
        await shiftboss.run_to_end("say", "/memory add the deploy day is Friday")
        status, said = await shiftboss.run_to_end("backup", "--json")
        assert status == 0, said
        beside = json.loads(said)
        assert beside["files"] > 1
        assert Path(beside["file"]).parent == tmp_path / "home" / "backups"
        await shiftboss.stop()

        status, said = await shiftboss.run_to_end("backup", str(tmp_path / "to"))
        assert (status, "verified" in said) == (0, True)
        assert "Without secrets" in said
        assert len(list((tmp_path / "to").iterdir())) == 1

        (tmp_path / "file").write_text("")
        status, said = await shiftboss.run_to_end("backup", str(tmp_path / "file" / "to"))
        assert (status, len(said.splitlines())) == (2, 1)
        assert "no backup was made" in said
