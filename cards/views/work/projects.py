"""Where tasks work, and whom they wait for there."""

from __future__ import annotations

from pathlib import PurePath

from cards import formats
from cards.model import Card, Text, Tone
from cards.words import Words
from storage.records.tasks import Task, TaskStatus, TaskView

_TITLE = 60


def project_card(folder: str, words: Words, *, in_git: bool) -> Card:
    """The chat's folder; empty for none."""
    title = words("project.title")
    lines = [words("project.none")]
    if folder:
        kind = words("project.in_git" if in_git else "project.plain")
        lines = [words("project.here", folder=folder), kind, words("project.change")]
    text = Text(markdown="\n\n".join(lines))
    return Card(title=title, tone=Tone.INFO, blocks=(text,), summary=title)


def may_let_in(view: TaskView) -> bool:
    """True where a task waits for a folder that it could be given although another has left work
    half done there. Worktrees need no such leave."""
    task = view.task
    waits = task.status is TaskStatus.PENDING and view.holder is not None
    return waits and not (task.let_in or task.branch)


def folder_story(view: TaskView, words: Words) -> str:
    """Whom it waits for in its folder, or that it works there beside another; else empty."""
    task, holder = view.task, view.holder
    if task.status not in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return ""
    if task.let_in:
        return words("folder.let_in" if task.status is TaskStatus.PENDING else "folder.beside")
    if holder is None:
        return ""
    key = "folder.same_project" if task.branch else "folder.held"
    return words(key, title=_named(holder, task, words))


def place(task: Task) -> str:
    """The folder's name and the branch, as small print; empty for a task with a folder of its
    own."""
    if not task.project_dir:
        return ""
    parts = [f"📁 {formats.line(PurePath(task.project_dir).name, _TITLE)}"]
    if task.branch:
        parts.append(f"🌿 `{task.branch}`")
    return " · ".join(parts)


def _named(holder: Task, task: Task, words: Words) -> str:
    """In another chat others read along, who are not told what this one's people do."""
    if holder.chat_id == task.chat_id:
        return formats.line(holder.title, _TITLE)
    return words("folder.another", id=holder.id)
