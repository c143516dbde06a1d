"""A worktree of its own for each task in a git project: made, reopened, landed, taken away.

Every step can be repeated from wherever a killed process left it. A tree is *ready* once a marker
lies in git's own entry for it; the marker is written last and taken away first, so that a tree
half made or half removed is never mistaken for somebody's work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bot.engine.workflow.places import submodules
from bot.engine.workflow.places.git import Git, GitFailed, alone
from bot.engine.workflow.places.landing import (
    Landed,
    abort_our_merge,
    bring_in,
    commit_all,
    notes_on,
)
from storage.records.tasks import Task

log = logging.getLogger(__name__)

_READY = "shiftboss-ready"
_LOCKS = ("index.lock", "HEAD.lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Project:
    """Where a project folder lies: `top` is the Boss's checkout, `inside` the folder's place in
    it, `common` what all its worktrees share."""

    top: Path
    common: Path
    inside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """A task's folder; `entry` is what git keeps of it, None where git knows nothing of it."""

    folder: Path
    entry: Path | None = None
    ready: bool = False


class Worktrees:
    """Trees live in `home/work/<task>`. Nothing is ever forced, pushed or fetched; hooks of the
    project do not run, as the worker could have written them."""

    def __init__(self, home: Path) -> None:
        self._work = home / "work"

    async def is_repository(self, path: Path) -> bool:
        """True if the folder is part of a commit in a git checkout: work there can be done apart
        and brought in later. False also where there is no git."""
        try:
            await _project(path)
        except GitFailed:
            return False
        return True

    async def prepare(self, task: Task) -> Path:
        """The task's folder, on its branch: as it was left, else made from what is checked out
        in the project now. GitFailed if that cannot be."""
        project = await _project(Path(task.project_dir))
        async with self._alone(project) as boss:
            tree = await self._open(project, task)
            if tree.ready:
                await asyncio.to_thread(_point_to, tree)
                await abort_our_merge(_within(tree, boss), _entry(tree))
            else:
                tree = await self._make(boss, project, tree, task)
            inside = tree.folder / project.inside
            await asyncio.to_thread(inside.mkdir, parents=True, exist_ok=True)
            return inside

    async def land(self, task: Task, sent: tuple[str, ...]) -> Landed:
        """Commit all that was made and bring it into the branch checked out in the project, where
        that is possible without touching what the Boss has not committed; then the tree goes.

        `sent` are names of the files the Boss sent along: they stay out unless the project had
        them before. Never raises but for cancellation; landing again changes nothing."""
        try:
            project = await _project(Path(task.project_dir))
            async with self._alone(project) as boss:
                return await self._land(boss, project, task, sent)
        except GitFailed as error:
            log.warning("task %s is not landed: %s", task.id, error)
            facts = {"branch": task.branch, "said": str(error)}
            return Landed(merged=False, why="land.failed", facts=facts)

    async def drop(self, task: Task, sent: tuple[str, ...]) -> None:
        """Take the tree away; what it holds is first kept on its branch, and the branch stays
        unless it is part of another."""
        try:
            project = await _project(Path(task.project_dir))
            async with self._alone(project) as boss:
                tree = await self._open(project, task)
                if tree.ready:
                    git = _within(tree, boss)
                    not_kept = await commit_all(
                        boss, git, _entry(tree), task, _inside(project, sent)
                    )
                    if not_kept is not None:
                        log.warning("the tree of task %s stays: %s", task.id, not_kept.why)
                        return
                await self._remove(boss, tree)
                await boss.run("branch", "-q", "-d", task.branch)
        except GitFailed as error:
            log.warning("the tree of task %s stays: %s", task.id, error)

    async def _land(
        self, boss: Git, project: _Project, task: Task, sent: tuple[str, ...]
    ) -> Landed:
        tree = await self._open(project, task)
        there = await boss.run("rev-parse", "--verify", "--quiet", f"refs/heads/{task.branch}")
        if not there.good:
            # Nothing was ever begun, or the Boss has brought it in and put the branch away.
            return Landed()
        if not tree.ready:
            tip = there.out.strip()
            if (await boss.run("merge-base", "--is-ancestor", tip, "HEAD")).good:
                await self._remove(boss, tree)
                return Landed(commit=tip)
            tree = await self._make(boss, project, tree, task)
        git = _within(tree, boss)
        stays = await commit_all(boss, git, _entry(tree), task, _inside(project, sent))
        landed = stays or await bring_in(boss, git, _entry(tree), task)
        if landed.merged:
            landed = replace(landed, notes=await notes_on(git, _entry(tree)))
            await self._remove(boss, tree)
        return landed

    @asynccontextmanager
    async def _alone(self, project: _Project) -> AsyncGenerator[Git, None]:
        """Git in the Boss's checkout, nobody else of us being at work in that repository."""
        async with alone(self._work / ".locks", project.common) as guard:
            yield Git(project.top, guard=guard)

    async def _open(self, project: _Project, task: Task) -> _Tree:
        tree = await self._tree(project, task)
        await asyncio.to_thread(_unlock, project, tree, task.branch)
        return tree

    async def _tree(self, project: _Project, task: Task) -> _Tree:
        return await asyncio.to_thread(_found, project, self._work.resolve() / task.id)

    async def _make(self, boss: Git, project: _Project, tree: _Tree, task: Task) -> _Tree:
        if tree.entry is not None:
            await self._remove(boss, tree)
        else:
            await asyncio.to_thread(_put_aside, tree.folder)
        ref = f"refs/heads/{task.branch}"
        if (await boss.run("rev-parse", "--verify", "--quiet", ref)).good:
            await boss.out("worktree", "add", str(tree.folder), task.branch)
        else:
            new = ("--no-track", "-b", task.branch)
            await boss.out("worktree", "add", *new, str(tree.folder), "HEAD")
        made = await self._tree(project, task)
        if made.entry is None:
            raise GitFailed(f"git does not know the worktree it has just made at {tree.folder}")
        await submodules.fill(boss, project.common, made.folder, made.entry)
        await asyncio.to_thread((made.entry / _READY).touch)
        return replace(made, ready=True)

    async def _remove(self, boss: Git, tree: _Tree) -> None:
        """The marker first: what is half removed must not look like work."""
        if tree.entry is None:
            return
        await asyncio.to_thread((tree.entry / _READY).unlink, missing_ok=True)
        await asyncio.to_thread(_delete, tree.folder)
        # A git that died while it made the tree has left its own lock on it.
        await boss.run("worktree", "unlock", str(tree.folder))
        await boss.out("worktree", "remove", str(tree.folder))


