"""A file is read page by page, its lines numbered, and never from outside."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bot.engine.llm.tool_calls import ERROR_PREFIX
from bot.engine.permissions.rules import PermissionRules, parse_rules, protected_by
from bot.engine.tools.file_reading import MAX_LINE_CHARS, MAX_READ_CHARS, MAX_READ_LINES, read_tool

_NEXT = re.compile(r"\n\[read on with offset (\d+)\]\Z")


async def _whole(workspace: Path, path: str) -> tuple[list[str], int]:
    """All lines as a model would read them, and how many pages there were."""
    tool = read_tool(workspace)
    lines: list[str] = []
    offset, pages = 1, 0
    while True:
        page = await tool.run({"path": path, "offset": offset})
        pages += 1
        assert len(page) <= MAX_READ_CHARS + 100
        more = _NEXT.search(page)
        for line in page[: more.start() if more else None].split("\n"):
            number, _, text = line.partition("\t")
            assert int(number) == len(lines) + 1
            lines.append(text)
        if not more:
            return lines, pages
        assert int(more[1]) > offset
        offset = int(more[1])


async def test_a_small_file_comes_whole_and_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("你好\nworld\n")

    assert await read_tool(tmp_path).run({"path": "a.txt"}) == "1\t你好\n2\tworld"


@pytest.mark.parametrize(("line", "times"), [("队列 queue 😀", 1203), ("x" * 900, 70), ("", 501)])
async def test_pages_joined_are_the_file(tmp_path: Path, line: str, times: int) -> None:
    (tmp_path / "big.txt").write_text(f"{line}\n" * times)

    lines, pages = await _whole(tmp_path, "big.txt")

    assert lines == [line] * times
    assert pages > 1


async def test_a_file_of_several_megabytes_is_read_anywhere(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("".join(f"{at:0100}\n" for at in range(30_000)))

    page = await read_tool(tmp_path).run({"path": "big.txt", "offset": 29_999, "limit": 1})

    assert page == f"29999\t{29_998:0100}\n[read on with offset 30000]"


async def test_the_limit_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\nc\n")

    assert await read_tool(tmp_path).run({"path": "a.txt", "offset": 2, "limit": 1}) == (
        "2\tb\n[read on with offset 3]"
    )
    assert MAX_READ_LINES == 500


async def test_a_very_long_line_is_cut_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * (MAX_LINE_CHARS + 7) + "\nend")
    (tmp_path / "huge.txt").write_text("é" * 2_000_000)

    page = await read_tool(tmp_path).run({"path": "a.txt"})

    assert page.endswith("… [7 more characters]\n2\tend")
    assert (await read_tool(tmp_path).run({"path": "huge.txt"})).startswith("1\téé")


async def test_windows_line_ends_and_a_byte_order_mark_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")

    assert await read_tool(tmp_path).run({"path": "a.txt"}) == "1\ta\n2\tb"


@pytest.mark.parametrize(
    ("path", "offset", "says"),
    [
        ("../secret", 1, "outside the workspace"),
        ("link", 1, "outside the workspace"),
        ("none.txt", 1, "no such file"),
        (".", 1, "not a regular file"),
        ("pipe", 1, "not a regular file"),
        ("b.bin", 1, "not a text file"),
        ("latin.txt", 1, "not a text file"),
        ("a.txt", 99, "past the end"),
        ("a\0b", 1, "not a usable path"),
    ],
)
async def test_what_cannot_be_read_is_an_error_text(
    tmp_path: Path, path: str, offset: int, says: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("secret")
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "a.txt").write_text("a")
    (work / "b.bin").write_bytes(b"\0\1\2")
    (work / "latin.txt").write_bytes("é".encode("latin-1"))
    os.mkfifo(work / "pipe")

    answer = await read_tool(work).run({"path": path, "offset": offset})

    assert answer.startswith(ERROR_PREFIX)
    assert says in answer
    assert "\n" not in answer


async def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()

    assert await read_tool(tmp_path).run({"path": "a.txt"}) == "[the file is empty]"


async def test_no_link_leads_to_what_a_rule_keeps_closed(tmp_path: Path) -> None:
    closed = protected_by(PermissionRules(deny=parse_rules("read(.env)")))
    (tmp_path / ".env").write_text("word")
    (tmp_path / "notes.txt").symlink_to(tmp_path / ".env")
    tool = read_tool(tmp_path, closed)

    assert (await tool.run({"path": "notes.txt"})).startswith(ERROR_PREFIX)
    # By its own name it was judged before, however that is written.
    assert "word" in await tool.run({"path": str(tmp_path / "x" / ".." / ".env")})
