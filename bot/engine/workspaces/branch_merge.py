"""Commits a task's work on its branch and merges it into the Boss's checkout, including submodules.

Merging happens in the task's worktree; the checkout is only fast-forwarded. Submodules are plain
files from the checkout's local repositories: no network is needed, and the worker can't change
their git settings. Changes in submodules are not merged; they keep the worktree."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from bot.engine.llm.workspace_files import INTERNAL_FOLDER
from bot.engine.sandbox.git_runner import GitFailed, GitRunner
from storage.records.tasks import Task

_GITMODULES = ".gitmodules"
_STATE_FILE = "shiftboss-submodules"
_NOT_INSIDE_SUBMODULES = "--ignore-submodules=dirty"
"""Git would start itself inside each, with the programs that its configuration names."""

_SUBMODULE_MODE = "160000"
"""Git's mode of a reference to another repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SubmoduleLink:
    """A submodule and the commit that the project references."""

    name: str
    path: str
    commit: str


async def fill_submodules(project_git: GitRunner, common: Path, tree: Path, entry: Path) -> None:
    """Check out the submodules' files; `entry` is git's folder for the worktree.

    Submodules without a local repository are recorded as empty."""
    if not await asyncio.to_thread((tree / _GITMODULES).is_file):
        return
    filled: dict[str, str] = {}
    empty: list[str] = []
    async for link in _submodule_links(project_git.in_folder(tree)):
        store = await asyncio.to_thread(_local_repository, project_git.folder, common, link)
        if store is not None and await _check_out_submodule(project_git, store, link, tree, entry):
            filled[link.path] = str(store)
        else:
            empty.append(link.path)
    state = json.dumps({"filled": filled, "empty": empty})
    await asyncio.to_thread((entry / _STATE_FILE).write_text, state, encoding="utf-8")


async def changed_submodule_files(project_git: GitRunner, tree: Path, entry: Path) -> list[str]:
    """Return submodule files that changed since they were filled in."""
    names: list[str] = []
    if not await asyncio.to_thread((entry / _STATE_FILE).is_file):
        return names
    for path, store in (await asyncio.to_thread(_load_state, entry))["filled"].items():
        git = _git_in_submodule(project_git, Path(store), path, tree, entry)
        if not await asyncio.to_thread((tree / path).is_dir):
            names.append(path)
            continue
        await git.run("update-index", "-q", "--refresh")
        told = await git.output("diff-files", "--name-only", "-z", "--ignore-submodules=all")
        told += await git.output("ls-files", "--others", "--exclude-standard", "-z")
        names += [f"{path}/{name}" for name in told.split("\0") if name]
    return names


def empty_submodules(entry: Path) -> tuple[str, ...]:
    return tuple(_load_state(entry)["empty"])


async def _submodule_links(git: GitRunner) -> AsyncIterator[_SubmoduleLink]:
    told = await git.run(
        "config", "-z", "-f", _GITMODULES, "--get-regexp", r"^submodule\..*\.path$"
    )
    for row in filter(None, told.stdout.split("\0")):
        key, _, path = row.partition("\n")
        named = await git.run("ls-tree", "-z", "HEAD", "--", path)
        facts = named.stdout.split("\t")[0].split()
        if facts[:1] == [_SUBMODULE_MODE]:
            name = key.removeprefix("submodule.").removesuffix(".path")
            yield _SubmoduleLink(name=name, path=path, commit=facts[2])


def _local_repository(top: Path, common: Path, link: _SubmoduleLink) -> Path | None:
    """Return the submodule's repository in the checkout, if it exists."""
    for each in map(PurePosixPath, (link.name, link.path)):
        if each.is_absolute() or ".." in each.parts:
            return None
    for store in (common / "modules" / link.name, top / link.path / ".git"):
        if (store / "HEAD").is_file():
            return store.resolve()
    return None


async def _check_out_submodule(
    boss: GitRunner, store: Path, link: _SubmoduleLink, tree: Path, entry: Path
) -> bool:
    folder = tree / link.path
    if not await asyncio.to_thread(_is_inside_tree, tree, folder):
        return False
    git = _git_in_submodule(boss, store, link.path, tree, entry)
    known = await git.run("cat-file", "-e", f"{link.commit}^{{commit}}")
    if not known.succeeded or not (await git.run("read-tree", link.commit)).succeeded:
        return False
    return (await git.run("checkout-index", "--all", "--force", "--quiet")).succeeded


