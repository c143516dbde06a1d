"""Results of helpers reach the task or the chat that sent them off, once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bot.engine.agent.helpers.reports import report, told
from bot.engine.agent.team import Choice
from bot.engine.dispatch.requeue import requeue
from bot.engine.workflow.store import WorkStore
from storage.db import Transaction
from storage.mail.inbox import Inbox
from storage.people import People
from storage.records.helpers import Helper
from storage.records.helping import HELPERS_WORK, HelperStatus
from storage.records.messages import InboxRow, MessageIn, Place, Sender
from storage.records.people import Chat, Language
from storage.records.tasks import EventKind, Task, TaskId, TaskStatus
from storage.work.journal import HELPER

log = logging.getLogger(__name__)

_LONGEST_LINE = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Helped:
    """Satisfies `agent.helpers.parents.Parents`. `on_change` is called where a task was told,
    and `post` with what has arrived for a chat's worker, once it is stored; `fixed` is the
    language that everybody is spoken to in, if there is one."""

    store: WorkStore
    people: People
    inbox: Inbox
    home: Path
    workspace_of: Callable[[Task], Awaitable[Path]]
    language_of: Callable[[Task], Awaitable[Language]]
    fixed: Language | None
    now: Callable[[], datetime]
    on_change: Callable[[], None]
    post: list[Callable[[InboxRow], None]] = field(default_factory=list)

    async def workspace(self, helper: Helper) -> Path:
        if helper.task_id is not None:
            return await self.workspace_of(await self.store.tasks.get(helper.task_id))
        return self.home / "workspaces" / f"chat-{helper.chat_id}"

    async def choices(self, helper: Helper) -> Sequence[Choice]:
        settings = (await self.people.chat(helper.chat_id)).settings
        if helper.task_id is None:
            return (settings,)
        return await self.store.tasks.get(helper.task_id), settings

    async def language(self, helper: Helper) -> Language:
        if helper.task_id is not None:
            return await self.language_of(await self.store.tasks.get(helper.task_id))
        chat = await self.people.chat(helper.chat_id)
        person = await self.people.get(helper.person_id)
        spoken = chat.settings.language or person.language
        return self.fixed or spoken or Language.ENGLISH

    async def wants(self, helper: Helper) -> bool:
        if helper.task_id is None:
            return True
        return not (await self.store.tasks.get(helper.task_id)).status.is_final

    async def hold(self, tx: Transaction, helper: Helper) -> None:
        """The task is locked first, as by all that move it."""
        if helper.task_id is not None:
            await self.store.tasks.lock(tx, helper.task_id)

    async def deliver(self, tx: Transaction, helper: Helper) -> Callable[[], None]:
        if helper.task_id is not None:
            await self._to_task(tx, helper, helper.task_id)
            return self.on_change
        if helper.depth > 1:
            return _nothing
        return await self._to_chat(tx, helper)

    async def catch_up(self) -> bool:
        owed = await self.store.helpers.owed()
        for each in owed:
            async with self.store.db.write() as tx:
                after = await self._to_chat(tx, each)
            after()
        return bool(owed) and bool(await self.store.helpers.owed())

    async def _to_task(self, tx: Transaction, helper: Helper, task_id: TaskId) -> None:
        """It is said to the task's worker as people's words are; who waited for the last of them
        goes on. A helper of a helper reports to that one."""
        task = await self.store.tasks.lock(tx, task_id)
        if helper.depth == 1:
            said = {
                "said": report(helper),
                "label": helper.label,
                "helper": helper.id,
                "path": helper.path,
            }
            await self.store.journal.order(
                tx,
                task_id,
                HELPER,
                source=f"helper:{helper.id}",
                by=None,
                now=self.now(),
                payload=said,
            )
            await self.store.helpers.deliver(tx, (helper,), now=self.now())
        waits = task.status is TaskStatus.WAITING and task.status_reason == HELPERS_WORK
        if waits and not await self.store.helpers.count_open(tx, task=task_id):
            await requeue(self.store, tx, task, now=self.now(), told=_line(helper))
        else:
            await self.store.journal.append(
                tx, task_id, EventKind.NOTE, now=self.now(), text=_line(helper)
            )

    async def _to_chat(self, tx: Transaction, helper: Helper) -> Callable[[], None]:
        """All that have ended, once none is at work: their reports arrive like a message, and are
        answered like one. Where the talk has stopped at a call of a tool they come later: they
        must not take the place of the decision it waits for."""
        if await self.store.helpers.count_open(tx, chat=helper.chat_id):
            return _nothing
        if await self.store.helpers.awaits_leave(tx, helper.chat_id):
            return _nothing
        ended = await self.store.helpers.undelivered(tx, chat=helper.chat_id)
        await self.store.helpers.deliver(tx, ended, now=self.now())
        chat = await self.people.chat(helper.chat_id)
        account = await self.people.account(tx, helper.person_id, chat.channel)
        if not account:
            log.warning("nobody is there any more for the report of helper %s", helper.id)
            return _nothing
        arrived = _arrived(chat, account, told([report(each) for each in ended]), self.now())
        row = await self.inbox.accept(
            tx, arrived, dedupe=f"helper:{helper.id}", chat_id=chat.id, now=self.now()
        )

        def posted() -> None:
            for post in self.post:
                if row is not None:
                    post(row)

        return posted


def _arrived(chat: Chat, account: str, reports: str, now: datetime) -> MessageIn:
    place = Place(
        channel=chat.channel,
        chat=chat.external_id,
        kind=chat.kind,
        thread=chat.thread,
        title=chat.title,
    )
    return MessageIn(
        place=place,
        sender=Sender(external_id=account),
        message_id="",
        text="",
        addressed=True,
        sent_at=now,
        told=reports,
    )


def _line(helper: Helper) -> str:
    mark = "✅" if helper.status is HelperStatus.DONE else "❌"
    return f"🤝 {mark} {helper.label[:_LONGEST_LINE]}"


def _nothing() -> None:
    """Nobody is to be told now."""
