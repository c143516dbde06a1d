"""Measures what uses the disk, by kind."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from storage.file_trees import walk_folders
from storage.records.system import DiskUse

_KINDS: Mapping[str, tuple[str, ...]] = {
    "uploads": ("files/inbox",),
    "results": ("files/tasks", "files/logs", "files/workflows", "files/skills", "exports"),
    "workspaces": ("work", "workspaces", "shell"),
    "agents": ("agents",),
    "memory": ("memory",),
    "logs": ("logs",),
}
_MAX_ENTRIES = 10_000
_SIDECARS = ("", "-wal", "-shm", "-journal")


def measure_disk_use(home: Path, database: Path, backups: Path) -> Sequence[DiskUse]:
    """Sizes in bytes, largest first; kinds without any are left out. Blocking. Stops counting a
    kind at about ten thousand files."""
    folders = {kind: [home / each for each in names] for kind, names in _KINDS.items()}
    folders["backups"] = [backups]
    folders["replaced"] = sorted(home.glob("replaced-*"))
    found = [_measure(kind, places) for kind, places in folders.items()]
    sizes = (Path(f"{database}{each}") for each in _SIDECARS)
    size = sum(each.stat().st_size for each in sizes if each.is_file())
    found.append(DiskUse(kind="database", size=size))
    return sorted((each for each in found if each.size), key=lambda each: -each.size)


def _measure(kind: str, places: Sequence[Path]) -> DiskUse:
    size = entries = 0
    for place in places:
        for _, _, names, at in walk_folders(place):
            for name in names:
                entries += 1
                try:
                    size += os.stat(name, dir_fd=at, follow_symlinks=False).st_size
                except OSError:
                    continue
            if entries > _MAX_ENTRIES:
                return DiskUse(kind=kind, size=size, is_partial=True)
    return DiskUse(kind=kind, size=size)
