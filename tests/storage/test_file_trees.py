from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.file_trees import MAX_DEPTH, delete_tree, walk_folders
from tests.deep_folders import deep_path, nest_folders

__all__ = ["deep_path"]

DEEP = 3_000
"""More levels than recursion, open files and, by its length, a path allow."""


def test_a_walk_ends_at_the_limit_and_names_the_folder_there(deep_path: Path) -> None:
    nest_folders(deep_path, DEEP)
    too_deep: list[str] = []

    seen = [
        str(at)
        for at, *_ in walk_folders(deep_path, on_too_deep=lambda at: too_deep.append(str(at)))
    ]

    assert len(seen) == MAX_DEPTH + 1
    assert too_deep == [seen[-1]]


def test_a_walk_ends_before_a_path_gets_too_long_for_the_system(deep_path: Path) -> None:
    nest_folders(deep_path, 50, name="n" * 200)

    longest = max(len(str(deep_path / at)) for at, *_ in walk_folders(deep_path))

    assert 3_000 < longest < os.pathconf(deep_path, "PC_PATH_MAX") - 512


def test_a_walk_follows_no_link_below_the_top_and_passes_over_what_is_missing(
    tmp_path: Path,
) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "real" / "up").symlink_to(tmp_path)
    (tmp_path / "top").symlink_to(tmp_path / "real")

    assert [str(at) for at, *_ in walk_folders(tmp_path / "top")] == [".", "inner"]
    assert list(walk_folders(tmp_path / "absent")) == []


@pytest.mark.parametrize("name", ["d", "n" * 200, "-rf", "a\nb", os.fsdecode(b"\xff\xfe")])
def test_a_tree_of_any_depth_and_name_is_deleted(deep_path: Path, name: str) -> None:
    folder = deep_path / "task"
    nest_folders(folder, DEEP, name=name)

    assert delete_tree(folder)
    assert list(deep_path.iterdir()) == []


def test_folders_without_rights_and_pipes_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    (folder / "locked" / "inner").mkdir(parents=True)
    os.mkfifo(folder / "locked" / "inner" / "pipe")
    (folder / "locked" / "inner").chmod(0o000)
    (folder / "locked").chmod(0o000)

    assert delete_tree(folder)
    assert not folder.exists()


def test_what_links_lead_to_stays_as_it_is(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "task"
    outside.mkdir()
    folder.mkdir()
    (outside / "kept").write_text("kept")
    (outside / "kept").chmod(0o440)
    (folder / "link").symlink_to(outside)
    (folder / "file").symlink_to(outside / "kept")
    (folder / "second-name").hardlink_to(outside / "kept")
    (tmp_path / "top").symlink_to(outside)

    assert delete_tree(folder)
    assert not delete_tree(tmp_path / "top")
    assert not delete_tree(tmp_path / "absent")
    assert (outside / "kept").read_text() == "kept"
    assert (outside / "kept").stat().st_mode & 0o777 == 0o440
