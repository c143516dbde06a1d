"""Creates, reopens, merges and removes a git worktree per task.

Every operation can be repeated after a crash. A marker in git's entry makes a worktree *ready*; it
is written last and removed first, so that an incomplete worktree is never mistaken for work."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from bot.engine.sandbox.git_runner import GitFailed, GitRunner, exclusive_access
from bot.engine.workspaces import branch_merge
from bot.engine.workspaces.branch_merge import (
    MergeOutcome,
    abort_our_merge,
    collect_notes,
    commit_all,
    merge_into_project,
)
from storage.file_trees import delete_tree
from storage.records.tasks import Task

log = logging.getLogger(__name__)

_READY_MARKER = "shiftboss-ready"
_LOCK_FILES = ("index.lock", "HEAD.lock")


AdoptionCheck: TypeAlias = Callable[[Path, Sequence[Path]], Awaitable[bool]]
"""Returns whether the repository at these paths may be used for tasks of the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _GitProject:
    """A project's `checkout`, its common `git_dir` and the project's `subfolder` within the
    checkout."""

    checkout: Path
    git_dir: Path
    subfolder: str

    @property
    def paths(self) -> tuple[Path, ...]:
        return self.checkout, self.git_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worktree:
    """A task's folder; `entry` is git's folder for it, None if git doesn't know it."""

    folder: Path
    entry: Path | None = None
    ready: bool = False


