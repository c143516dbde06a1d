"""Who may see and who may move a task: one rule for everything that asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from storage.errors import NotFound
from storage.records.people import Chat, ChatId, ChatKind, Person, Role
from storage.records.tasks import Task
from storage.work.tasks import Sight


class Rights:
    def __init__(self, chat_of: Callable[[ChatId], Awaitable[Chat]]) -> None:
        self._chat_of = chat_of

    async def sight(self, by: Person, chat: ChatId) -> Sight:
        """In a group nothing is shown but the group's, whoever asks: others read along."""
        if (await self._chat_of(chat)).kind is ChatKind.GROUP:
            return Sight(everything=False, person=None, chat=chat)
        return Sight(everything=by.role is Role.OWNER, person=by.id, chat=chat)

    async def sight_of(self, task: Task) -> Sight:
        """What everybody who may see this task may see as well."""
        group = (await self._chat_of(task.chat_id)).kind is ChatKind.GROUP
        return Sight(everything=False, person=None if group else task.created_by, chat=task.chat_id)

    async def check(self, task: Task, by: Person) -> None:
        """Owners, the task's maker and the people of its chat may move it; NotFound for others."""
        if by.role is Role.OWNER or task.created_by == by.id:
            return
        chat = await self._chat_of(task.chat_id)
        if chat.kind is not ChatKind.GROUP and chat.person_id != by.id:
            raise NotFound("task", task.id)
