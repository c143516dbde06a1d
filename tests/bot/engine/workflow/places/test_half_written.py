"""Files that were being written when the process died, or the disk was full."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bot.engine.workflow.places.artifacts import Artifacts
from tests.engine_world import engine


async def test_a_file_sent_along_is_in_the_workspace_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = tmp_path / "files" / "notes.txt"
    sent.parent.mkdir()
    sent.write_text("all of it")
    artifacts = Artifacts(tmp_path)
    real = shutil.copyfile

    def half(source: Path, target: Path, **_rest: Any) -> None:
        Path(target).write_text(Path(source).read_text()[:3])
        raise OSError(28, "No space left on device")

    async with engine(tmp_path, running=False) as world:
        task = await world.add(files=("files/notes.txt",))
        monkeypatch.setattr(shutil, "copyfile", half)
        with pytest.raises(OSError, match="No space"):
            await artifacts.workspace(task)
        assert list((tmp_path / "work" / task.id).iterdir()) == []

        monkeypatch.setattr(shutil, "copyfile", real)
        workspace = await artifacts.workspace(task)

    assert (workspace / "notes.txt").read_text() == "all of it"


async def test_what_a_dead_process_left_half_written_is_swept_away(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    async with engine(tmp_path, running=False) as world:
        task = await world.add()
        deep = await artifacts.workspace(task) / "src" / "deep"
        deep.mkdir(parents=True)
        (deep / ".shiftboss-0123456789ab.part").write_text("hal")
        (deep / "whole.txt").write_text("whole")

        await artifacts.workspace(task)

    assert [each.name for each in deep.iterdir()] == ["whole.txt"]
