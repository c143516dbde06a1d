"""A folder is listed with sizes, files are found by name, and never any outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.engine.llm.tool_calls import ERROR_PREFIX
from bot.engine.tools.file_reading import MAX_LISTED, list_tool


async def test_files_have_sizes_and_folders_a_slash(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("abc")

    assert await list_tool(tmp_path).run({}) == "a.txt\t3\nsub/"
    assert await list_tool(tmp_path).run({"path": "sub"}) == "[the folder is empty]"


async def test_a_long_listing_says_how_much_is_missing(tmp_path: Path) -> None:
    for at in range(MAX_LISTED + 2):
        (tmp_path / f"{at}.txt").touch()

    assert (await list_tool(tmp_path).run({"path": "."})).endswith("\n[2 more are not shown]")
    found = await list_tool(tmp_path).run({"pattern": "*.txt"})
    assert found.endswith(f"\n[more than {MAX_LISTED} fit; the others are not shown]")


@pytest.mark.parametrize("path", ["..", "/etc", "none", "a.txt"])
@pytest.mark.parametrize("pattern", ["", "*"])
async def test_what_cannot_be_listed_is_an_error_text(
    tmp_path: Path, path: str, pattern: str
) -> None:
    (tmp_path / "a.txt").touch()

    answer = await list_tool(tmp_path).run({"path": path, "pattern": pattern})

    assert answer.startswith(ERROR_PREFIX)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", "a.py\t0\nsrc/b.py\t0\nsrc/deep/test_c.py\t0"),
        ("src/*.py", "src/b.py\t0\nsrc/deep/test_c.py\t0"),
        ("**/*.py", "a.py\t0\nsrc/b.py\t0\nsrc/deep/test_c.py\t0"),
        ("src/**/test_*", "src/deep/test_c.py\t0"),
        ("*.rs", "[no file fits]"),
    ],
)
async def test_files_are_found_at_any_depth(tmp_path: Path, pattern: str, expected: str) -> None:
    for name in ("a.py", "src/b.py", "src/deep/test_c.py", ".git/x.py", "node_modules/y.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert await list_tool(tmp_path).run({"pattern": pattern}) == expected


async def test_links_are_not_followed_when_files_are_found(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    (outside / "secret.py").touch()
    (work / "link").symlink_to(outside)
    (work / "loop").symlink_to(work)
    (work / "one.py").symlink_to(outside / "secret.py")

    assert await list_tool(work).run({"pattern": "*.py"}) == "[no file fits]"
