from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from storage.memory.markdown.folder import MAX_FILE_BYTES, NO_FILE, FileProblem, MarkdownFolder

PATH = "memory/people/ann/MEMORY.md"


@pytest.fixture
def folder(tmp_path: Path) -> MarkdownFolder:
    return MarkdownFolder(tmp_path)


def test_what_is_written_is_read_and_is_nobody_elses(
    folder: MarkdownFolder, tmp_path: Path
) -> None:
    assert folder.write(PATH, "喜欢茶\n", None)

    assert folder.read(PATH).body == "喜欢茶\n"
    assert stat.S_IMODE((tmp_path / PATH).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / PATH).parent.stat().st_mode) == 0o700
    assert [each.name for each in (tmp_path / PATH).parent.iterdir()] == ["MEMORY.md"]


def test_where_nothing_is_nothing_is_read(folder: MarkdownFolder) -> None:
    assert folder.read(PATH) == NO_FILE
    assert folder.get_signatures([PATH]) == {PATH: None}


def test_what_somebody_has_saved_meanwhile_is_not_written_over(
    folder: MarkdownFolder, tmp_path: Path
) -> None:
    folder.write(PATH, "ours\n", None)
    seen = folder.read(PATH).signature
    (tmp_path / PATH).write_text("a person's\n")

    assert not folder.write(PATH, "ours again\n", seen)
    assert not folder.write(PATH, "ours again\n", None)
    assert folder.read(PATH).body == "a person's\n"


def test_what_is_saved_into_the_file_that_was_just_replaced_is_still_found(
    folder: MarkdownFolder, tmp_path: Path
) -> None:
    folder.write(PATH, "ours\n", None)
    with (tmp_path / PATH).open("w") as editor:
        editor.flush()
        assert folder.write(PATH, "ours again\n", folder.read(PATH).signature)
        editor.write("a person's\n")

    assert folder.read(PATH).body == "ours again\n"
    assert folder.read_leftovers(PATH)[0].body == "a person's\n"
    folder.delete_leftovers(PATH)
    assert folder.read_leftovers(PATH) == (NO_FILE, NO_FILE)


def test_where_files_cannot_be_exchanged_they_are_replaced(
    folder: MarkdownFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.memory.markdown.folder.exchange_files", lambda *_: False)
    folder.write(PATH, "ours\n", None)

    assert folder.write(PATH, "ours again\n", folder.read(PATH).signature)

    assert folder.read(PATH).body == "ours again\n"
    assert folder.read_leftovers(PATH)[0].body == "ours\n"


def test_a_write_that_was_broken_off_leaves_the_file_as_it_was(
    folder: MarkdownFolder, tmp_path: Path
) -> None:
    folder.write(PATH, "ours\n", None)
    (tmp_path / PATH).with_name(".MEMORY.md.new").write_text("half of")

    assert folder.read(PATH).body == "ours\n"
    assert folder.read_leftovers(PATH)[1].body == "half of"
    assert folder.write(PATH, "ours again\n", folder.read(PATH).signature)


@pytest.mark.parametrize(
    ("data", "trouble"),
    [
        (b"x" * (MAX_FILE_BYTES + 1), FileProblem.LARGE),
        (b"a\0b", FileProblem.BINARY),
        ("喜欢".encode("gbk"), FileProblem.BINARY),
    ],
)
def test_rubbish_is_named_and_not_read(
    folder: MarkdownFolder, tmp_path: Path, data: bytes, trouble: FileProblem
) -> None:
    (tmp_path / "MEMORY.md").write_bytes(data)

    found = folder.read("MEMORY.md")

    assert (found.body, found.problem) == (None, trouble)


def test_what_is_no_file_is_named_and_let_alone(folder: MarkdownFolder, tmp_path: Path) -> None:
    (tmp_path / "one.md").mkdir()
    os.mkfifo(tmp_path / "two.md")
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(tmp_path)
        server.bind("three.md")

    assert folder.read("one.md").problem is FileProblem.FOLDER
    assert folder.read("two.md").problem is FileProblem.UNUSABLE
    assert folder.read("three.md").problem is FileProblem.UNUSABLE


def test_no_link_is_followed_neither_of_a_file_nor_of_a_folder(
    folder: MarkdownFolder, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "MEMORY.md").write_text("not ours")
    (tmp_path / "MEMORY.md").symlink_to(outside / "MEMORY.md")
    (tmp_path / "memory").symlink_to(outside)

    assert folder.read("MEMORY.md").problem is FileProblem.LINK
    assert folder.read("memory/MEMORY.md").problem is FileProblem.LINK
    with pytest.raises(NotADirectoryError):
        folder.write("memory/MEMORY.md", "ours", None)
    assert not folder.write("MEMORY.md", "ours", None)
    assert (outside / "MEMORY.md").read_text() == "not ours"


def test_only_the_file_that_was_seen_is_removed(folder: MarkdownFolder, tmp_path: Path) -> None:
    folder.write(PATH, "ours\n", None)
    seen = folder.read(PATH).signature
    assert seen is not None
    (tmp_path / PATH).write_text("a person's\n")

    assert not folder.delete(PATH, seen)
    assert folder.read(PATH).body == "a person's\n"
    now = folder.read(PATH).signature
    assert now is not None
    assert folder.delete(PATH, now)
    assert folder.read(PATH) == NO_FILE
