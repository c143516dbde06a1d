"""Safe names for files that arrive, and writing them beside others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.transports.files import FileUnsendable, read_file, sanitize_file_name, write_new_file


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("notes.txt", "notes.txt"),
        ("../../evil.sh", "evil.sh"),
        ("..\\..\\evil.bat", "evil.bat"),
        ("/etc/passwd", "passwd"),
        (".bashrc", "bashrc"),
        ("...", "file"),
        ("..", "file"),
        ("/", "file"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("", "file"),
        ("gnp.\u202eexe", "gnp.exe"),
        ("a\x00b\n.txt", "ab.txt"),
        ("报告 2026.md", "报告 2026.md"),
        ("a:b*c?.txt", "abc.txt"),
        ("half\ud800.txt", "half.txt"),
        ("$(rm -rf ~);`id`&{a,b}.txt", "(rm -rf )ida,b.txt"),
        ("-rf.txt", "rf.txt"),
        ("in\u200bvoice\ufeff.pdf", "invoice.pdf"),
    ],
)
def test_an_uploaded_name_becomes_a_plain_one(name: str, kept: str) -> None:
    assert sanitize_file_name(name) == kept


def test_a_long_name_is_cut_and_keeps_its_kind() -> None:
    shortened = sanitize_file_name("长" * 200 + ".png")
    assert shortened.endswith("长.png")
    assert len(shortened.encode()) <= 120
    assert sanitize_file_name("x" * 300 + ".tar") == "x" * 116 + ".tar"


def test_a_file_of_the_same_name_gets_a_number(tmp_path: Path) -> None:
    paths = [write_new_file(tmp_path / "in", "../a.tar.gz", data) for data in (b"1", b"2")]

    assert [path.name for path in paths] == ["a.tar.gz", "a.tar-2.gz"]
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]


def test_what_is_not_a_regular_file_is_not_sent(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for name in ("pipe", "."):
        with pytest.raises(FileUnsendable):
            read_file(tmp_path, name, 1_000)
