"""Puts files of Git LFS that the project has already in the place of their pointers.

Git LFS itself would ask the repository where to download from, so it does not do that here."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from bot.engine.llm.workspace_files import PathRefused, open_to_copy
from bot.engine.sandbox.git_runner import GitRunner

log = logging.getLogger(__name__)

_MAX_POINTER_BYTES = 1024
_MAX_FILES = 10_000
_BATCH = 500
_MAX_TOTAL_BYTES = 2 * 1024**3
_BLOCK_BYTES = 1024 * 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)?"
    rb"oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,15})\n"
)
_OWN_SCOPES = {"global", "system"}
_WITH_FILTER = ":(top,attr:filter=lfs)"


async def fill_lfs_files(
    git: GitRunner, common: Path, tree: Path, *, since: str | None = None
) -> None:
    """Fill the files of a checkout, or those that differ from the commit `since`. `common` is the
    repository. Whatever is missing, too much or not what it says stays a pointer."""
    if not await _is_set_up(git):
        return
    shown = ("diff", "--name-only", since, "HEAD", "--") if since else ("ls-files", "--cached")
    listed = await git.run(*shown[:1], "-z", *shown[1:], _WITH_FILTER)
    names = [name for name in listed.stdout.split("\0") if name][:_MAX_FILES]
    if not listed.succeeded or not names:
        return
    filled = await asyncio.to_thread(_fill, common, tree, names)
    for at in range(0, len(filled), _BATCH):
        await _take_into_index(git, [f":(top,literal){name}" for name in filled[at : at + _BATCH]])


async def _take_into_index(git: GitRunner, paths: Sequence[str]) -> None:
    """Let git note the sizes of the files, which it would take for changed else."""
    await git.run("add", "--", *paths)
    told = await git.run("diff", "--cached", "--quiet", "HEAD", "--", *paths)
    if not told.succeeded:
        # The filter makes something else of them, which would be committed.
        log.warning("files of Git LFS stay pointers: its filter does not make these of them")
        await git.run("reset", "-q", "--", *paths)
        await git.run("checkout", "-q", "--", *paths)


async def _is_set_up(git: GitRunner) -> bool:
    """Whether the user's own configuration has the filter that makes pointers of files."""
    told = await git.run(
        "config", "--show-scope", "--get-regexp", r"^filter\.lfs\.(clean|process)$"
    )
    return any(line.partition("\t")[0] in _OWN_SCOPES for line in told.stdout.splitlines())


def _fill(common: Path, tree: Path, names: Iterable[str]) -> list[str]:
    filled: list[str] = []
    left = _MAX_TOTAL_BYTES
    for name in names:
        # What cannot be read, is a link or fails on the disk stays as it is.
        with suppress(OSError, PathRefused, ValueError):
            if (size := _fill_one(common.resolve(), tree.resolve(), name, left)) is not None:
                left -= size
                filled.append(name)
    return filled


def _fill_one(common: Path, tree: Path, name: str, most: int) -> int | None:
    target = tree / name
    with open_to_copy(tree, target) as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        pointer = _POINTER.fullmatch(file.read(_MAX_POINTER_BYTES))
    if pointer is None or (size := int(pointer[2])) > most:
        return None
    digest = pointer[1].decode()
    source = common / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
    part = target.with_name(f".{secrets.token_hex(6)}.part")
    try:
        with open_to_copy(common, source) as read, part.open("xb") as copy:
            if _copy_checked(read, copy, size) != digest:
                return None
            os.fchmod(copy.fileno(), mode)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return size


def _copy_checked(read: BinaryIO, copy: BinaryIO, size: int) -> str:
    """Copy up to `size` bytes; returns their digest."""
    whole = hashlib.sha256()
    while size > 0 and (block := read.read(min(size, _BLOCK_BYTES))):
        whole.update(block)
        copy.write(block)
        size -= len(block)
    return whole.hexdigest() if not read.read(1) else ""
