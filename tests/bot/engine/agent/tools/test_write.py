"""A file is written whole and only inside the workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.agent.tools.write import write
from bot.engine.llm.base import ERROR
from bot.engine.llm.workspace import MAX_WRITE


async def test_a_file_is_written_with_its_folders(tmp_path: Path) -> None:
    answer = await write(tmp_path).run({"path": "a/b.md", "content": "你好"})

    assert answer == "Wrote a/b.md (2 characters)."
    assert (tmp_path / "a" / "b.md").read_text() == "你好"


async def test_an_existing_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a longer old text")

    await write(tmp_path).run({"path": "a.md", "content": "new"})

    assert (tmp_path / "a.md").read_text() == "new"


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("../x", "x", "outside the workspace"),
        ("/etc/x", "x", "outside the workspace"),
        (".", "x", "not a regular file"),
        ("a.md/x", "x", "not a folder"),
        ("big", "x" * (MAX_WRITE + 1), "too large"),
    ],
)
async def test_what_cannot_be_written_is_an_error_text(
    tmp_path: Path, path: str, content: str, says: str
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a.md").write_text("kept")

    answer = await write(workspace).run({"path": path, "content": content})

    assert answer.startswith(ERROR)
    assert says in answer
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["a.md", "work"]


async def test_characters_no_file_can_hold_are_replaced(tmp_path: Path) -> None:
    await write(tmp_path).run({"path": "a.md", "content": "a\ud800b"})

    assert (tmp_path / "a.md").read_text() == "a?b"


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("a.md", "new\n", "--- a.md\n+++ a.md\n@@ -1,2 +1,2 @@\n-old\n+new\n "),
        ("new.md", "x", "+x"),
        ("a.md", "old\n", "[a.md stays as it is]"),
        ("b.bin", "x", "[replaces b.bin, which is not a text file]"),
        ("../x", "x", "outside the workspace"),
    ],
)
async def test_the_detail_is_the_change_and_changes_nothing(
    tmp_path: Path, path: str, content: str, says: str
) -> None:
    (tmp_path / "a.md").write_text("old\n")
    (tmp_path / "b.bin").write_bytes(b"\0")
    tool = write(tmp_path)
    assert tool.detail is not None

    detail = await tool.detail({"path": path, "content": content})

    assert says in detail
    assert (tmp_path / "a.md").read_text() == "old\n"
    assert not (tmp_path / "new.md").exists()


async def test_a_workspace_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    await write(tmp_path / "chat-1").run({"path": "a.md", "content": "x"})

    assert (tmp_path / "chat-1" / "a.md").read_text() == "x"
