"""Folders inside each other, deeper than a path can name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.file_trees import delete_tree


@pytest.fixture
def deep_path(tmp_path: Path) -> Iterator[Path]:
    """A folder for `nest_folders`. Python cannot delete what that leaves."""
    path = tmp_path / "deep"
    path.mkdir()
    yield path
    delete_tree(path)


def nest_folders(top: Path, levels: int, *, name: str = "d") -> None:
    """Make `levels` folders inside each other below `top`, and a file in the last."""
    top.mkdir(parents=True, exist_ok=True)
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("leaf", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=at))
    os.close(at)
