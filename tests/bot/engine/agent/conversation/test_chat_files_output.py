"""The files that come back with an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.agent.conversation import chat_files as module
from bot.engine.agent.conversation.chat_files import (
    OutputFiles,
    collect_output_files,
    snapshot_workspace,
)


async def after(home: Path, changes: dict[str, bytes], said: str = "") -> OutputFiles:
    room = home / "room"
    before = await snapshot_workspace(room)
    for name, content in changes.items():
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_bytes(content)
    return await collect_output_files(before, room, said, home=home, target="out/1")


async def test_what_is_new_or_changed_is_copied_and_what_is_old_stays(tmp_path: Path) -> None:
    await after(tmp_path, {"old.md": b"old", "grown.md": b"a"})

    got = await after(tmp_path, {"new/report.md": b"new", "grown.md": b"more"})

    assert got.files == ("out/1/grown.md", "out/1/new/report.md")
    assert got.sizes == {"out/1/grown.md": 4, "out/1/new/report.md": 3}
    assert (tmp_path / "out/1/new/report.md").read_bytes() == b"new"


async def test_an_old_file_comes_along_where_the_answer_names_it(tmp_path: Path) -> None:
    await after(tmp_path, {"plan.md": b"plan", "other.md": b"no"})

    got = await after(tmp_path, {}, "Here it is: `plan.md`, not gone.md.")

    assert got.files == ("out/1/plan.md",)


async def test_nothing_from_outside_hidden_or_sent_by_people_comes_back(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "room/link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "room/away").symlink_to(tmp_path)
    changes = {".shiftboss/spill.txt": b"x", "inbox/sent.txt": b"x", ".env": b"x"}

    got = await after(
        tmp_path, changes, "../secret.txt link.txt away/secret.txt .env inbox/sent.txt /etc/passwd"
    )

    assert got == OutputFiles()


async def test_beyond_five_is_left_out_and_said(tmp_path: Path) -> None:
    got = await after(tmp_path, {f"{n}.md": b"x" for n in range(7)}, "look at 6.md first")

    assert len(got.files) == 5
    assert got.files[0] == "out/1/6.md"
    assert len(got.skipped) == 2


async def test_what_is_too_large_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_OUTPUT_BYTES", 10)

    got = await after(tmp_path, {"big.bin": b"x" * 11, "small.bin": b"x" * 10})

    assert (got.files, got.skipped) == (("out/1/small.bin",), ("big.bin",))
