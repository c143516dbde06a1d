"""Notifies chats of task events: live task cards, notices of their end, and queue positions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias
from zoneinfo import ZoneInfo

from bot.engine.agent.conversation.turn_taking import CardPoster
from bot.engine.workflow.live_progress import LiveProgress
from bot.engine.workflow.presentation.task_view import TaskViewLoader
from cards.catalog import catalog_for
from cards.courier import Courier
from cards.views.task_card import (
    CARD_ONLY,
    MAX_COUNTED_AHEAD,
    ResultDelivery,
    full_report,
    result_files,
    task_card,
    task_ended_card,
)
from storage.data_directory import write_draft
from storage.db import STORE_RETRY_SECONDS, Database, Transaction
from storage.errors import StoreUnavailable
from storage.home_files import NotLate
from storage.key_value import KeyValueStore
from storage.records.messages import DeliveryUrgency
from storage.records.people import Language
from storage.records.tasks import (
    EventKind,
    ResultForm,
    Task,
    TaskEvent,
    TaskId,
    TaskStatus,
    TaskView,
)
from storage.shared_files import FileShareError, OneFolder, SharedFiles
from storage.task_queue import TaskQueue
from storage.tasks import TaskEventRepo

_KEY = "queue.told"
_MAX_PERSISTED = 4 * MAX_COUNTED_AHEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuePosition:
    """Position on a waiting task's card: tasks ahead, and the task holding its directory."""

    ahead: int
    holder: TaskId | None


_UNKNOWN_POSITION = _QueuePosition(ahead=-1, holder=None)


class QueuePositionTracker:
    """Tracks the queue positions shown on cards. Only the first tasks have a counted position; the
    others share a text that stays true. Tasks with a counted position are persisted before their
    cards are sent, so that outdated cards are found after a crash."""

    def __init__(self, *, queue: TaskQueue, key_values: KeyValueStore) -> None:
        self._queue = queue
        self._key_values = key_values
        self._shown: dict[TaskId, _QueuePosition] = {}
        self._persisted: frozenset[TaskId] | None = None

    async def load(self) -> None:
        """Must be called first; after a start or error, all shown positions count as unknown."""
        if self._persisted is None:
            self._persisted = frozenset(map(TaskId, await self._key_values.get(_KEY) or ()))
            self._shown = dict.fromkeys(self._persisted, _UNKNOWN_POSITION) | self._shown

    def invalidate(self) -> None:
        """Treat all shown positions as unknown."""
        self._persisted = None
        self._shown = dict.fromkeys(self._shown, _UNKNOWN_POSITION)

    def mark_shown(self, view: TaskView) -> None:
        task = view.task
        self._shown.pop(task.id, None)
        queued = task.status is TaskStatus.PENDING and not task.outside
        if queued and view.tasks_ahead <= MAX_COUNTED_AHEAD:
            holder = view.directory_holder.id if view.directory_holder else None
            self._shown[task.id] = _QueuePosition(ahead=view.tasks_ahead, holder=holder)

    async def list_outdated(self) -> Sequence[TaskId]:
        """Tasks whose cards are outdated. They count as updated: call `invalidate` if the update
        fails."""
        now, told = await self._current_positions(), self._shown
        moved = [each for each in {**told, **now} if told.get(each) != now.get(each)]
        await self._persist({*told, *now})
        self._shown = dict(now)
        return moved

    async def persist(self) -> None:
        """Persist which cards show a position."""
        await self._persist(set(self._shown))

    async def _persist(self, tasks: set[TaskId]) -> None:
        kept = self._persisted or frozenset()
        if not tasks <= kept or len(kept) > max(_MAX_PERSISTED, len(tasks)):
            await self._key_values.put(_KEY, sorted(tasks))
            self._persisted = frozenset(tasks)

    async def _current_positions(self) -> Mapping[TaskId, _QueuePosition]:
        places = {}
        for ahead, task in enumerate(await self._queue.list_first(MAX_COUNTED_AHEAD + 1)):
            holder = await self._queue.find_directory_holder(task)
            places[task.id] = _QueuePosition(ahead=ahead, holder=holder.id if holder else None)
        return places


log = logging.getLogger(__name__)

_BATCH = 200
_DRAIN_SECONDS = 3.0
# The queue may change many times a second; its cards update at most this often.
_POSITION_INTERVAL = 1.0
_STATUS_EVENTS = frozenset(
    {
        EventKind.CREATED,
        EventKind.STARTED,
        EventKind.PAUSED,
        EventKind.RESUMED,
        EventKind.WAITING,
        EventKind.RECOVERED,
    }
)


class TaskCardPoster(Courier, CardPoster, Protocol):
    async def find_message(self, tx: Transaction, key: str) -> str: ...


_PostCards: TypeAlias = Callable[[Transaction], Awaitable[None]]