def _is_inside_tree(tree: Path, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve().is_relative_to(tree.resolve())


def _git_in_submodule(
    boss: GitRunner, store: Path, path: str, tree: Path, entry: Path
) -> GitRunner:
    """Return git with the Boss's settings and a separate index in `entry`."""
    index = entry / f"{_STATE_FILE}.{path.replace('/', '%')}"
    folder = tree / path
    return boss.in_folder(
        folder, GIT_DIR=str(store), GIT_WORK_TREE=str(folder), GIT_INDEX_FILE=str(index)
    )


def _load_state(entry: Path) -> Mapping[str, Mapping[str, str]]:
    try:
        told = json.loads((entry / _STATE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told = {}
    return {"filled": {}, "empty": {}, **told}


_MERGE_MARKER = "shiftboss-merging"
_MAX_ATTEMPTS = 3
_MAX_TITLE = 72
_MAX_NAMES = 5
_CACHE_FOLDERS = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Not reported as lost."""

MergeNote: TypeAlias = tuple[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOutcome:
    """The result of a merge.

    `commit` is the branch's newest commit, empty if none. If not `merged`, `reason_key` and `facts`
    are the text of the reason; `notes` are further texts for the Boss."""

    commit: str = ""
    merged: bool = True
    reason_key: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[MergeNote, ...] = ()

    def describe(self, text: Callable[..., str]) -> str:
        """Render reason and notes; empty if there are none."""
        mishap = () if self.merged else ((self.reason_key, self.facts),)
        return "\n\n".join(text(key, **facts) for key, facts in (*mishap, *self.notes))


async def collect_notes(git: GitRunner, entry: Path) -> tuple[MergeNote, ...]:
    """List ignored files and empty submodules before the worktree is removed."""
    ignored = await _ignored_files(git)
    empty = await asyncio.to_thread(empty_submodules, entry)
    notes: list[MergeNote] = []
    if ignored:
        notes.append(("land.ignored", {"n": len(ignored), "files": _join_names(ignored)}))
    if empty:
        notes.append(("land.submodules", {"n": len(empty), "files": _join_names([*empty])}))
    return tuple(notes)


async def commit_all(
    project_git: GitRunner, git: GitRunner, entry: Path, task: Task, attachments: tuple[str, ...]
) -> MergeOutcome | None:
    """Commit everything on the task's branch; None on success."""
    await abort_our_merge(git, entry)
    head = await git.run("symbolic-ref", "--quiet", "HEAD")
    if head.stdout.strip() != f"refs/heads/{task.branch}":
        return _not_merged(task, "land.moved", folder=str(git.folder))
    if await git.output("ls-files", "--unmerged"):
        return _not_merged(task, "land.unfinished", folder=str(git.folder))
    strangers = await _names_not_on_branch(git, attachments)
    nested = await _nested_repositories(git)
    left_out = (f":(top,exclude,literal){name}" for name in (*strangers, *nested))
    # Files that can't be added are detected below.
    await git.run("add", "--all", "--ignore-errors", "--", ":(top)", *left_out)
    await _unstage_repositories(git)
    merging = await asyncio.to_thread((entry / "MERGE_HEAD").exists)
    if merging or not (await git.run("diff-index", "--cached", "--quiet", "HEAD", "--")).succeeded:
        await git.output(
            *await _identity(git),
            "commit",
            *("--quiet", "--no-verify", "--cleanup=whitespace", "--allow-empty-message"),
            *("-m", f"{task.title[:_MAX_TITLE]}\n\nShiftboss task {task.id}"),
        )
    left = [name for name in await _uncommitted_files(git) if name not in strangers]
    left += await changed_submodule_files(project_git, git.folder, entry)
    if left:
        return _not_merged(task, "land.left", files=_join_names(left), folder=str(git.folder))
    return None


async def merge_into_project(
    project_git: GitRunner, git: GitRunner, entry: Path, task: Task
) -> MergeOutcome:
    """Fast-forward the Boss's checkout to the task's branch, or return why that failed."""
    complaint = tip = ""
    for _ in range(_MAX_ATTEMPTS):
        head, tip = (
            await project_git.output("rev-parse", "HEAD"),
            await git.output("rev-parse", "HEAD"),
        )
        if await _contains_commit(project_git, head, tip):
            return MergeOutcome(commit=tip)
        if not (await project_git.run("symbolic-ref", "--quiet", "HEAD")).succeeded:
            return _not_merged(task, "land.detached", commit=tip)
        if not await _contains_commit(project_git, tip, head):
            conflicts = await _merge_project_into_branch(git, entry, task, head)
            if conflicts:
                return _not_merged(task, "land.conflict", commit=tip, files=_join_names(conflicts))
            tip = await git.output("rev-parse", "HEAD")
        moved = await project_git.run("merge", "--quiet", "--ff-only", "--no-overwrite-ignore", tip)
        if moved.succeeded:
            return MergeOutcome(commit=tip)
        complaint = moved.error_line
        in_the_way = _files_in_refusal(moved.stderr)
        if in_the_way:
            return _not_merged(task, "land.in_the_way", commit=tip, files=_join_names(in_the_way))
        # The Boss may have committed in the meantime, so try again.
    return _not_merged(task, "land.failed", commit=tip, said=complaint)


async def abort_our_merge(git: GitRunner, entry: Path) -> None:
    """Abort a merge that a crashed process left; a worker's own merge is not touched."""
    ours = entry / _MERGE_MARKER
    if not await asyncio.to_thread(ours.exists):
        return
    if await asyncio.to_thread((entry / "MERGE_HEAD").exists):
        await git.output("merge", "--abort")
    await asyncio.to_thread(ours.unlink, missing_ok=True)


async def _merge_project_into_branch(
    git: GitRunner, entry: Path, task: Task, head: str
) -> list[str]:
    """Merge the Boss's commits into the task's branch; return conflicting files."""
    await asyncio.to_thread((entry / _MERGE_MARKER).touch)
    message = f"Bring {task.branch} together with the project"
    merged = await git.run(
        *await _identity(git),
        "merge",
        *("--quiet", "--ff", "--no-edit", "--no-verify", "-m", message, head),
    )
    conflicts: list[str] = []
    if not merged.succeeded:
        unmerged = await git.output(
            "diff", "--name-only", "--diff-filter=U", "-z", _NOT_INSIDE_SUBMODULES
        )
        conflicts = [*filter(None, unmerged.split("\0"))] or _files_in_refusal(merged.stderr)
    await abort_our_merge(git, entry)
    if not merged.succeeded and not conflicts:
        raise GitFailed(merged.error_line)
    return conflicts


async def _names_not_on_branch(git: GitRunner, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that don't exist on the branch."""
    known = [(await git.run("cat-file", "-e", f"HEAD:{name}")).succeeded for name in names]
    return tuple(name for name, there in zip(names, known, strict=True) if not there)


async def _unstage_repositories(git: GitRunner) -> None:
    """Unstage nested repositories, which git would add without their contents."""
    told = (await git.output("diff-index", "--cached", "-z", "--no-renames", "HEAD")).split("\0")
    added = [
        f":(top,literal){name}"
        for facts, name in zip(told[::2], told[1::2], strict=False)
        if facts.split()[1] == _SUBMODULE_MODE and facts.split()[0] != f":{_SUBMODULE_MODE}"
    ]
    if added:
        await git.output("reset", "--quiet", "--", *added)


async def _ignored_files(git: GitRunner) -> list[str]:
    """Return ignored files, with whole folders as one entry."""
    told = await git.run(
        "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"
    )
    names = [name.rstrip("/") for name in told.stdout.split("\0") if name]
    return [
        name
        for name in names
        if not {*PurePosixPath(name).parts} & {INTERNAL_FOLDER, *_CACHE_FOLDERS}
    ]


async def _uncommitted_files(git: GitRunner) -> list[str]:
    told = await git.output(
        *("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal"),
        _NOT_INSIDE_SUBMODULES,
    )
    names = [line[3:].rstrip("/") for line in told.split("\0") if line]
    for path in await _nested_repositories(git):
        folder = git.folder / path
        inside = git.in_folder(folder, GIT_DIR=str(folder / ".git"), GIT_WORK_TREE=str(folder))
        try:
            names += [path] if await _uncommitted_files(inside) else []
        except GitFailed:
            names.append(path)
    return [*dict.fromkeys(names)]


async def _nested_repositories(git: GitRunner) -> list[str]:
    """Return the references to other repositories that have one in their folder. A worker may have
    made it, so only git started for it, without its programs, may look into it."""
    told = await git.output("ls-files", "--stage", "-z")
    rows = (row.partition("\t") for row in told.split("\0"))
    paths = dict.fromkeys(path for facts, _, path in rows if facts.startswith(_SUBMODULE_MODE))

    def there() -> list[str]:
        return [path for path in paths if os.path.lexists(git.folder / path / ".git")]

    return await asyncio.to_thread(there)


async def _contains_commit(git: GitRunner, whole: str, part: str) -> bool:
    return (await git.run("merge-base", "--is-ancestor", part, whole)).succeeded


async def _identity(git: GitRunner) -> tuple[str, ...]:
    """Use the Boss's configured name, else Shiftboss."""
    given: list[str] = []
    for key, ours in (("user.name", "Shiftboss"), ("user.email", "shiftboss@localhost")):
        if not (await git.run("config", key)).stdout.strip():
            given += ["-c", f"{key}={ours}"]
    return tuple(given)


def _not_merged(task: Task, why: str, *, commit: str = "", **facts: str) -> MergeOutcome:
    facts |= {"branch": task.branch}
    return MergeOutcome(commit=commit, merged=False, reason_key=why, facts=facts)


def _files_in_refusal(said: str) -> list[str]:
    """Parse the file names in a git error, one per line after a tab."""
    return [line.strip() for line in said.splitlines() if line.startswith("\t")]


def _join_names(names: list[str]) -> str:
    more = [] if len(names) <= _MAX_NAMES else ["…"]
    return ", ".join(names[:_MAX_NAMES] + more)
