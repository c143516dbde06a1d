"""Files that are copied out of a workspace: whatever their name, and no error of a disk is lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from bot.engine.llm.workspace_files import PathRefused, open_to_copy


@pytest.mark.parametrize("name", ["Screenshot 9.41\u202fAM.png", "报告\u3000一.md", "a\tb.txt"])
def test_a_file_of_any_name_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x", encoding="utf-8")
    with open_to_copy(tmp_path, tmp_path / name) as read:
        assert read.read() == b"x"


def test_a_full_disk_while_it_is_copied_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x", encoding="utf-8")
    with pytest.raises(OSError, match="full"), open_to_copy(tmp_path, tmp_path / "a"):
        raise OSError(errno.ENOSPC, "full")


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/etc/hostname")
    with pytest.raises(PathRefused):
        open_to_copy(tmp_path, tmp_path / "a")
