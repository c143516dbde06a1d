"""`shiftboss setup --context` writes what is missing, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.cli.setup import ContextFilesFailure, write_context_templates
from bot.engine.agent.worker_briefing import BOSS_FILES, load_boss_files
from storage.records.people import Language


@pytest.mark.parametrize("language", list(Language))
def test_templates_are_written_once_and_are_told(tmp_path: Path, language: Language) -> None:
    folder, made = write_context_templates(tmp_path, language)

    assert set(made) <= set(BOSS_FILES)
    assert "SOUL.md" in made
    assert write_context_templates(tmp_path, language) == (folder, [])
    told = load_boss_files(tmp_path, is_subagent=False, is_private=True)
    assert all(f"## {name}" in told.text for name in made)


def test_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "SOUL.md").write_text("mine")

    _, made = write_context_templates(tmp_path, "en")

    assert "SOUL.md" not in made
    assert (tmp_path / "context" / "SOUL.md").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "context").write_text("in the way")

    with pytest.raises(ContextFilesFailure, match="cannot be written"):
        write_context_templates(tmp_path, "en")
