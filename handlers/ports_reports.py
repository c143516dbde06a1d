"""Defines the port of reports on past work."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from storage.records.people import ChatId, Language, Person
from storage.records.reports import ReportPeriod, ReportPictures, WorkReport
from storage.records.schedules import CronTiming, Schedule


class ReportPort(Protocol):
    """Implementations must check what `by` may see: owners all, members their own work; in a group
    only the group's, whoever asks."""

    async def report(
        self, period: ReportPeriod, *, by: Person, chat: ChatId, until: datetime
    ) -> WorkReport: ...

    async def draw(self, report: WorkReport, language: Language) -> ReportPictures:
        """Store pictures of the report. Never raises for a full disk."""
        ...

    async def schedule(
        self, period: ReportPeriod, timing: CronTiming, *, title: str, by: Person, chat: ChatId
    ) -> Schedule:
        """Send this report of `by` to the chat at these times, instead of at earlier ones."""
        ...

    async def stop(self, *, by: Person, chat: ChatId) -> Sequence[Schedule]:
        """End the scheduled reports of `by` in this chat; returns those that were on."""
        ...
