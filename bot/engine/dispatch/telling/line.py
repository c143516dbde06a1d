"""Which cards of waiting tasks tell a place in the queue that is not theirs any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cards.views.work.tasks import MOST_AHEAD
from storage.marks import Marks
from storage.records.tasks import TaskId, TaskStatus, TaskView
from storage.work.queue import TaskQueue

_MARK = "queue.told"
_MOST_KEPT = 4 * MOST_AHEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What a waiting task's card tells: how many go before it, and whom it waits for."""

    ahead: int
    holder: TaskId | None


_UNKNOWN = _Place(ahead=-1, holder=None)


class Line:
    """Only the first of the queue have a counted place on their cards; beyond them all say the
    same, which stays true. A mark holds every task whose card may count, written before the card
    is: so what a crash left wrong is found at the next start."""

    def __init__(self, *, queue: TaskQueue, marks: Marks) -> None:
        self._queue = queue
        self._marks = marks
        self._told: dict[TaskId, _Place] = {}
        self._kept: frozenset[TaskId] | None = None

    async def load(self) -> None:
        """Call it before anything else: after a start, or after trouble, it is not known what the
        cards say."""
        if self._kept is None:
            self._kept = frozenset(map(TaskId, await self._marks.get(_MARK) or ()))
            self._told = dict.fromkeys(self._kept, _UNKNOWN) | self._told

    def forget(self) -> None:
        """What was to be told may not have been."""
        self._kept = None
        self._told = dict.fromkeys(self._told, _UNKNOWN)

    def told(self, view: TaskView) -> None:
        """This is on its card now."""
        task = view.task
        self._told.pop(task.id, None)
        queued = task.status is TaskStatus.PENDING and not task.outside
        if queued and view.ahead <= MOST_AHEAD:
            holder = view.holder.id if view.holder else None
            self._told[task.id] = _Place(ahead=view.ahead, holder=holder)

    async def outdated(self) -> Sequence[TaskId]:
        """Whose card has to be drawn again. They count as told: `forget` if that fails."""
        now, told = await self._places(), self._told
        moved = [each for each in {**told, **now} if told.get(each) != now.get(each)]
        await self._keep({*told, *now})
        self._told = dict(now)
        return moved

    async def keep(self) -> None:
        """Remember past a crash which cards count."""
        await self._keep(set(self._told))

    async def _keep(self, tasks: set[TaskId]) -> None:
        kept = self._kept or frozenset()
        if not tasks <= kept or len(kept) > max(_MOST_KEPT, len(tasks)):
            await self._marks.put(_MARK, sorted(tasks))
            self._kept = frozenset(tasks)

    async def _places(self) -> Mapping[TaskId, _Place]:
        places = {}
        for ahead, task in enumerate(await self._queue.first(MOST_AHEAD + 1)):
            holder = await self._queue.holder(task)
            places[task.id] = _Place(ahead=ahead, holder=holder.id if holder else None)
        return places
