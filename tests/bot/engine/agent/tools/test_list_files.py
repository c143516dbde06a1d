"""A folder is listed with sizes, and never one outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.agent.tools.list_files import list_files
from bot.engine.llm.base import ERROR
from bot.engine.llm.workspace import MAX_ENTRIES


async def test_files_have_sizes_and_folders_a_slash(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("abc")

    assert await list_files(tmp_path).run({}) == "a.txt\t3\nsub/"
    assert await list_files(tmp_path).run({"path": "sub"}) == "[the folder is empty]"


async def test_a_long_listing_says_how_much_is_missing(tmp_path: Path) -> None:
    for at in range(MAX_ENTRIES + 2):
        (tmp_path / f"{at}.txt").touch()

    assert (await list_files(tmp_path).run({"path": "."})).endswith("\n[2 more are not shown]")


@pytest.mark.parametrize("path", ["..", "/etc", "none", "a.txt"])
async def test_what_cannot_be_listed_is_an_error_text(tmp_path: Path, path: str) -> None:
    (tmp_path / "a.txt").touch()

    assert (await list_files(tmp_path).run({"path": path})).startswith(ERROR)
