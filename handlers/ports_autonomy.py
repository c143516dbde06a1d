"""Defines the ports of heartbeat, self-check, drive, reports and evolution."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from cards.catalog import TextCatalog
from storage.records.drive import DriveStatus, GoalName
from storage.records.evolution import CycleReport, EvolutionAnalysis, PromptInfo
from storage.records.heartbeat import HeartbeatRun, HeartbeatStatus
from storage.records.people import ChatId, Language, Person
from storage.records.prompt_versions import PromptVersion, SignalRecord
from storage.records.reports import ReportPeriod, ReportPictures, WorkReport
from storage.records.schedules import CronTiming, Schedule
from storage.records.self_checks import HealthReport, Incident
from storage.records.tasks import Task


class HeartbeatPort(Protocol):
    """Callers must be owners in private. Refusals are UserErrors."""

    async def status(self) -> HeartbeatStatus: ...

    async def switch(self, *, on: bool) -> HeartbeatStatus:
        """Raises UserError if a setting has switched it off."""

    async def run_now(self, *, at: datetime) -> bool:
        """Run once, whatever the hour; False if a run is in progress, after which another follows.
        `at` is when it was asked for, and the same whenever the request is repeated."""

    async def add(self, text: str) -> HeartbeatStatus:
        """Add an open line to HEARTBEAT.md. Raises UserError if the file cannot be changed."""

    async def log(self, limit: int) -> Sequence[HeartbeatRun]:
        """The newest runs first."""


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


class PromptVersionPort(Protocol):
    """Names are those of personas. Implementations must check in every change that `by` is an
    owner, and raise NotAllowed otherwise."""

    async def list_prompts(self) -> Sequence[PromptInfo]:
        """All prompts that may have versions, those that have some first."""

    async def find_prompt(self, name: str) -> PromptInfo | None: ...

    async def roll_back(self, name: str, *, by: Person) -> PromptVersion | None:
        """End the trial, or else return from the active version to the one before. Takes effect at
        once. Returns the version that is no longer used, None if there is none."""

    async def run_cycle(self, *, by: Person) -> CycleReport:
        """Look for signals and settle trials now. May call a model."""

    async def analyze(self) -> EvolutionAnalysis:
        """The latest tasks in figures; calls no model."""

    async def list_signals(self, limit: int) -> Sequence[SignalRecord]:
        """Those that fired last, newest first."""
