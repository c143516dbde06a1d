"""What a project's submodules hold, put into a task's worktree as plain files.

Only what the Boss's own checkout has is taken, so that no network is needed; and without a
repository of its own, so that the worker cannot give git there settings of its making. What is
changed in them does not land: it is found again, and the tree stays.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bot.engine.workflow.places.git import Git

_FILE = ".gitmodules"
_STATE = "shiftboss-submodules"
_GITLINK = "160000"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    """A submodule at `path`, and the commit of it that the project names."""

    name: str
    path: str
    commit: str


async def fill(boss: Git, common: Path, tree: Path, entry: Path) -> None:
    """`entry` is where git keeps what it knows of the tree. What cannot be filled is noted."""
    if not await asyncio.to_thread((tree / _FILE).is_file):
        return
    filled: dict[str, str] = {}
    empty: list[str] = []
    async for link in _links(boss.at(tree)):
        store = await asyncio.to_thread(_store_of, boss.folder, common, link)
        if store is not None and await _check_out(boss, store, link, tree, entry):
            filled[link.path] = str(store)
        else:
            empty.append(link.path)
    state = json.dumps({"filled": filled, "empty": empty})
    await asyncio.to_thread((entry / _STATE).write_text, state, encoding="utf-8")


async def changed(boss: Git, tree: Path, entry: Path) -> list[str]:
    """Files that are not as they were filled in: they are nowhere else."""
    names: list[str] = []
    if not await asyncio.to_thread((entry / _STATE).is_file):
        return names
    for path, store in (await asyncio.to_thread(_state, entry))["filled"].items():
        git = _inside(boss, Path(store), path, tree, entry)
        if not await asyncio.to_thread((tree / path).is_dir):
            names.append(path)
            continue
        await git.run("update-index", "-q", "--refresh")
        told = await git.out("diff-files", "--name-only", "-z", "--ignore-submodules=all")
        told += await git.out("ls-files", "--others", "--exclude-standard", "-z")
        names += [f"{path}/{name}" for name in told.split("\0") if name]
    return names


def left_empty(entry: Path) -> tuple[str, ...]:
    return tuple(_state(entry)["empty"])


async def _links(git: Git) -> AsyncIterator[_Link]:
    told = await git.run("config", "-z", "-f", _FILE, "--get-regexp", r"^submodule\..*\.path$")
    for row in filter(None, told.out.split("\0")):
        key, _, path = row.partition("\n")
        named = await git.run("ls-tree", "-z", "HEAD", "--", path)
        facts = named.out.split("\t")[0].split()
        if facts[:1] == [_GITLINK]:
            name = key.removeprefix("submodule.").removesuffix(".path")
            yield _Link(name=name, path=path, commit=facts[2])


def _store_of(top: Path, common: Path, link: _Link) -> Path | None:
    """Where the Boss's checkout keeps it, if it has it."""
    if any(_leads_out(PurePosixPath(each)) for each in (link.name, link.path)):
        return None
    for store in (common / "modules" / link.name, top / link.path / ".git"):
        if (store / "HEAD").is_file():
            return store.resolve()
    return None


def _leads_out(path: PurePosixPath) -> bool:
    return path.is_absolute() or ".." in path.parts


async def _check_out(boss: Git, store: Path, link: _Link, tree: Path, entry: Path) -> bool:
    folder = tree / link.path
    if not await asyncio.to_thread(_is_ours, tree, folder):
        return False
    git = _inside(boss, store, link.path, tree, entry)
    known = await git.run("cat-file", "-e", f"{link.commit}^{{commit}}")
    if not known.good or not (await git.run("read-tree", link.commit)).good:
        return False
    return (await git.run("checkout-index", "--all", "--force", "--quiet")).good


def _is_ours(tree: Path, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve().is_relative_to(tree.resolve())


def _inside(boss: Git, store: Path, path: str, tree: Path, entry: Path) -> Git:
    """Git with the Boss's own settings, and an index beside what it knows of the tree."""
    index = entry / f"{_STATE}.{path.replace('/', '%')}"
    folder = tree / path
    return boss.at(folder, GIT_DIR=str(store), GIT_WORK_TREE=str(folder), GIT_INDEX_FILE=str(index))


def _state(entry: Path) -> Mapping[str, Mapping[str, str]]:
    try:
        told = json.loads((entry / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told = {}
    return {"filled": {}, "empty": {}, **told}
