"""Runs the self-checks, repairs what is safe, and tells owners what has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.engine.agent.conversation.turn_taking import CardPoster
from bot.engine.autonomy.check import SelfCheck, repair_findings, run_check
from cards.catalog import TextCatalog, catalog_for
from cards.views.self_checks import incidents_card, repair_instruction, repair_title
from storage.db import Database, Transaction
from storage.records.autonomy import (
    CheckResult,
    HealthReport,
    Incident,
    IncidentNews,
    NewIncident,
    RepairOutcome,
)
from storage.records.messages import DeliveryUrgency
from storage.records.people import ChatId, Language, Person
from storage.records.schedules import Schedule
from storage.records.tasks import NewTask, Task, TaskPriority
from storage.self_checks import SelfCheckRepo

log = logging.getLogger(__name__)

SELF_CHECK = "self-check"
"""The name of its schedule."""
_BACK_WITHIN = timedelta(days=1)
_FLAPS_UNTIL = timedelta(hours=6)
"""A problem that comes and goes is over when it has stayed away for this long."""


@dataclass(kw_only=True, eq=False)
class SelfCheckService:
    """A service. Only between its start and its end are problems repaired, stored and told: without
    the running program there is nothing to repair, and much that looks like a problem.

    `seconds` limit each check. `owner_chats` are the private chats of the owners with their
    languages. While `is_quiet`, nothing is told: the first run after that tells what has changed.
    `create_task` creates a task in a transaction, `on_task` is called after its commit.
    """

    name = "self-check"

    checks: Sequence[SelfCheck]
    db: Database
    repo: SelfCheckRepo
    poster: CardPoster
    owner_chats: Callable[[], Awaitable[Sequence[tuple[ChatId, Language]]]]
    create_task: Callable[[Transaction, NewTask], Awaitable[Task]]
    on_task: Callable[[], None]
    is_quiet: Callable[[], bool]
    now: Callable[[], datetime]
    seconds: float = 60
    _is_running: bool = field(default=False, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        self._is_running = True
        stack.callback(setattr, self, "_is_running", False)

    async def run(self) -> None:
        """Does nothing: its schedule calls `check_on_schedule`."""
        await asyncio.Event().wait()

    async def check_on_schedule(self, _schedule: Schedule, _due_at: datetime) -> None:
        await self.check()

    async def check(self) -> HealthReport:
        """Run all checks. Callers that arrive meanwhile wait for the next run."""
        async with self._lock:
            results = [await run_check(each, seconds=self.seconds) for each in self.checks]
            if not self._is_running:
                return HealthReport(at=self.now(), results=results)
            repairs: list[RepairOutcome] = []
            for at, (check, result) in enumerate(zip(self.checks, results, strict=True)):
                results[at], helped = await repair_findings(check, result, seconds=self.seconds)
                repairs += helped
            report = HealthReport(at=self.now(), results=results, repairs=repairs)
            await self._record(report)
        self.poster.wake()
        return report

    async def list_reports(self, limit: int) -> Sequence[HealthReport]:
        """Stored runs, the newest first."""
        return await self.repo.list_runs(limit)

    async def list_open(self) -> Sequence[Incident]:
        return await self.repo.list_open()

    async def list_incidents(self, limit: int) -> Sequence[Incident]:
        return await self.repo.list_incidents(limit)

    async def start_repair(
        self, incident_id: int, *, by: Person, chat: ChatId, reply_to: str, words: TextCatalog
    ) -> tuple[Incident, Task | None]:
        """Create the task that the problem's card proposes; None if the problem is over. The first
        yes counts: later ones find its task. Raises NotFound."""
        async with self.db.write() as tx:
            incident = await self.repo.get(incident_id, tx=tx)
            offered = incident.finding.asks_task
            if not offered or (incident.ended_at is not None and incident.task_id is None):
                return incident, None
            new = NewTask(
                title=repair_title(incident, words),
                instruction=repair_instruction(incident, words),
                priority=TaskPriority.IMPORTANT,
                chat_id=chat,
                created_by=by.id,
                source=f"self-repair:{incident.id}",
                reply_to=reply_to,
            )
            task = await self.create_task(tx, new)
            await self.repo.update(tx, replace(incident, task_id=task.id))
        self.on_task()
        return replace(incident, task_id=task.id), task

    async def _record(self, report: HealthReport) -> None:
        """Store the run, its problems and their cards in one transaction: after a crash before it,
        the next run reports everything; after it, everything is reported."""
        owners = await self.owner_chats()
        async with self.db.write() as tx:
            run = await self.repo.add_run(tx, report)
            if self.is_quiet():
                return
            news = await self._update_incidents(tx, report)
            if not news and not report.repairs:
                return
            for chat, language in owners:
                card = incidents_card(news, report, catalog_for(language))
                await self.poster.post(
                    tx,
                    chat,
                    card,
                    key=f"self-check:{run}:{chat}",
                    urgency=DeliveryUrgency.NOTICE,
                )

    async def _update_incidents(
        self, tx: Transaction, report: HealthReport
    ) -> Sequence[tuple[IncidentNews, Incident]]:
        news: list[tuple[IncidentNews, Incident]] = []
        open_ = {each.key: each for each in await self.repo.list_open(tx)}
        found = {each.key: each for result in report.results for each in _told(result)}
        for key, new in found.items():
            known = open_.get(key)
            if known is not None:
                await self.repo.update(tx, replace(known, finding=new.finding, absent_since=None))
                continue
            news += await self._open(tx, new, report.at)
        unknown = {each.name for each in report.results if not each.is_complete}
        for key, incident in open_.items():
            if key not in found and incident.check_name not in unknown:
                news += await self._close(tx, incident, report.at)
        return news

    async def _open(
        self, tx: Transaction, new: NewIncident, now: datetime
    ) -> Sequence[tuple[IncidentNews, Incident]]:
        ended = await self.repo.find_ended(tx, new.key, since=now - _BACK_WITHIN)
        if ended is None:
            return [(IncidentNews.NEW, await self.repo.open(tx, new, now=now))]
        back = replace(
            ended,
            finding=new.finding,
            absent_since=None,
            ended_at=None,
            reopened=ended.reopened + 1,
        )
        await self.repo.update(tx, back)
        return [(IncidentNews.FLAPS if back.flaps else IncidentNews.BACK, back)]

    async def _close(
        self, tx: Transaction, incident: Incident, now: datetime
    ) -> Sequence[tuple[IncidentNews, Incident]]:
        """End a problem that has stayed away for some hours; one that comes and goes stays open."""
        since = incident.absent_since or now
        if incident.flaps and now - since < _FLAPS_UNTIL:
            await self.repo.update(tx, replace(incident, absent_since=since))
            return ()
        over = replace(incident, absent_since=since, ended_at=now)
        await self.repo.update(tx, over)
        return [(IncidentNews.RECOVERED, over)]


def _told(result: CheckResult) -> Sequence[NewIncident]:
    return [
        NewIncident(
            key=f"{result.name}:{each.text}:{each.subject}"[:220],
            check_name=result.name,
            finding=each,
        )
        for each in result.findings
        if each.is_told
    ]
