"""The files of a task: its workspace, and the copies that go out to the Boss."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bot.engine.llm.base import BackendDenied
from bot.engine.llm.workspace import OURS
from bot.engine.workflow.places.git import GitFailed
from bot.engine.workflow.places.landing import Landed
from bot.engine.workflow.places.worktrees import Worktrees
from storage.records.tasks import Task, TaskId

MOST_FILES = 5
MOST_BYTES = 20_000_000

# The name under which tools, too, write a file before it is whole.
_PART = ".shiftboss-{}.part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """`copies` are relative to the data directory; `missing` were claimed and are not there;
    `left_out` are too many or too large to send."""

    copies: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def names_in_workspace(sent: tuple[str, ...]) -> tuple[str, ...]:
    """What files sent along are called there: by their own names, numbered where two have one."""
    names: list[str] = []
    for path in map(PurePosixPath, sent):
        number, name = 1, path.name
        while name in names:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        names.append(name)
    return tuple(names)


class FolderTrouble(BackendDenied):
    """The project folder cannot be worked in until somebody puts it right."""

    hint = "project.trouble"


class Artifacts:
    """Everything under `home`: `work/<task>/` is the workspace, `files/tasks/<task>/` holds the
    copies, so that what was reported stays as it was when later steps change the original.

    A task with a project works there; one with a branch in a worktree of its own, until what it
    made is landed."""

    def __init__(self, home: Path, worktrees: Worktrees | None = None) -> None:
        self._home = home
        self._worktrees = worktrees or Worktrees(home)

    async def workspace(self, task: Task) -> Path:
        """The task's folder, made if need be, with the files the Boss sent along in it.
        FolderTrouble where its project does not allow that."""
        if not task.branch:
            own = Path(task.project_dir) if task.project_dir else self._home / "work" / task.id
            return await asyncio.to_thread(self._prepare, task, own)
        try:
            tree = await self._worktrees.prepare(task)
        except GitFailed as error:
            raise FolderTrouble(f"no worktree for task {task.id}: {error}") from error
        return await asyncio.to_thread(self._prepare, task, tree)

    async def land(self, task: Task) -> Landed:
        """Bring what the task made into its project, once all of it is done; a task without a
        branch has worked there already. Never raises but for cancellation, and landing again
        changes nothing."""
        if not task.branch:
            return Landed()
        return await self._worktrees.land(task, names_in_workspace(task.files))

    async def drop(self, task: Task) -> None:
        """The task is deleted: take its worktree away. Its branch keeps what is nowhere else."""
        if task.branch:
            await self._worktrees.drop(task, names_in_workspace(task.files))

    async def collect(
        self, task_id: TaskId, workspace: Path, claimed: tuple[str, ...]
    ) -> Collected:
        """Copy what a step says it made. Paths outside the workspace count as missing."""
        return await asyncio.to_thread(self._collect, task_id, workspace, claimed)

    def _prepare(self, task: Task, workspace: Path) -> Path:
        if task.project_dir and task.graph_version and not workspace.is_dir():
            # It was there when the plan was made: an empty one in its place would be a lie.
            raise FolderTrouble(f"the folder of task {task.id} is gone")
        workspace.mkdir(parents=True, exist_ok=True)
        _sweep(workspace, deep=not task.project_dir)
        for sent, name in zip(task.files, names_in_workspace(task.files), strict=True):
            source = self._home / sent
            target = workspace / name
            if source.is_file() and not target.exists():
                _copy_whole(source, target)
        return workspace.resolve()

    def _collect(self, task_id: TaskId, workspace: Path, claimed: tuple[str, ...]) -> Collected:
        copies: list[str] = []
        missing: list[str] = []
        left_out: list[str] = []
        for name in dict.fromkeys(claimed):
            if OURS in PurePosixPath(name).parts:
                # What tools keep there was printed, not made.
                continue
            source = _file_in(workspace, name)
            if source is None:
                missing.append(name)
            elif len(copies) == MOST_FILES or source.stat().st_size > MOST_BYTES:
                left_out.append(name)
            else:
                try:
                    copies.append(self._copy(task_id, workspace, source))
                except (FileExistsError, NotADirectoryError, IsADirectoryError):
                    # It has the name of a folder that was sent before, or the other way round.
                    left_out.append(name)
        return Collected(copies=tuple(copies), missing=tuple(missing), left_out=tuple(left_out))

    def _copy(self, task_id: TaskId, workspace: Path, source: Path) -> str:
        target = self._home / "files" / "tasks" / task_id / source.relative_to(workspace)
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy_whole(source, target)
        return target.relative_to(self._home).as_posix()


def _file_in(workspace: Path, name: str) -> Path | None:
    try:
        source = (workspace / name).resolve()
        there = source.is_relative_to(workspace) and source.is_file()
    except (OSError, RuntimeError, ValueError):
        # A worker may claim anything: a name too long, a NUL in it, links in a circle.
        return None
    return source if there else None


def _copy_whole(source: Path, target: Path) -> None:
    """All of it or nothing, whenever the process dies or the disk is full."""
    part = target.with_name(_PART.format(secrets.token_hex(6)))
    try:
        shutil.copyfile(source, part)
        with part.open("rb") as copied:
            os.fsync(copied.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sweep(workspace: Path, *, deep: bool) -> None:
    """Drop what a process that died left half-written. A project of the Boss's own may be large:
    there only its top is looked at."""
    pattern = _PART.format("*")
    for part in list(workspace.rglob(pattern) if deep else workspace.glob(pattern)):
        part.unlink(missing_ok=True)
