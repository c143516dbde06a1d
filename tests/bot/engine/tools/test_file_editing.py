"""A piece of a file is replaced where it stands exactly, once, or everywhere if so asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.llm.tool_calls import ERROR_PREFIX, CallKind
from bot.engine.llm.workspace_files import MAX_WRITE
from bot.engine.tools.file_editing import edit_tool, write_tool


async def test_a_file_is_written_with_its_folders(tmp_path: Path) -> None:
    answer = await write_tool(tmp_path).run({"path": "a/b.md", "content": "你好"})

    assert answer == "Wrote a/b.md (2 characters)."
    assert (tmp_path / "a" / "b.md").read_text() == "你好"


async def test_an_existing_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("a longer old text")

    await write_tool(tmp_path).run({"path": "a.md", "content": "new"})

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

    answer = await write_tool(workspace).run({"path": path, "content": content})

    assert answer.startswith(ERROR_PREFIX)
    assert says in answer
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["a.md", "work"]


async def test_characters_no_file_can_hold_are_replaced(tmp_path: Path) -> None:
    await write_tool(tmp_path).run({"path": "a.md", "content": "a\ud800b"})

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
    tool = write_tool(tmp_path)
    assert tool.detail is not None

    detail = await tool.detail({"path": path, "content": content})

    assert says in detail
    assert (tmp_path / "a.md").read_text() == "old\n"
    assert not (tmp_path / "new.md").exists()


async def test_a_workspace_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    await write_tool(tmp_path / "chat-1").run({"path": "a.md", "content": "x"})

    assert (tmp_path / "chat-1" / "a.md").read_text() == "x"


async def test_one_piece_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")

    answer = await edit_tool(tmp_path).run({"path": "a.py", "old": "y = 2", "new": "y = 3"})

    assert answer == "Changed a.py in 1 place."
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 3\n"


async def test_all_pieces_are_replaced_if_so_asked(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x x x")

    answer = await edit_tool(tmp_path).run(
        {"path": "a.py", "old": "x", "new": "$1\\1", "all": True}
    )

    assert answer == "Changed a.py in 3 places."
    assert (tmp_path / "a.py").read_text() == "$1\\1 $1\\1 $1\\1"


async def test_line_ends_and_the_byte_order_mark_stay(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")

    await edit_tool(tmp_path).run({"path": "a.txt", "old": "one\ntwo", "new": "1\n2"})

    assert (tmp_path / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\nthree\r\n"


@pytest.mark.parametrize(
    ("path", "old", "new", "says"),
    [
        ("a.py", "z = 1", "z = 2", "does not contain `old`; read it again"),
        ("a.py", "x=1", "x=2", "only with other blanks"),
        ("a.py", "x", "z", "occurs 2 times"),
        ("a.py", "", "z", "`old` is empty"),
        ("a.py", "x = 1", "x = 1", "nothing to change"),
        ("none.py", "x", "y", "no such file"),
        ("../a.py", "x", "y", "outside the workspace"),
        ("link", "secret", "y", "outside the workspace"),
        ("b.bin", "x", "y", "not a text file"),
        ("big.txt", "x", "y", "too large"),
    ],
)
async def test_what_cannot_be_changed_is_an_error_text_and_changes_nothing(
    tmp_path: Path, path: str, old: str, new: str, says: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("secret")
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "a.py").write_text("x = 1\nx2 = 1\n")
    (work / "b.bin").write_bytes(b"x\0")
    (work / "big.txt").write_text("x" * 1_000_001)
    wanted = {"path": path, "old": old, "new": new}

    answer = await edit_tool(work).run(wanted)

    assert answer.startswith(ERROR_PREFIX)
    assert says in answer
    assert await _detail(work, wanted) == answer
    assert (work / "a.py").read_text() == "x = 1\nx2 = 1\n"
    assert (tmp_path / "secret").read_text() == "secret"


async def _detail(workspace: Path, arguments: dict[str, str]) -> str:
    tool = edit_tool(workspace)
    assert tool.kind is CallKind.EDIT
    assert tool.detail is not None
    return await tool.detail(arguments)


async def test_the_detail_is_the_change_as_a_diff_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\nb\nc\n")

    detail = await _detail(tmp_path, {"path": "a.py", "old": "b", "new": "B"})

    assert detail == "--- a.py\n+++ a.py\n@@ -1,4 +1,4 @@\n a\n-b\n+B\n c\n "
    assert (tmp_path / "a.py").read_text() == "a\nb\nc\n"


INI = "[server]\nhost = localhost\nport = 8080\nworkers = 4\n"


async def test_a_rewrite_that_would_spoil_a_file_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "settings.ini").write_text(INI)
    right = INI.replace("8080", "9090")

    spoilt = await write_tool(tmp_path).run(
        {"path": "settings.ini", "content": right.replace("[server]", "server")}
    )
    kept = (tmp_path / "settings.ini").read_text()
    written = await write_tool(tmp_path).run({"path": "settings.ini", "content": right})

    assert spoilt.startswith(f"{ERROR_PREFIX}not written: settings.ini would be not valid INI: ")
    assert kept == INI
    assert written == f"Wrote settings.ini ({len(right)} characters)."


async def test_a_file_that_is_not_valid_may_be_rewritten(tmp_path: Path) -> None:
    (tmp_path / "app.cfg").write_text("port = 8080\n")

    answer = await write_tool(tmp_path).run({"path": "app.cfg", "content": "port = 9090\n"})

    assert answer == "Wrote app.cfg (12 characters)."


async def test_an_edit_that_spoils_a_file_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1, "b": 2}')

    answer = await edit_tool(tmp_path).run({"path": "a.json", "old": '1, "', "new": "1, "})

    assert answer.startswith("Changed a.json in 1 place. But now it is not valid JSON: ")


async def test_a_new_file_that_is_invalid_is_noted_unless_it_is_a_template(tmp_path: Path) -> None:
    noted = await write_tool(tmp_path).run({"path": "a.json", "content": "{"})
    template = await write_tool(tmp_path).run({"path": "b.yaml", "content": "{{ .Values }}: ["})

    assert "Note that it is not valid JSON" in noted
    assert template == "Wrote b.yaml (16 characters)."


async def test_a_rewrite_that_drops_most_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(10)))

    kept = await write_tool(tmp_path).run(
        {"path": "a.txt", "content": "".join(f"  line {n}\n" for n in range(5))}
    )
    dropped = await write_tool(tmp_path).run({"path": "a.txt", "content": "line 1\nport = 1\n"})
    short = await write_tool(tmp_path).run({"path": "a.txt", "content": "new\n"})

    assert kept == "Wrote a.txt (45 characters)."
    assert "It had 5 lines, and 1 of them are still there" in dropped
    assert short == "Wrote a.txt (4 characters)."