class TaskWorktrees:
    """Manages worktrees in `work/<task>`.

    Nothing is forced, pushed or fetched, and project hooks don't run because a worker may have
    written them."""

    def __init__(self, data_dir: Path, is_adopted: AdoptionCheck) -> None:
        self._work = data_dir / "work"
        self._is_adopted = is_adopted

    async def find_repository(self, path: Path) -> tuple[Path, ...]:
        """Return the top folder and the git folder of the checkout in which the folder is part of a
        commit; empty also without git."""
        try:
            project = await _find_project(path)
        except GitFailed:
            return ()
        return project.paths

    async def prepare(self, task: Task) -> Path:
        """Return the task's folder on its branch, created from the checkout if needed.

        Raises GitFailed, also if tasks may have written the repository."""
        project = await _find_project(Path(task.project_dir))
        if not await self._is_adopted(Path(task.project_dir), project.paths):
            raise GitFailed(f"tasks may have written the repository in {project.git_dir}")
        async with self._exclusive(project) as boss:
            tree = await self._open(project, task)
            if tree.ready:
                await asyncio.to_thread(_restore_git_pointer, tree)
                await abort_our_merge(_git_in_tree(tree, boss), _require_entry(tree))
            else:
                tree = await self._create(boss, project, tree, task)
            inside = tree.folder / project.subfolder
            await asyncio.to_thread(inside.mkdir, parents=True, exist_ok=True)
            return inside

    async def created_at(self, task: Task) -> float:
        """Return when the task's worktree was complete, in seconds since the epoch; 0 if there is
        none."""
        try:
            project = await _find_project(Path(task.project_dir))
            tree = await self._find_tree(project, task)
        except GitFailed:
            return 0.0
        if tree.entry is None or not tree.ready:
            return 0.0
        return (await asyncio.to_thread((tree.entry / _READY_MARKER).stat)).st_mtime

    async def merge(self, task: Task, attachments: tuple[str, ...]) -> MergeOutcome:
        """Commit the work, merge it into the checked-out branch if no uncommitted changes are
        affected, and remove the worktree.

        `attachments` stay out unless the project already had them. Idempotent. Raises only
        CancelledError."""
        try:
            project = await _find_project(Path(task.project_dir))
            async with self._exclusive(project) as boss:
                return await self._merge(boss, project, task, attachments)
        except GitFailed as error:
            log.warning("task %s is not merged: %s", task.id, error)
            facts = {"branch": task.branch, "said": str(error)}
            return MergeOutcome(merged=False, reason_key="land.failed", facts=facts)

    async def remove(self, task: Task, attachments: tuple[str, ...]) -> None:
        """Remove the worktree after committing its contents; the branch stays unless it is
        merged."""
        try:
            project = await _find_project(Path(task.project_dir))
            async with self._exclusive(project) as boss:
                tree = await self._open(project, task)
                if tree.ready:
                    git = _git_in_tree(tree, boss)
                    not_kept = await commit_all(
                        boss,
                        git,
                        _require_entry(tree),
                        task,
                        _paths_in_project(project, attachments),
                    )
                    if not_kept is not None:
                        log.warning(
                            "the worktree of task %s cannot be removed: %s",
                            task.id,
                            not_kept.reason_key,
                        )
                        return
                await self._remove_tree(boss, tree)
                await boss.run("branch", "-q", "-d", task.branch)
        except GitFailed as error:
            log.warning("the worktree of task %s cannot be removed: %s", task.id, error)

    async def _merge(
        self, boss: GitRunner, project: _GitProject, task: Task, sent: tuple[str, ...]
    ) -> MergeOutcome:
        tree = await self._open(project, task)
        there = await boss.run("rev-parse", "--verify", "--quiet", f"refs/heads/{task.branch}")
        if not there.succeeded:
            # No work was started, or the Boss has merged and deleted the branch.
            return MergeOutcome()
        if not tree.ready:
            tip = there.stdout.strip()
            if (await boss.run("merge-base", "--is-ancestor", tip, "HEAD")).succeeded:
                await self._remove_tree(boss, tree)
                return MergeOutcome(commit=tip)
            tree = await self._create(boss, project, tree, task)
        git = _git_in_tree(tree, boss)
        stays = await commit_all(
            boss, git, _require_entry(tree), task, _paths_in_project(project, sent)
        )
        landed = stays or await merge_into_project(boss, git, _require_entry(tree), task)
        if landed.merged:
            landed = replace(landed, notes=await collect_notes(git, _require_entry(tree)))
            await self._remove_tree(boss, tree)
        return landed

    @asynccontextmanager
    async def _exclusive(self, project: _GitProject) -> AsyncGenerator[GitRunner, None]:
        """Yield git for the Boss's checkout while holding the repository's lock."""
        async with exclusive_access(self._work / ".locks", project.git_dir) as guard:
            yield GitRunner(project.checkout, lock_descriptor=guard)

    async def _open(self, project: _GitProject, task: Task) -> _Worktree:
        tree = await self._find_tree(project, task)
        await asyncio.to_thread(_remove_stale_locks, project, tree, task.branch)
        return tree

    async def _find_tree(self, project: _GitProject, task: Task) -> _Worktree:
        return await asyncio.to_thread(_find_worktree, project, self._work.resolve() / task.id)

    async def _create(
        self, boss: GitRunner, project: _GitProject, tree: _Worktree, task: Task
    ) -> _Worktree:
        if tree.entry is not None:
            await self._remove_tree(boss, tree)
        else:
            await asyncio.to_thread(_set_aside, tree.folder)
        ref = f"refs/heads/{task.branch}"
        if (await boss.run("rev-parse", "--verify", "--quiet", ref)).succeeded:
            await boss.output("worktree", "add", str(tree.folder), task.branch)
        else:
            new = ("--no-track", "-b", task.branch)
            await boss.output("worktree", "add", *new, str(tree.folder), "HEAD")
        made = await self._find_tree(project, task)
        if made.entry is None:
            raise GitFailed(f"git does not know the worktree it has just made at {tree.folder}")
        await branch_merge.fill_submodules(boss, project.git_dir, made.folder, made.entry)
        await asyncio.to_thread((made.entry / _READY_MARKER).touch)
        return replace(made, ready=True)

    async def _remove_tree(self, boss: GitRunner, tree: _Worktree) -> None:
        """Remove the marker first: an incomplete worktree must not look like work."""
        if tree.entry is None:
            return
        await asyncio.to_thread((tree.entry / _READY_MARKER).unlink, missing_ok=True)
        await asyncio.to_thread(delete_tree, tree.folder)
        # A git killed while creating the worktree leaves it locked.
        await boss.run("worktree", "unlock", str(tree.folder))
        await boss.output("worktree", "remove", str(tree.folder))


