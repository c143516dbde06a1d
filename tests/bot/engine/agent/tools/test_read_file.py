"""A file is read page by page until nothing is left, and never from outside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bot.engine.agent.tools.read_file import PAGE, read_file
from bot.engine.llm.base import ERROR

_NEXT = re.compile(r"\n\[bytes \d+ to \d+ of \d+; read on with offset (\d+)\]\Z")


async def _whole(workspace: Path, path: str) -> tuple[str, int]:
    """All pages joined, as a model would read them, and how many there were."""
    tool = read_file(workspace)
    text, offset, pages = "", 0, 0
    while True:
        page = await tool.run({"path": path, "offset": offset})
        pages += 1
        more = _NEXT.search(page)
        if not more:
            return text + page, pages
        text += page[: more.start()]
        assert int(more[1]) > offset
        offset = int(more[1])


async def test_a_small_file_comes_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("你好\nworld\n")

    assert await read_file(tmp_path).run({"path": "a.txt"}) == "你好\nworld\n"


@pytest.mark.parametrize("line", ["队列 queue 😀\n", "队", "😀", "x"])
async def test_pages_joined_are_the_file(tmp_path: Path, line: str) -> None:
    text = line * (2 * PAGE // len(line.encode()) + 7)
    (tmp_path / "big.txt").write_text(text)

    read, pages = await _whole(tmp_path, "big.txt")

    assert read == text
    assert pages == 3


async def test_an_offset_within_a_character_still_reads(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("你好")

    assert (await read_file(tmp_path).run({"path": "a.txt", "offset": 1})).endswith("好")


@pytest.mark.parametrize(
    ("path", "offset", "says"),
    [
        ("../secret", 0, "outside the workspace"),
        ("none.txt", 0, "no such file"),
        (".", 0, "not a regular file"),
        ("b.bin", 0, "not a text file"),
        ("a.txt", 99, "past the end"),
        ("a\0b", 0, "not a usable path"),
    ],
)
async def test_what_cannot_be_read_is_an_error_text(
    tmp_path: Path, path: str, offset: int, says: str
) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.bin").write_bytes(b"\0\1\2")

    answer = await read_file(tmp_path).run({"path": path, "offset": offset})

    assert answer.startswith(ERROR)
    assert says in answer


async def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()

    assert await read_file(tmp_path).run({"path": "a.txt"}) == "[the file is empty]"
