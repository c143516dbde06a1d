"""What a command says that moved a task."""

from __future__ import annotations

from cards.plain import task_data
from cards.views.work.task_lists import moved_card
from handlers.request import Reply, Request
from storage.records.tasks import Task


async def moved(request: Request, task: Task, text: str) -> Reply:
    """What became of a task, in words, and the task as it is now."""
    view = await request.services.tasks.view(task.id)
    data = {"told": text, **task_data(view.task)}
    return Reply(card=moved_card(task, text, request.words), data=data)