async def _find_project(path: Path) -> _GitProject:
    """Raises GitFailed unless the folder is part of the checked-out commit."""
    git = GitRunner(path)
    told = await git.output("rev-parse", "--show-toplevel", "--git-common-dir", "--show-prefix")
    if told.count("\n") != 2:  # noqa: PLR2004 - three lines, unless a path contains newlines
        raise GitFailed(f"{path} has a name that git cannot tell")
    top, common, inside = told.split("\n")
    await git.output("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    inside = inside.rstrip("/")
    if inside and not await git.output("ls-tree", "--full-tree", "-d", "HEAD", "--", inside):
        raise GitFailed(f"{path} is in no commit")
    shared = await asyncio.to_thread((path / common).resolve)
    if await asyncio.to_thread(_is_in_reach_of_workers, Path(top), shared):
        raise GitFailed(f"the repository of {top} lies where tasks write")
    return _GitProject(checkout=Path(top), git_dir=shared, subfolder=inside)


def _is_in_reach_of_workers(checkout: Path, git_dir: Path) -> bool:
    """No sandbox can cover a link, or a repository elsewhere among the project's files."""
    usual = checkout / ".git"
    return usual.is_symlink() or (git_dir.is_relative_to(checkout) and git_dir != usual)


def _find_worktree(project: _GitProject, folder: Path) -> _Worktree:
    for pointer in (project.git_dir / "worktrees").glob("*/gitdir"):
        named = pointer.parent / pointer.read_text(encoding="utf-8", errors="replace").strip()
        if named.parent.resolve() == folder:
            ready = (pointer.parent / _READY_MARKER).is_file() and folder.is_dir()
            return _Worktree(folder=folder, entry=pointer.parent, ready=ready)
    return _Worktree(folder=folder)


def _remove_stale_locks(project: _GitProject, tree: _Worktree, branch: str) -> None:
    """Remove locks of killed git processes in this worktree or on its branch; the Boss's locks
    stay.

    Safe because we hold the repository's lock."""
    of_branch = project.git_dir / "refs" / "heads" / f"{branch}.lock"
    of_tree = [tree.entry / name for name in _LOCK_FILES] if tree.entry else []
    for lock in (of_branch, *of_tree):
        lock.unlink(missing_ok=True)


def _git_in_tree(tree: _Worktree, boss: GitRunner) -> GitRunner:
    """Set the git directory explicitly, because the worker could have changed the worktree's
    `.git`."""
    return boss.in_folder(
        tree.folder, GIT_DIR=str(_require_entry(tree)), GIT_WORK_TREE=str(tree.folder)
    )


def _require_entry(tree: _Worktree) -> Path:
    assert tree.entry is not None
    return tree.entry


def _paths_in_project(project: _GitProject, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{project.subfolder}/{name}" if project.subfolder else name for name in names)


def _restore_git_pointer(tree: _Worktree) -> None:
    """Restore the worktree's `.git` file, which workers' own git commands need."""
    pointer, text = tree.folder / ".git", f"gitdir: {tree.entry}\n"
    if pointer.is_dir() and not pointer.is_symlink():
        return
    if pointer.is_file() and not pointer.is_symlink() and pointer.read_text() == text:
        return
    fresh = tree.folder / f".git-{secrets.token_hex(6)}"
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(pointer)


def _set_aside(folder: Path) -> None:
    """Rename a folder unknown to git, because it may contain the only copy of some work."""
    if not folder.is_dir():
        return
    if any(one.name != ".git" for one in folder.iterdir()):
        folder.rename(folder.with_name(f"{folder.name}.kept-{secrets.token_hex(3)}"))
    else:
        delete_tree(folder)
