"""Prepares task workspaces (a git worktree per task, or a folder), copies result files for
delivery, and removes what is done."""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import os
import secrets
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeAlias

from bot.engine.llm.backend import BackendDenied
from bot.engine.llm.workspace_files import (
    INTERNAL_FOLDER,
    PathRefused,
    find_file,
    find_missing,
    find_unchanged,
    open_to_copy,
)
from bot.engine.sandbox.git_runner import GitFailed, GitRunner, exclusive_access
from bot.engine.workspaces import branch_merge
from bot.engine.workspaces.branch_merge import (
    MergeOutcome,
    abort_our_merge,
    collect_notes,
    commit_all,
    merge_into_project,
)
from bot.engine.workspaces.lfs_files import fill_lfs_files
from storage.file_trees import delete_tree, walk_folders
from storage.records.tasks import Task, TaskId
from storage.shared_files import FileShareError, OneFolder, SharedFiles

# --- one git worktree per task
# Every operation can be repeated after a crash. A marker in git's entry makes a worktree *ready*;
# it is written last and removed first, so that an incomplete worktree is never mistaken for work.

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
        before = (await boss.run("rev-parse", "HEAD")).stdout.strip()
        landed = stays or await merge_into_project(boss, git, _require_entry(tree), task)
        if landed.merged:
            await fill_lfs_files(boss, project.git_dir, project.checkout, since=before)
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
        await fill_lfs_files(_git_in_tree(made, boss), project.git_dir, made.folder)
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


# --- workspaces and result files

MAX_RESULT_FILES = 5
MAX_RESULT_BYTES = 20_000_000
"""Of one file. Larger ones stay in the workspace and are named on the card; the platforms' own
limits are higher."""


# Tools use the same name for incomplete files.
_PARTIAL_NAME = ".shiftboss-{}.part"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedFiles:
    """`copies` are relative to the data directory; `missing` were claimed but don't exist;
    `skipped` are too many or too large."""

    copies: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def workspace_names(attachments: tuple[str, ...]) -> tuple[str, ...]:
    """Return the attachments' names in the workspace, numbered if they collide."""
    names: list[str] = []
    for path in map(PurePosixPath, attachments):
        number, name = 1, path.name
        while name in names:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        names.append(name)
    return tuple(names)


class ProjectFolderUnusable(BackendDenied):
    """The project folder needs attention before tasks can use it."""

    hint = "project.trouble"


