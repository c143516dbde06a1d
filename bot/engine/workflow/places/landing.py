"""What a task made, committed on its branch and brought into what the Boss has checked out.

The two are put together in the task's own tree, where nothing of the Boss's can be in the way. The
Boss's checkout is only ever moved forward to a commit that already holds all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from bot.engine.llm.workspace import OURS
from bot.engine.workflow.places import submodules
from bot.engine.workflow.places.git import Git, GitFailed
from storage.records.tasks import Task

_MERGING = "shiftboss-merging"
_TRIES = 3
_TITLE = 72
_NAMED = 5
_GITLINK = "160000"
_CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""What tools leave behind of themselves: nobody misses it."""

Note: TypeAlias = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """How a task's work got into its project. `commit` is the newest of its branch, empty where
    there is none; `why` is a catalogue key, with its `facts`, where it was not `merged`; `notes`
    are what else the Boss should know, each a key with its facts."""

    commit: str = ""
    merged: bool = True
    why: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def told(self, words: Callable[..., str]) -> str:
        """In words, empty where there is nothing to tell."""
        mishap = () if self.merged else ((self.why, self.facts),)
        return "\n\n".join(words(key, **facts) for key, facts in (*mishap, *self.notes))


async def notes_on(git: Git, entry: Path) -> tuple[Note, ...]:
    """What of the tree is in no commit, before it goes."""
    ignored = await _ignored(git)
    empty = await asyncio.to_thread(submodules.left_empty, entry)
    notes: list[Note] = []
    if ignored:
        notes.append(("land.ignored", {"n": len(ignored), "files": _names(ignored)}))
    if empty:
        notes.append(("land.submodules", {"n": len(empty), "files": _names([*empty])}))
    return tuple(notes)


async def commit_all(
    boss: Git, git: Git, entry: Path, task: Task, sent: tuple[str, ...]
) -> Landed | None:
    """Put everything in the tree on the task's branch; None if that went well."""
    await abort_our_merge(git, entry)
    head = await git.run("symbolic-ref", "--quiet", "HEAD")
    if head.out.strip() != f"refs/heads/{task.branch}":
        return _stays(task, "land.moved", folder=str(git.folder))
    if await git.out("ls-files", "--unmerged"):
        return _stays(task, "land.unfinished", folder=str(git.folder))
    strangers = await _untracked(git, sent)
    left_out = (f":(top,exclude,literal){name}" for name in strangers)
    # What it cannot add is found below, by name.
    await git.run("add", "--all", "--ignore-errors", "--", ":(top)", *left_out)
    await _leave_out_repositories(git)
    merging = await asyncio.to_thread((entry / "MERGE_HEAD").exists)
    if merging or not (await git.run("diff-index", "--cached", "--quiet", "HEAD", "--")).good:
        await git.out(
            *await _identity(git),
            "commit",
            *("--quiet", "--no-verify", "--cleanup=whitespace", "--allow-empty-message"),
            *("-m", f"{task.title[:_TITLE]}\n\nShiftboss task {task.id}"),
        )
    left = [name for name in await _dirty(git) if name not in strangers]
    left += await submodules.changed(boss, git.folder, entry)
    if left:
        return _stays(task, "land.left", files=_names(left), folder=str(git.folder))
    return None


async def bring_in(boss: Git, git: Git, entry: Path, task: Task) -> Landed:
    """Move the Boss's checkout forward to the task's branch, or say why that cannot be."""
    complaint = tip = ""
    for _ in range(_TRIES):
        head, tip = await boss.out("rev-parse", "HEAD"), await git.out("rev-parse", "HEAD")
        if await _holds(boss, head, tip):
            return Landed(commit=tip)
        if not (await boss.run("symbolic-ref", "--quiet", "HEAD")).good:
            return _stays(task, "land.detached", commit=tip)
        if not await _holds(boss, tip, head):
            conflicts = await _put_together(git, entry, task, head)
            if conflicts:
                return _stays(task, "land.conflict", commit=tip, files=_names(conflicts))
            tip = await git.out("rev-parse", "HEAD")
        moved = await boss.run("merge", "--quiet", "--ff-only", "--no-overwrite-ignore", tip)
        if moved.good:
            return Landed(commit=tip)
        complaint = moved.complaint
        in_the_way = _listed(moved.said)
        if in_the_way:
            return _stays(task, "land.in_the_way", commit=tip, files=_names(in_the_way))
        # The Boss may have committed just now: then what is to be put together has changed.
    return _stays(task, "land.failed", commit=tip, said=complaint)


