"""Access rules for tasks: who may see and who may control them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from storage.errors import NotFound
from storage.records.people import Chat, ChatId, ChatKind, Person, PersonRole
from storage.records.tasks import Task
from storage.tasks import TaskVisibility


@dataclass(frozen=True, slots=True)
class TaskAccess:
    chat_of: Callable[[ChatId], Awaitable[Chat]]

    async def visibility_for(self, by: Person, chat: ChatId) -> TaskVisibility:
        """In a group only the group's tasks are visible, whoever asks, since others read along."""
        if (await self.chat_of(chat)).kind is ChatKind.GROUP:
            return TaskVisibility(sees_all=False, person=None, chat=chat)
        return TaskVisibility(sees_all=by.role is PersonRole.OWNER, person=by.id, chat=chat)

    async def visibility_of(self, task: Task) -> TaskVisibility:
        """Visibility of everyone who may see this task."""
        group = (await self.chat_of(task.chat_id)).kind is ChatKind.GROUP
        return TaskVisibility(
            sees_all=False, person=None if group else task.created_by, chat=task.chat_id
        )

    async def require_control(self, task: Task, by: Person) -> None:
        """Owners, the task's creator and members of its chat may control it; raises NotFound for
        others."""
        if by.role is PersonRole.OWNER or task.created_by == by.id:
            return
        chat = await self.chat_of(task.chat_id)
        if chat.kind is not ChatKind.GROUP and chat.person_id != by.id:
            raise NotFound("task", task.id)