class TaskArtifacts:
    """Manages `work/<task>/`, the workspace, and `files/tasks/<task>/`, the copies that keep
    delivered files unchanged.

    Tasks with a project work in its folder; tasks with a branch work in their own worktree until it
    is merged. Attachments and copies go through `files`, since other processes have made or need
    them."""

    def __init__(
        self, data_dir: Path, is_adopted: AdoptionCheck, files: SharedFiles | None = None
    ) -> None:
        self._data_dir = data_dir
        self._files = files or OneFolder()
        self._worktrees = TaskWorktrees(data_dir, is_adopted)

    async def workspace(self, task: Task) -> Path:
        """Return the task's folder with the attached files in it. Raises ProjectFolderUnusable."""
        for sent in task.files:
            try:
                await self._files.ensure(sent)
            except FileShareError as error:
                raise ProjectFolderUnusable(str(error)) from error
        if not task.branch:
            own = Path(task.project_dir) if task.project_dir else self._data_dir / "work" / task.id
            return await asyncio.to_thread(self._prepare, task, own)
        try:
            tree = await self._worktrees.prepare(task)
        except GitFailed as error:
            raise ProjectFolderUnusable(f"no worktree for task {task.id}: {error}") from error
        return await asyncio.to_thread(self._prepare, task, tree)

    async def merge(self, task: Task) -> MergeOutcome:
        """Merge the finished task's branch into its project; does nothing without a branch.

        Idempotent. Raises only CancelledError."""
        if not task.branch:
            return MergeOutcome()
        return await self._worktrees.merge(task, workspace_names(task.files))

    async def remove_worktree(self, task: Task) -> None:
        """Remove the worktree of a deleted task; unmerged work stays on its branch."""
        if task.branch:
            await self._worktrees.remove(task, workspace_names(task.files))

    async def collect(
        self,
        task_id: TaskId,
        workspace: Path,
        claimed: tuple[str, ...],
        named: tuple[str, ...] = (),
    ) -> CollectedFiles:
        """Copy the files that a step claims; paths outside the workspace count as missing, and so
        do `named` files that no folder of the workspace has."""
        found = await asyncio.to_thread(self._collect, task_id, workspace, claimed, named)
        for copy in found.copies:
            await self._files.publish_or_later(copy, task_id)
        return found

    async def find_unchanged(
        self, task: Task, workspace: Path, names: Sequence[str]
    ) -> tuple[str, ...]:
        """Return the files of the workspace that are unchanged since the task was given, or since
        its worktree was made. Names that no such file has are left out."""
        began = task.created_at.timestamp()
        if names and task.branch:
            began = max(began, await self._worktrees.created_at(task))
        return await asyncio.to_thread(find_unchanged, workspace, names, began)

    def _prepare(self, task: Task, workspace: Path) -> Path:
        if task.project_dir and task.graph_version and not workspace.is_dir():
            # It existed when the plan was made; an empty replacement would hide the loss.
            raise ProjectFolderUnusable(f"the folder of task {task.id} is gone")
        workspace.mkdir(parents=True, exist_ok=True)
        _remove_partial_files(workspace, deep=not task.project_dir)
        for sent, name in zip(task.files, workspace_names(task.files), strict=True):
            source = self._data_dir / sent
            target = workspace / name
            if source.is_file() and not target.exists():
                with source.open("rb") as read:
                    _copy_atomically(read, target)
        return workspace.resolve()

    def _collect(
        self,
        task_id: TaskId,
        workspace: Path,
        claimed: tuple[str, ...],
        named: tuple[str, ...],
    ) -> CollectedFiles:
        copies: list[str] = []
        missing: list[str] = []
        left_out: list[str] = []
        for name in dict.fromkeys(claimed):
            if INTERNAL_FOLDER in PurePosixPath(name).parts:
                # Contains tool output, not results.
                continue
            source = find_file(workspace, name)
            if source is None:
                missing.append(name)
            elif len(copies) == MAX_RESULT_FILES or source.stat().st_size > MAX_RESULT_BYTES:
                left_out.append(name)
            else:
                try:
                    copies.append(self._copy(task_id, workspace, source))
                except (FileExistsError, NotADirectoryError, IsADirectoryError, PathRefused):
                    # A file and an earlier folder have the same name, or vice versa; or another
                    # program of the worker has put something else there since.
                    left_out.append(name)
        absent = [name for name in named if find_file(workspace, name) is None]
        missing += sorted(find_missing(workspace, absent) - set(missing)) if absent else []
        return CollectedFiles(copies=tuple(copies), missing=tuple(missing), skipped=tuple(left_out))

    def _copy(self, task_id: TaskId, workspace: Path, source: Path) -> str:
        name = source.relative_to(workspace)
        target = self._data_dir / "files" / "tasks" / task_id / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_to_copy(workspace, source) as read:
            _copy_atomically(read, target)
        return target.relative_to(self._data_dir).as_posix()


def _copy_atomically(source: BinaryIO, target: Path) -> None:
    part = target.with_name(_PARTIAL_NAME.format(secrets.token_hex(6)))
    try:
        with part.open("xb") as copied:
            shutil.copyfileobj(source, copied)
            copied.flush()
            os.fsync(copied.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _remove_partial_files(workspace: Path, *, deep: bool) -> None:
    """Remove incomplete files of a crashed process.

    In project folders, which may be large, only the top level is searched."""
    pattern = _PARTIAL_NAME.format("*")
    for _, folders, files, at in walk_folders(workspace):
        for name in fnmatch.filter(files, pattern):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
        if not deep:
            folders.clear()
