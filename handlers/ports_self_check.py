"""Ports of the self-check and of drive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cards.catalog import TextCatalog
from storage.records.drive import DriveStatus, GoalName
from storage.records.people import ChatId, Person
from storage.records.self_checks import HealthReport, Incident
from storage.records.tasks import Task


class SelfCheckPort(Protocol):
    """Callers check that an owner asks."""

    async def check(self) -> HealthReport:
        """Run all checks now. A running program repairs, stores and tells what it finds too."""

    async def list_reports(self, limit: int) -> Sequence[HealthReport]:
        """Stored runs, the newest first."""

    async def list_open(self) -> Sequence[Incident]:
        """Problems that last."""

    async def list_incidents(self, limit: int) -> Sequence[Incident]:
        """The newest first."""

    async def start_repair(
        self, incident_id: int, *, by: Person, chat: ChatId, reply_to: str, words: TextCatalog
    ) -> tuple[Incident, Task | None]:
        """Create the task that a problem's card proposes, once; None if the problem is over. Raises
        NotFound."""


class DrivePort(Protocol):
    """Callers check that an owner asks. A goal that this version lacks is not changed."""

    async def get_status(self) -> DriveStatus: ...

    async def start(self) -> DriveStatus: ...

    async def stop(self) -> DriveStatus:
        """Until it is started again, or the program is."""

    async def enable(self, name: GoalName) -> DriveStatus: ...

    async def disable(self, name: GoalName) -> DriveStatus:
        """Until it is enabled again."""