async def abort_our_merge(git: Git, entry: Path) -> None:
    """Undo a putting-together that a killed process has left in the tree; a worker's own merge
    is not touched."""
    ours = entry / _MERGING
    if not await asyncio.to_thread(ours.exists):
        return
    if await asyncio.to_thread((entry / "MERGE_HEAD").exists):
        await git.out("merge", "--abort")
    await asyncio.to_thread(ours.unlink, missing_ok=True)


async def _put_together(git: Git, entry: Path, task: Task, head: str) -> list[str]:
    """Merge the Boss's commits into the task's branch; the files that cannot be, if any."""
    await asyncio.to_thread((entry / _MERGING).touch)
    message = f"Bring {task.branch} together with the project"
    merged = await git.run(
        *await _identity(git),
        "merge",
        *("--quiet", "--ff", "--no-edit", "--no-verify", "-m", message, head),
    )
    conflicts: list[str] = []
    if not merged.good:
        unmerged = await git.out("diff", "--name-only", "--diff-filter=U", "-z")
        conflicts = [*filter(None, unmerged.split("\0"))] or _listed(merged.said)
    await abort_our_merge(git, entry)
    if not merged.good and not conflicts:
        raise GitFailed(merged.complaint)
    return conflicts


async def _untracked(git: Git, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names that the branch does not know."""
    known = [(await git.run("cat-file", "-e", f"HEAD:{name}")).good for name in names]
    return tuple(name for name, there in zip(names, known, strict=True) if not there)


async def _leave_out_repositories(git: Git) -> None:
    """A repository made inside the tree would be committed as a name without its content."""
    told = (await git.out("diff-index", "--cached", "-z", "--no-renames", "HEAD")).split("\0")
    added = [
        f":(top,literal){name}"
        for facts, name in zip(told[::2], told[1::2], strict=False)
        if facts.split()[1] == _GITLINK and facts.split()[0] != f":{_GITLINK}"
    ]
    if added:
        await git.out("reset", "--quiet", "--", *added)


async def _ignored(git: Git) -> list[str]:
    """What `.gitignore` names, folders as one."""
    told = await git.run(
        "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"
    )
    names = [name.rstrip("/") for name in told.out.split("\0") if name]
    return [name for name in names if not {*PurePosixPath(name).parts} & {OURS, *_CACHES}]


async def _dirty(git: Git) -> list[str]:
    told = await git.out("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
    return [line[3:].rstrip("/") for line in told.split("\0") if line]


async def _holds(git: Git, whole: str, part: str) -> bool:
    return (await git.run("merge-base", "--is-ancestor", part, whole)).good


async def _identity(git: Git) -> tuple[str, ...]:
    """The Boss's own name where git knows it."""
    given: list[str] = []
    for key, ours in (("user.name", "Shiftboss"), ("user.email", "shiftboss@localhost")):
        if not (await git.run("config", key)).out.strip():
            given += ["-c", f"{key}={ours}"]
    return tuple(given)


def _stays(task: Task, why: str, *, commit: str = "", **facts: str) -> Landed:
    facts |= {"branch": task.branch}
    return Landed(commit=commit, merged=False, why=why, facts=facts)


def _listed(said: str) -> list[str]:
    """The files git names in a refusal, one a line behind a tab."""
    return [line.strip() for line in said.splitlines() if line.startswith("\t")]


def _names(names: list[str]) -> str:
    more = [] if len(names) <= _NAMED else ["…"]
    return ", ".join(names[:_NAMED] + more)
