"""Lines are found by a regular expression, and no pattern and no file can hold the search up."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from bot.engine.llm.tool_calls import ERROR_PREFIX
from bot.engine.permissions.rules import PermissionRules, parse_rules, protected_by
from bot.engine.tools.file_reading import grep_tool
from bot.engine.tools.text_search import MAX_HITS, TextSearch, search_files
from tests.waiting import WAIT_SECONDS


async def test_hits_are_told_with_path_and_line(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one\ndef two():\r\n")
    (tmp_path / "b.md").write_text("def three")
    tool = grep_tool(tmp_path)

    assert await tool.run({"pattern": r"def \w+"}) == "b.md:1: def three\nsrc/a.py:2: def two():"
    assert await tool.run({"pattern": "def", "glob": "*.py"}) == "src/a.py:2: def two():"
    assert await tool.run({"pattern": "def", "path": "b.md"}) == "b.md:1: def three"
    assert await tool.run({"pattern": "nothing"}) == "[no line fits]"


async def test_what_is_no_text_or_lies_behind_a_link_is_passed_over(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("word")
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "b.bin").write_bytes(b"word\0")
    (work / "latin.txt").write_bytes("word é".encode("latin-1"))
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text("word")
    (work / "a.txt").write_text("word")
    os.mkfifo(work / "pipe")

    assert await grep_tool(work).run({"pattern": "word"}) == "a.txt:1: word"


async def test_more_hits_than_are_shown_are_said_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n" * 500)

    lines = (await grep_tool(tmp_path).run({"pattern": "x"})).split("\n")

    assert len(lines) == MAX_HITS + 1
    assert lines[-1] == "[more than 100 lines fit; the others are not shown]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pattern": "("}, "no regular expression"),
        ({"pattern": "(" * 5_000}, "no regular expression"),
        ({"pattern": "x", "path": "../.."}, "outside the workspace"),
        ({"pattern": "x", "path": "none"}, "no such file"),
    ],
)
async def test_what_cannot_be_searched_is_an_error_text(
    tmp_path: Path, arguments: dict[str, str], says: str
) -> None:
    answer = await grep_tool(tmp_path).run(arguments)

    assert answer.startswith(ERROR_PREFIX)
    assert says in answer


async def test_a_pattern_that_never_ends_is_ended_and_keeps_what_was_found(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("aab\n")
    (tmp_path / "b.txt").write_text("a" * 60 + "\n")

    wanted = TextSearch(workspace=str(tmp_path), pattern="(a+)+b")
    found = await search_files(wanted, seconds=1.5)
    for seconds in (20, WAIT_SECONDS):
        if not found.lines:  # a busy machine has not even begun by then
            found = await search_files(wanted, seconds=seconds)

    assert found.lines == ("a.txt:1: aab",)
    assert "ended after" in found.truncation_note


async def test_a_search_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("a" * 60 + "\n")
    wanted = TextSearch(workspace=str(tmp_path), pattern="(a+)+b")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await search_files(wanted)

    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    assert not [command for command in commands if b"searching" in command]


async def test_a_folder_is_searched_but_for_files_that_a_rule_keeps_closed(tmp_path: Path) -> None:
    rules = PermissionRules(
        deny=parse_rules("read(.env*), exec(a.*)"), ask=parse_rules("grep(keys/*), read(*.KEY)")
    )
    for name in (".env", ".env.local", "a.txt", "keys/one.txt", "b/house.key"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("word")
    tool = grep_tool(tmp_path, protected_by(rules))

    found = await tool.run({"pattern": "word"})

    assert found == "a.txt:1: word\n[4 files were not searched: a rule protects them]"
    assert await tool.run({"pattern": "word", "path": "./b/house.key"}) == "b/house.key:1: word"


async def test_a_link_is_no_other_name_for_what_is_closed(tmp_path: Path) -> None:
    closed = protected_by(PermissionRules(deny=parse_rules("read(.env)")))
    (tmp_path / ".env").write_text("word")
    (tmp_path / "notes.txt").symlink_to(tmp_path / ".env")

    searched = await grep_tool(tmp_path, closed).run({"pattern": "word", "path": "notes.txt"})

    assert "notes.txt:" not in searched
    assert ".env:" not in searched
