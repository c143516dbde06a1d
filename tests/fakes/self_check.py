"""Fakes of the self-check, doctor and drive: remember what they were asked, and check nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from cards.catalog import TextCatalog
from storage.errors import NotFound
from storage.records.autonomy import (
    CheckResult,
    DriveStatus,
    GoalName,
    GoalState,
    GoalStatus,
    HealthFinding,
    HealthReport,
    Incident,
)
from storage.records.people import Channel, ChatId, Person
from storage.records.system import SettingList, SettingsReading
from storage.records.tasks import Task, TaskId
from storage.records.usage import SpendingCap
from tests.builders import NOW, make_task

LOW_DISK = HealthFinding(
    text="disk_low",
    points=15,
    facts={"free_bytes": 1_000_000, "kind_key": "store.disk.database", "size_bytes": 2_000_000},
    asks_task=True,
)


def make_incident(**changes: Any) -> Incident:
    """The disk is low, since now."""
    made = Incident(
        id=1,
        key="disk:disk_low:",
        check_name="disk",
        finding=LOW_DISK,
        opened_at=NOW,
        absent_since=None,
        ended_at=None,
        reopened=0,
        task_id=None,
    )
    return replace(made, **changes)


def make_health_report(*findings: HealthFinding) -> HealthReport:
    """Of one check."""
    return HealthReport(at=NOW, results=(CheckResult(name="disk", findings=findings),))


@dataclass
class FakeSelfCheck:
    report: HealthReport = field(default_factory=lambda: make_health_report(LOW_DISK))
    incidents: dict[int, Incident] = field(default_factory=lambda: {1: make_incident()})
    checks: int = 0
    tasks: list[TaskId] = field(default_factory=list)

    async def check(self) -> HealthReport:
        self.checks += 1
        return self.report

    async def list_reports(self, limit: int) -> Sequence[HealthReport]:
        return [self.report][:limit]

    async def list_open(self) -> Sequence[Incident]:
        return [each for each in self.incidents.values() if each.ended_at is None]

    async def list_incidents(self, limit: int) -> Sequence[Incident]:
        return [*self.incidents.values()][:limit]

    async def start_repair(
        self, incident_id: int, *, by: Person, chat: ChatId, reply_to: str, words: TextCatalog
    ) -> tuple[Incident, Task | None]:
        incident = self.incidents.get(incident_id)
        if incident is None:
            raise NotFound("incident", str(incident_id))
        if incident.ended_at is not None:
            return incident, None
        task = make_task("r3pair")
        if task.id not in self.tasks:
            self.tasks.append(task.id)
        return replace(incident, task_id=task.id), task


@dataclass
class FakeDrive:
    """All goals are on but `evolve`, which is not available."""

    states: dict[GoalName, GoalState] = field(
        default_factory=lambda: {
            GoalName.HEALTH_CHECK: GoalState.ON,
            GoalName.EVOLVE: GoalState.UNAVAILABLE,
            GoalName.CLEANUP: GoalState.DISABLED,
        }
    )

    async def get_status(self) -> DriveStatus:
        return DriveStatus(
            goals=tuple(
                GoalStatus(name=name, every=timedelta(hours=4), state=state)
                for name, state in self.states.items()
            ),
            used=SpendingCap(micros=250_000),
            cap=SpendingCap(micros=1_000_000),
        )

    async def start(self) -> DriveStatus:
        self._move(GoalState.STOPPED, GoalState.ON)
        return await self.get_status()

    async def stop(self) -> DriveStatus:
        self._move(GoalState.ON, GoalState.STOPPED)
        return await self.get_status()

    async def enable(self, name: GoalName) -> DriveStatus:
        self.states[name] = GoalState.ON
        return await self.get_status()

    async def disable(self, name: GoalName) -> DriveStatus:
        self.states[name] = GoalState.DISABLED
        return await self.get_status()

    def _move(self, seen: GoalState, to: GoalState) -> None:
        for name, state in self.states.items():
            if state is seen:
                self.states[name] = to


class FakeDoctor:
    """Finds what `report` says, and remembers who fixed and which presses arrived."""

    def __init__(self) -> None:
        self.report = HealthReport(at=NOW, results=[CheckResult(name="disk", findings=(LOW_DISK,))])
        self.fixed: list[bool] = []
        self.presses: list[tuple[Channel, int]] = []

    async def examine(self, *, by: Person, fix: bool) -> HealthReport:
        self.fixed.append(fix)
        return self.report

    async def record_press(self, channel: Channel, milliseconds: int) -> None:
        self.presses.append((channel, milliseconds))


class FakeSettings:
    """Reads what `reading` says."""

    def __init__(self) -> None:
        self.reading = SettingsReading(
            applied=("SHIFTBOSS_CAP_DAY",), waiting=("SHIFTBOSS_RETENTION.spans_days",)
        )

    async def reload(self) -> SettingsReading:
        return self.reading

    async def list_settings(self) -> SettingList:
        return SettingList(revision="1", settings=())

    async def change(self, changes: Mapping[str, str], *, seen: str = "") -> SettingsReading:
        return self.reading

    async def restart(self) -> None:
        raise NotImplementedError