async def _project(path: Path) -> _Project:
    """GitFailed unless the folder is part of the commit that is checked out there."""
    git = Git(path)
    told = await git.out("rev-parse", "--show-toplevel", "--git-common-dir", "--show-prefix")
    if told.count("\n") != 2:  # noqa: PLR2004 - three answers, unless a folder's name has lines
        raise GitFailed(f"{path} has a name that git cannot tell")
    top, common, inside = told.split("\n")
    await git.out("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    inside = inside.rstrip("/")
    if inside and not await git.out("ls-tree", "--full-tree", "-d", "HEAD", "--", inside):
        raise GitFailed(f"{path} is in no commit")
    shared = await asyncio.to_thread((path / common).resolve)
    return _Project(top=Path(top), common=shared, inside=inside)


def _found(project: _Project, folder: Path) -> _Tree:
    for pointer in (project.common / "worktrees").glob("*/gitdir"):
        named = pointer.parent / pointer.read_text(encoding="utf-8", errors="replace").strip()
        if named.parent.resolve() == folder:
            ready = (pointer.parent / _READY).is_file() and folder.is_dir()
            return _Tree(folder=folder, entry=pointer.parent, ready=ready)
    return _Tree(folder=folder)


def _unlock(project: _Project, tree: _Tree, branch: str) -> None:
    """Take away the locks of a git that was killed in this tree or on its branch: no git of ours
    is alive, as we are alone, and nobody else works there. The Boss's own locks stay."""
    of_branch = project.common / "refs" / "heads" / f"{branch}.lock"
    of_tree = [tree.entry / name for name in _LOCKS] if tree.entry else []
    for lock in (of_branch, *of_tree):
        lock.unlink(missing_ok=True)


def _within(tree: _Tree, boss: Git) -> Git:
    """Git in the tree. The worker could have changed where the tree's own `.git` leads: what git
    reads its settings from is named instead."""
    return boss.at(tree.folder, GIT_DIR=str(_entry(tree)), GIT_WORK_TREE=str(tree.folder))


def _entry(tree: _Tree) -> Path:
    assert tree.entry is not None
    return tree.entry


def _inside(project: _Project, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{project.inside}/{name}" if project.inside else name for name in names)


def _point_to(tree: _Tree) -> None:
    """Workers that know git find their way from the tree's `.git`: put back if it was lost."""
    pointer, text = tree.folder / ".git", f"gitdir: {tree.entry}\n"
    if pointer.is_dir() and not pointer.is_symlink():
        return
    if pointer.is_file() and not pointer.is_symlink() and pointer.read_text() == text:
        return
    fresh = tree.folder / f".git-{secrets.token_hex(6)}"
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(pointer)


def _put_aside(folder: Path) -> None:
    """Git knows nothing of it, so it may be all there is of somebody's work: kept by its side."""
    if not folder.is_dir():
        return
    if any(one.name != ".git" for one in folder.iterdir()):
        folder.rename(folder.with_name(f"{folder.name}.kept-{secrets.token_hex(3)}"))
    else:
        _delete(folder)


def _delete(folder: Path) -> None:
    def unprotect(retry: Callable[[str], object], path: str, _trouble: object) -> None:
        # Package caches protect their folders against writing.
        for each in (Path(path).parent, Path(path)):
            if not each.is_symlink():
                each.chmod(each.stat().st_mode | stat.S_IRWXU)
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - as rmtree calls it
            shutil.rmtree(path)
        else:
            retry(path)

    if folder.exists():
        shutil.rmtree(folder, onerror=unprotect)
