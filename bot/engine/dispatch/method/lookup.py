"""What is known already: logs, what to do now, and where to go on."""

from __future__ import annotations

from collections.abc import Sequence

from bot.engine.dispatch.method.keywords import keywords
from bot.engine.dispatch.method.ledger import Ledger
from storage.records.logs import LogEntry, LogKind
from storage.records.notebook import Agenda, Found, LogPage, Recap
from storage.records.people import ChatId, Person
from storage.records.tasks import Task, TaskStatus
from storage.work.tasks import Sight

_TO_DO = (TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.PENDING)
_HELD = (TaskStatus.WAITING, TaskStatus.BLOCKED)
_TO_TAKE_UP = (
    TaskStatus.PAUSED,
    TaskStatus.RUNNING,
    TaskStatus.BLOCKED,
    TaskStatus.PENDING,
    TaskStatus.WAITING,
)
_QUEUE = 5
_RECAPPED = 5
_RECALLED = 5
_SEARCHED = 3


class Lookup(Ledger):
    async def logs(self, task: Task, kind: LogKind | None, limit: int) -> LogPage:
        kinds = () if kind is None else (kind,)
        entries = await self._store.logs.latest(task.id, limit, kinds=kinds)
        return LogPage(
            task=task,
            entries=tuple(entries),
            total=await self._store.logs.count(task.id, kind),
            sizes=await self._tools.clippings.sizes([entry.file for entry in entries]),
        )

    async def search_logs(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Found]:
        return await self._store.logs.with_all(await self._sight(by, chat), words, limit)

    async def search_tasks(
        self, words: Sequence[str], *, by: Person, chat: ChatId, limit: int
    ) -> Sequence[Task]:
        return await self._store.logs.tasks_with(await self._sight(by, chat), words, limit)

    async def agenda(self, *, by: Person, chat: ChatId, outside: bool | None = None) -> Agenda:
        sight = await self._sight(by, chat)
        to_do = await self._store.logs.to_do(sight, _TO_DO, _QUEUE + 1, outside=outside)
        running = await self._store.logs.to_do(
            sight, (TaskStatus.RUNNING,), _QUEUE + 1, outside=outside
        )
        held = await self._store.logs.to_do(sight, _HELD, _QUEUE, outside=outside)
        first = to_do[0] if to_do else None
        going_on = first is not None and first.status is TaskStatus.RUNNING
        return Agenda(
            first=first,
            current=running[0] if running and not going_on else None,
            queue=tuple(to_do[1:]),
            held=tuple(held),
        )

    async def recap(self, *, by: Person, chat: ChatId) -> Recap | None:
        sight = await self._sight(by, chat)
        for status in _TO_TAKE_UP:
            for task in await self._store.logs.to_do(sight, (status,), 1):
                return await self._recap(task)
        return None

    async def recall(self, task: Task) -> Sequence[Found]:
        words = keywords(task.instruction)[:_SEARCHED]
        sight = await self._tools.rights.sight_of(task)
        return await self._store.logs.with_any(sight, words, _RECALLED, besides=task.id)

    async def _recap(self, task: Task) -> Recap:
        view = await self._tools.views.view(task.id)
        plans = await self._latest(task, 1, LogKind.PLAN)
        return Recap(
            view=view,
            plan=plans[0].text if plans else view.plan,
            learned=await self._latest(task, _RECAPPED, LogKind.FINDING, LogKind.DECISION),
            done=await self._latest(task, _RECAPPED, LogKind.MILESTONE, LogKind.PROGRESS),
            recalled=tuple(await self.recall(task)),
        )

    async def _latest(self, task: Task, limit: int, *kinds: LogKind) -> tuple[LogEntry, ...]:
        return tuple(await self._store.logs.latest(task.id, limit, kinds=kinds))

    async def _sight(self, by: Person, chat: ChatId) -> Sight:
        return await self._tools.rights.sight(by, chat)
