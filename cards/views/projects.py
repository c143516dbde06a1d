"""Renders project folders and which task one waits for."""

from __future__ import annotations

from pathlib import PurePath

from cards import formats
from cards.catalog import TextCatalog
from cards.model import Card, TextBlock, titled_card
from storage.records.tasks import Task, TaskStatus, TaskView

_MAX_TITLE = 60


def project_card(folder: str, words: TextCatalog, *, in_git: bool) -> Card:
    """The chat's folder; empty for none."""
    lines = [words("project.none")]
    if folder:
        kind = words("project.in_git" if in_git else "project.plain")
        lines = [words("project.here", folder=folder), kind, words("project.change")]
    text = TextBlock("\n\n".join(lines))
    return titled_card(words("project.title"), text)


def can_start_anyway(view: TaskView) -> bool:
    """True if the task waits for a folder with another task's unfinished work and may start anyway.
    Worktrees need no such permission."""
    task = view.task
    waits = task.status is TaskStatus.PENDING and view.directory_holder is not None
    return waits and not (task.let_in or task.branch)


def folder_status_text(view: TaskView, words: TextCatalog) -> str:
    """Which task it waits for in its folder, or that it shares the folder; else empty."""
    task, holder = view.task, view.directory_holder
    if task.status not in {TaskStatus.PENDING, TaskStatus.RUNNING}:
        return ""
    if task.let_in:
        return words("folder.let_in" if task.status is TaskStatus.PENDING else "folder.beside")
    if holder is None:
        return ""
    key = "folder.same_project" if task.branch else "folder.held"
    return words(key, title=_holder_name(holder, task, words))


def workspace_label(task: Task) -> str:
    """The folder's name and the branch as small print; empty for a task with its own folder."""
    if not task.project_dir:
        return ""
    parts = [f"📁 {formats.single_line(PurePath(task.project_dir).name, _MAX_TITLE)}"]
    if task.branch:
        parts.append(f"🌿 `{task.branch}`")
    return " · ".join(parts)


def _holder_name(holder: Task, task: Task, words: TextCatalog) -> str:
    """The holder's title, unless it belongs to another chat, whose tasks this chat's readers must
    not learn."""
    if holder.chat_id == task.chat_id:
        return formats.single_line(holder.title, _MAX_TITLE)
    return words("folder.another", id=holder.id)
