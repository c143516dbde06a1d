"""The Boss's files: in order, cut in the middle, and the memory never where others hear it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.engine.agent.worker_briefing import (
    BOSS_FILES,
    MAX_BOSS_CHARS,
    MAX_FILE_CHARS,
    SUBAGENT_FILES,
    InstructionBlock,
    clip_middle,
    load_boss_files,
    read_excerpt,
)
from storage.records.workers import ContextPartState


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "context"
    made.mkdir()
    return made


def told(folder: Path, *, helper: bool = False, private: bool = True) -> InstructionBlock:
    return load_boss_files(folder.parent, is_subagent=helper, is_private=private)


def states(block: InstructionBlock) -> dict[str, ContextPartState]:
    return {part.name: part.state for part in block.parts}


def test_without_files_nothing_is_said(tmp_path: Path) -> None:
    block = load_boss_files(tmp_path, is_subagent=False, is_private=True)

    assert block.text == ""
    assert set(states(block).values()) == {ContextPartState.MISSING}


def test_they_are_told_in_their_order_and_always_the_same(folder: Path) -> None:
    for name in reversed(BOSS_FILES):
        (folder / name).write_text(f"what {name} says")

    text = told(folder).text

    places = [text.index(f"## {name}\nwhat {name} says") for name in BOSS_FILES]
    assert places == sorted(places)
    assert told(folder).text == text


def test_helpers_are_told_two_of_them(folder: Path) -> None:
    for name in BOSS_FILES:
        (folder / name).write_text(name)

    block = told(folder, helper=True)

    assert [
        name for name, state in states(block).items() if state is ContextPartState.LOADED
    ] == list(SUBAGENT_FILES)


def test_the_memory_is_told_only_in_private(folder: Path) -> None:
    (folder / "MEMORY.md").write_text("likes tea")
    (folder / "USER.md").write_text("Boss")

    assert "likes tea" in told(folder).text
    assert "likes tea" not in told(folder, private=False).text
    assert states(told(folder, private=False))["MEMORY.md"] is ContextPartState.WITHHELD


def test_memory_in_small_letters_is_found_and_told_once(folder: Path) -> None:
    (folder / "memory.md").write_text("small")
    assert "small" in told(folder).text

    (folder / "MEMORY.md").write_text("large")
    text = told(folder).text
    assert "large" in text
    assert "small" not in text


def test_a_long_file_keeps_its_head_and_tail_around_a_line(folder: Path) -> None:
    (folder / "SOUL.md").write_text("a" * 15_000 + "b" * 15_000)

    block = told(folder)

    assert "a" * 14_000 + "\n\n[… about 12000 characters left out here …]\n\n" + "b" * 4_000 in (
        block.text
    )
    assert "a" * 14_001 not in block.text
    part = next(part for part in block.parts if part.name == "SOUL.md")
    assert (part.state, part.size) == (ContextPartState.CUT, 30_000)


def test_all_together_have_a_budget_and_the_last_give_way(folder: Path) -> None:
    for name in BOSS_FILES:
        (folder / name).write_text("x" * 19_000)

    block = told(folder)

    assert sum(part.used_characters for part in block.parts) <= MAX_BOSS_CHARS
    assert list(states(block).values())[:4] == [
        *[ContextPartState.LOADED] * 3,
        ContextPartState.CUT,
    ]
    assert states(block)["MEMORY.md"] is ContextPartState.NO_ROOM


def test_ten_megabytes_are_not_read_whole(folder: Path) -> None:
    path = folder / "AGENTS.md"
    with path.open("wb") as file:
        file.write("开头".encode())
        file.seek(1_000_000_000)
        file.write("结尾".encode())
    path.write_bytes(b"x" * 10_000_000 + b"end")

    read = read_excerpt(path, None)

    assert read.state is ContextPartState.CUT
    assert len(read.text) < MAX_FILE_CHARS
    assert read.text.endswith("end")
    assert read.size == 10_000_003


@pytest.mark.parametrize("kind", ["binary", "latin", "folder", "pipe", "secret", "circle"])
def test_what_is_no_readable_text_is_left_out(folder: Path, kind: str) -> None:
    path = folder / "SOUL.md"
    match kind:
        case "binary":
            path.write_bytes(b"ELF\0\1\2")
        case "latin":
            path.write_bytes(b"caf\xe9")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "secret":
            path.write_text("x")
            path.chmod(0)
            if os.access(path, os.R_OK):
                pytest.skip("whoever runs this may read everything")
        case _:
            path.symlink_to(path)
    (folder / "TOOLS.md").write_text("use them well")

    block = told(folder)

    assert states(block)["SOUL.md"] is ContextPartState.UNUSABLE
    assert "use them well" in block.text


@given(text=st.text(max_size=400), budget=st.integers(10, 200))
def test_clipping_keeps_both_ends_and_the_budget(text: str, budget: int) -> None:
    cut = clip_middle(text, budget)

    if len(text) <= budget:
        assert cut == text
    else:
        head, tail = text[: int(budget * 0.7)], text[len(text) - int(budget * 0.2) :]
        assert cut.startswith(head)
        assert cut.endswith(tail)
        assert len(head) + len(tail) <= budget
