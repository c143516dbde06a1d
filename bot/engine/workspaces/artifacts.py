"""Prepares task workspaces and copies result files for delivery."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bot.engine.llm.backend import BackendDenied
from bot.engine.llm.workspace_files import INTERNAL_FOLDER, find_file, find_missing, find_unchanged
from bot.engine.sandbox.git_runner import GitFailed
from bot.engine.workspaces.branch_merge import MergeOutcome
from bot.engine.workspaces.worktrees import AdoptionCheck, TaskWorktrees
from storage.file_trees import walk_folders
from storage.records.tasks import Task, TaskId

MAX_FILES = 5
MAX_BYTES = 20_000_000


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
    is merged."""

    def __init__(self, data_dir: Path, is_adopted: AdoptionCheck) -> None:
        self._data_dir = data_dir
        self._worktrees = TaskWorktrees(data_dir, is_adopted)

    async def workspace(self, task: Task) -> Path:
        """Return the task's folder with the attached files in it. Raises ProjectFolderUnusable."""
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
        return await asyncio.to_thread(self._collect, task_id, workspace, claimed, named)

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
                _copy_atomically(source, target)
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
            elif len(copies) == MAX_FILES or source.stat().st_size > MAX_BYTES:
                left_out.append(name)
            else:
                try:
                    copies.append(self._copy(task_id, workspace, source))
                except (FileExistsError, NotADirectoryError, IsADirectoryError):
                    # A file and an earlier folder have the same name, or vice versa.
                    left_out.append(name)
        absent = [name for name in named if find_file(workspace, name) is None]
        missing += sorted(find_missing(workspace, absent) - set(missing)) if absent else []
        return CollectedFiles(copies=tuple(copies), missing=tuple(missing), skipped=tuple(left_out))

    def _copy(self, task_id: TaskId, workspace: Path, source: Path) -> str:
        target = self._data_dir / "files" / "tasks" / task_id / source.relative_to(workspace)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_atomically(source, target)
        return target.relative_to(self._data_dir).as_posix()


def _copy_atomically(source: Path, target: Path) -> None:
    part = target.with_name(_PARTIAL_NAME.format(secrets.token_hex(6)))
    try:
        shutil.copyfile(source, part)
        with part.open("rb") as copied:
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
