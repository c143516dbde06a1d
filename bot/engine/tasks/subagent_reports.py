"""Delivers results of subagents to their parent task or chat, once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from bot.engine.agent.subagents.spawning import render_report, render_reports
from bot.engine.tasks.queue import requeue
from bot.engine.workers.spec import BackendPreference
from bot.engine.workflow.node_runs import ENDING_PATH, compensated_path
from bot.engine.workflow.task_store import TaskStore
from storage.db import Transaction
from storage.messages.inbox import InboxRepo
from storage.people import PeopleRepo
from storage.records.messages import ChatAddress, InboxRow, IncomingMessage, MessageSender
from storage.records.people import Chat, Language
from storage.records.tasks import (
    SUBAGENTS_RUNNING_REASON,
    EventKind,
    NodeStatus,
    SubagentStatus,
    Task,
    TaskId,
    TaskStatus,
)
from storage.records.workers import Subagent
from storage.tasks import SUBAGENT_COMMAND

log = logging.getLogger(__name__)

_MAX_LABEL = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentReportDelivery:
    """Implements `SubagentParents`. `on_change` is called after a delivery to a task, `on_report`
    with the stored report for a chat. `fixed_language` overrides all languages."""

    store: TaskStore
    people: PeopleRepo
    inbox: InboxRepo
    home: Path
    workspace_of: Callable[[Task], Awaitable[Path]]
    language_of: Callable[[Task], Awaitable[Language]]
    fixed_language: Language | None
    now: Callable[[], datetime]
    on_change: Callable[[], None]
    on_report: Callable[[InboxRow], None]

    async def workspace(self, helper: Subagent) -> Path:
        if helper.task_id is not None:
            return await self.workspace_of(await self.store.tasks.get(helper.task_id))
        return self.home / "workspaces" / f"chat-{helper.chat_id}"

    async def backend_preferences(self, helper: Subagent) -> Sequence[BackendPreference]:
        settings = (await self.people.get_chat(helper.chat_id)).settings
        if helper.task_id is None:
            return (settings,)
        return await self.store.tasks.get(helper.task_id), settings

    async def language(self, helper: Subagent) -> Language:
        if helper.task_id is not None:
            return await self.language_of(await self.store.tasks.get(helper.task_id))
        chat = await self.people.get_chat(helper.chat_id)
        person = await self.people.get(helper.person_id)
        spoken = chat.settings.language or person.language or chat.settings.client_language
        return self.fixed_language or spoken or Language.ENGLISH

    async def is_needed(self, helper: Subagent) -> bool:
        if helper.task_id is None:
            return True
        task = await self.store.tasks.get(helper.task_id)
        return not (task.status.is_final or await self._is_cut_off(helper, task.id))

    async def _is_cut_off(self, helper: Subagent, task_id: TaskId) -> bool:
        """Whether a join has ended the branch of its step, or the run ends and undoes its steps."""
        if helper.depth > 1:
            return False
        run = await self.store.graphs.find_run(task_id, helper.path)
        if run is not None and run.status is NodeStatus.CANCELLED:
            return True
        is_undoing = compensated_path(helper.path) is not None
        return not is_undoing and await self.store.graphs.find_run(task_id, ENDING_PATH) is not None

    async def lock(self, tx: Transaction, helper: Subagent) -> None:
        """Lock the task first, as all other writers do."""
        if helper.task_id is not None:
            await self.store.tasks.lock(tx, helper.task_id)

    async def deliver(self, tx: Transaction, helper: Subagent) -> Callable[[], None]:
        if helper.task_id is not None:
            await self._deliver_to_task(tx, helper, helper.task_id)
            return self.on_change
        if helper.depth > 1:
            return _do_nothing
        return await self._deliver_to_chat(tx, helper)

    async def deliver_overdue(self) -> bool:
        owed = await self.store.subagents.list_chats_owed_results()
        for each in owed:
            async with self.store.db.write() as tx:
                after = await self._deliver_to_chat(tx, each)
            after()
        return bool(owed) and bool(await self.store.subagents.list_chats_owed_results())

    async def _deliver_to_task(self, tx: Transaction, helper: Subagent, task_id: TaskId) -> None:
        """Deliver the report like a message and resume a task whose last subagent has ended. A
        nested subagent reports to its parent subagent."""
        task = await self.store.tasks.lock(tx, task_id)
        if await self._is_cut_off(helper, task_id):
            # No step is to take up what nobody needs.
            await self.store.subagents.mark_delivered(tx, (helper,), now=self.now())
        elif helper.depth == 1:
            said = {
                "said": render_report(helper),
                "label": helper.label,
                "helper": helper.id,
                "path": helper.path,
            }
            await self.store.events.record_command(
                tx,
                task_id,
                SUBAGENT_COMMAND,
                source=f"helper:{helper.id}",
                by=None,
                now=self.now(),
                payload=said,
            )
            await self.store.subagents.mark_delivered(tx, (helper,), now=self.now())
        waits = task.status is TaskStatus.WAITING and task.status_reason == SUBAGENTS_RUNNING_REASON
        if waits and not await self.store.subagents.count_unfinished(tx, task=task_id):
            await requeue(self.store, tx, task, now=self.now(), text=_summary_line(helper))
        else:
            await self.store.events.append_event(
                tx, task_id, EventKind.NOTE, now=self.now(), text=_summary_line(helper)
            )

    async def _deliver_to_chat(self, tx: Transaction, helper: Subagent) -> Callable[[], None]:
        """Deliver all reports as one message, once no subagent is running. If the chat waits for a
        tool approval they are delivered later, so that they do not replace the decision."""
        if await self.store.subagents.count_unfinished(tx, chat=helper.chat_id):
            return _do_nothing
        if await self.store.subagents.chat_awaits_approval(tx, helper.chat_id):
            return _do_nothing
        ended = await self.store.subagents.list_undelivered(tx, chat=helper.chat_id)
        if not ended:
            return _do_nothing  # delivered in the meantime, with another one's
        await self.store.subagents.mark_delivered(tx, ended, now=self.now())
        chat = await self.people.get_chat(helper.chat_id)
        account = await self.people.get_account_name(tx, helper.person_id, chat.channel)
        if not account:
            log.warning("the report of sub-agent %s has no recipient any more", helper.id)
            return _do_nothing
        arrived = _report_message(
            chat, account, render_reports([render_report(each) for each in ended]), self.now()
        )
        row = await self.inbox.accept(
            tx, arrived, dedupe=f"helper:{ended[0].id}", chat_id=chat.id, now=self.now()
        )
        return _do_nothing if row is None else partial(self.on_report, row)


def _report_message(chat: Chat, account: str, reports: str, now: datetime) -> IncomingMessage:
    place = ChatAddress(
        channel=chat.channel,
        chat=chat.external_id,
        kind=chat.kind,
        thread=chat.thread,
        title=chat.title,
    )
    return IncomingMessage(
        place=place,
        sender=MessageSender(external_id=account),
        message_id="",
        text="",
        addressed=True,
        sent_at=now,
        told=reports,
    )


def _summary_line(helper: Subagent) -> str:
    mark = "✅" if helper.status is SubagentStatus.DONE else "❌"
    return f"🤝 {mark} {helper.label[:_MAX_LABEL]}"


def _do_nothing() -> None: ...