class TaskNotifier:
    """Sends cards for task events that were not notified yet, and passes the events to
    `on_events`. `positions` finds cards that events of other tasks have made outdated.
    `result_form` may be changed at any time. `account_of` returns the account of who ordered a task
    in its chat's channel, and `mask` hides secrets in files that are made here.

    A task's cards are stored in the transaction that marks its events, so that no crash repeats
    them. Of several endings only the last one is told, and only while it is true.
    """

    name = "task notifier"

    def __init__(
        self,
        *,
        db: Database,
        journal: TaskEventRepo,
        views: TaskViewLoader,
        courier: TaskCardPoster,
        language_of: Callable[[Task], Awaitable[Language]],
        home: Path,
        zone: ZoneInfo,
        now: Callable[[], datetime],
        positions: QueuePositionTracker,
        on_events: Callable[[Task, Sequence[TaskEvent]], Awaitable[None]],
        result_form: ResultForm,
        account_of: Callable[[Task], Awaitable[str]],
        mask: Callable[[str], str],
        files: SharedFiles | None = None,
    ) -> None:
        self.result_form = result_form
        self._files = files or OneFolder()
        self._account_of = account_of
        self._mask = mask
        self._db = db
        self._journal = journal
        self._views = views
        self._courier = courier
        self._language_of = language_of
        self._home = home
        self._zone = zone
        self._now = now
        self._positions = positions
        self._on_events = on_events
        self._changed = asyncio.Event()
        self._positions_changed = asyncio.Event()
        self._lock = asyncio.Lock()

    async def start(self, stack: AsyncExitStack) -> None:
        self.wake()

    def wake(self) -> None:
        """Call it after a commit that wrote events."""
        self._changed.set()
        self._positions_changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run_notifications(), name="news of tasks")
            group.create_task(self._run_position_refresh(), name="places in the queue")

    async def drain(self) -> None:
        """Send pending notifications before shutdown."""
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await self.notify_batch():
                    pass
                await self.refresh_positions()
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("not all notifications were sent before the stop: %s", error)

    async def _run_notifications(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                while await self.notify_batch():
                    pass
            except StoreUnavailable as error:
                log.warning("notifications cannot be sent now: %s", error)
                await asyncio.sleep(STORE_RETRY_SECONDS)
                self.wake()

    async def _run_position_refresh(self) -> None:
        while True:
            await self._positions_changed.wait()
            self._positions_changed.clear()
            try:
                await self.refresh_positions()
            except StoreUnavailable as error:
                log.warning("queue positions cannot be updated now: %s", error)
                self._positions_changed.set()
            await asyncio.sleep(_POSITION_INTERVAL)

    async def notify_batch(self) -> bool:
        """False if nothing was pending."""
        async with self._lock:
            return await self._notify_batch()

    async def refresh_card(self, task_id: TaskId) -> None:
        """Redraw the task's card without an event."""
        async with self._lock:
            await self._redraw(task_id)

    async def refresh_positions(self) -> None:
        """Redraw cards that show an outdated queue position."""
        async with self._lock:
            await self._positions.load()
            try:
                for task_id in await self._positions.list_outdated():
                    await self._redraw(task_id)
            except BaseException:
                self._positions.invalidate()
                raise

    async def _notify_batch(self) -> bool:
        await self._positions.load()
        events = await self._journal.list_unnotified(_BATCH)
        for task_id in dict.fromkeys(event.task_id for event in events):
            await self._notify_of_task(task_id)
        return bool(events)

    async def _notify_of_task(self, task_id: TaskId) -> None:
        # Read before the view, which then is not older than any of them.
        events = await self._journal.list_unnotified_of(task_id)
        if not events:
            return
        post = await self._prepare_or_skip(task_id, events)
        ending = any(event.kind.is_ending for event in events)
        # If a file that was late is there meanwhile, the next round shows it.
        with suppress(NotLate):
            async with self._db.write() as tx:
                if ending and not await self._journal.is_newest(tx, events[-1]):
                    return  # the next round sees what has happened since
                if post is not None:
                    await post(tx)
                await self._journal.mark_notified(tx, events, now=self._now())
        self._courier.wake()

    async def _redraw(self, task_id: TaskId) -> None:
        newest = await self._journal.newest_id(task_id)
        post = await self._prepare_or_skip(task_id, ())
        if post is not None:
            async with self._db.write() as tx:
                # Another process may have shown a later state meanwhile, which must stay.
                if await self._journal.newest_id(task_id, tx=tx) == newest:
                    await post(tx)
            self._courier.wake()

    async def _prepare_or_skip(
        self, task_id: TaskId, events: Sequence[TaskEvent]
    ) -> _PostCards | None:
        try:
            return await self._prepare_cards(await self._views.view(task_id), events)
        except StoreUnavailable:
            raise
        except Exception:
            # Error boundary: a task whose cards fail is skipped rather than retried forever.
            log.exception("task %s cannot be shown", task_id)
            return None

    async def _prepare_cards(self, view: TaskView, events: Sequence[TaskEvent]) -> _PostCards:
        """Draw what these events lead to; the result posts it in a transaction."""
        words = catalog_for(await self._language_of(view.task))
        await self._on_events(view.task, events)
        if any(each.kind.is_ending for each in events):
            # Its schedule may have planned to try it again.
            view = await self._views.view(view.task.id)
        task, late = view.task, list[str]()
        live = task_card(view, words, now=self._now(), zone=self._zone)
        cards = [(f"task:{task.id}", _card_urgency(task, events), live)]
        endings = [
            each for each in events if each.kind.is_ending and each.kind == task.status.value
        ]
        if endings:
            ending = endings[-1]
            delivery = await self._result_delivery(task)
            paths = tuple(filter(None, (delivery.report, *result_files(view.steps))))
            sizes = await self._file_sizes(paths)
            late += await self._files.list_late([each for each in paths if each not in sizes])
            told = task_ended_card(
                view,
                words,
                now=ending.at,
                zone=self._zone,
                sizes=sizes,
                delivery=replace(delivery, late=tuple(late)),
            )
            cards.append((f"task:{task.id}:end:{ending.id}", DeliveryUrgency.ANSWER, told))
        ready = [(key, urgency, await self._courier.prepare(card)) for key, urgency, card in cards]
        self._positions.mark_shown(view)
        await self._positions.persist()

        async def post(tx: Transaction) -> None:
            if late:
                await self._files.mark_told(tx, late)
            # The notice of the end leads to the card, where that has been shown.
            shown = await self._courier.find_message(tx, f"task:{task.id}") if endings else ""
            for key, urgency, card in ready:
                reply_to = task.reply_to if key == f"task:{task.id}" else shown or task.reply_to
                await self._courier.post(
                    tx, task.chat_id, card, key=key, urgency=urgency, reply_to=reply_to
                )

        return post

    async def _result_delivery(self, task: Task) -> ResultDelivery:
        """The file with a long result is written before the card that has it is stored."""
        if self.result_form is ResultForm.CARD or task.status is not TaskStatus.COMPLETED:
            return CARD_ONLY
        as_documents = self.result_form is ResultForm.DOCUMENT
        owner = await self._account_of(task) if as_documents else ""
        report = full_report(task)
        path = f"files/tasks/{task.id}/result-{task.id}.md" if report else ""
        if path:
            try:
                text = f"# {task.title}\n\n{report}\n" if not as_documents else report
                await asyncio.to_thread(self._write_report, path, self._mask(text))
            except OSError as error:
                log.warning("the result of task %s cannot be written: %s", task.id, error)
                path = ""
            else:
                await self._files.publish_or_later(path, task.id)
        return ResultDelivery(report=path, as_documents=as_documents, owner=owner)

    def _write_report(self, path: str, text: str) -> None:
        target = self._home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_draft(target, text.encode()) as draft:
            draft.replace(target)

    async def _file_sizes(self, paths: Sequence[str]) -> Mapping[str, int]:
        """Of those that are here, or can be brought here."""
        for path in paths:
            try:
                await self._files.ensure(path)
            except FileShareError as error:
                log.warning("the size of %s is not known: %s", path, error)
        return await asyncio.to_thread(_sizes, self._home, paths)


def _sizes(home: Path, paths: Sequence[str]) -> Mapping[str, int]:
    found = ((path, home / path) for path in paths)
    return {path: file.stat().st_size for path, file in found if file.is_file()}


def _card_urgency(task: Task, events: Sequence[TaskEvent]) -> DeliveryUrgency:
    """A last state goes with the result, and another status before mere progress."""
    if task.status.is_final or task.status is TaskStatus.BLOCKED:
        return DeliveryUrgency.ANSWER
    changed = any(event.kind in _STATUS_EVENTS for event in events)
    return DeliveryUrgency.NOTICE if changed else DeliveryUrgency.PROGRESS


_REFRESH_INTERVAL = 1.0
_CLOCK_INTERVAL = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCardUpdater:
    """Redraws the cards of running tasks, at most once a second each, and at least each 15 seconds
    for their clocks."""

    name = "live cards"

    progress: LiveProgress
    refresh_card: Callable[[TaskId], Awaitable[None]]
    sleep: Callable[[float], Awaitable[None]]

    async def start(self, stack: AsyncExitStack) -> None:
        pass

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._redraw_changed(), name="redraw live cards")
            tasks.create_task(self._tick(), name="tick live cards")

    async def _tick(self) -> None:
        while True:
            await self.sleep(_CLOCK_INTERVAL)
            self.progress.mark_running()

    async def _redraw_changed(self) -> None:
        while True:
            for task in await self.progress.wait_for_changes():
                try:
                    await self.refresh_card(task)
                except StoreUnavailable as error:
                    log.warning("the progress of task %s cannot be shown now: %s", task, error)
            await self.sleep(_REFRESH_INTERVAL)
