"""The check of the owner's files, read by what reads them in earnest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bot.engine.autonomy.checks.installation import SettingsHealthCheck
from bot.engine.workers.mcp_config import McpConfigFile
from bot.engine.workers.personas import PERSONAS_FOLDER, PersonaLibrary


async def test_files_that_cannot_be_read_are_found_by_name(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text("{")
    (tmp_path / PERSONAS_FOLDER).mkdir()
    (tmp_path / PERSONAS_FOLDER / "poet.yaml").write_text("name: [")
    library = PersonaLibrary(tmp_path)

    async def personas() -> Sequence[str]:
        return [each.file for each in (await library.roster()).errors]

    async def nothing() -> Sequence[str]:
        return ()

    faults = {
        "mcp.json": McpConfigFile(tmp_path).list_faults,
        "personas/": personas,
        "skills/": nothing,
    }
    found = await SettingsHealthCheck(faults=faults).find()

    assert {each.subject: each.facts["n"] for each in found} == {"mcp.json": 1, "personas/": 1}
    assert all(each.asks_task and each.is_told for each in found)
    assert {each.text for each in found} == {"settings_invalid"}
