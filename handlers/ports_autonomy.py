"""Defines the ports of schedules, heartbeat, self-check, drive, reports and evolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from cards.catalog import TextCatalog
from storage.records.autonomy import (
    DriveStatus,
    GoalName,
    HealthReport,
    HeartbeatRun,
    HeartbeatStatus,
    Incident,
    ReportPeriod,
    ReportPictures,
    WorkReport,
)
from storage.records.people import Channel, ChatId, Language, Person
from storage.records.prompt_versions import (
    CycleReport,
    EvolutionAnalysis,
    PromptInfo,
    PromptRef,
    PromptVersion,
    SignalRecord,
)
from storage.records.schedules import (
    CronTiming,
    Firing,
    NewSchedule,
    Schedule,
    ScheduledFiring,
    ScheduleId,
    Timing,
)
from storage.records.system import SettingList, SettingsReading
from storage.records.tasks import Task
from storage.records.triggers import NewTrigger, Trigger, TriggerFiring


class HeartbeatPort(Protocol):
    """Callers must be owners in private. Refusals are UserErrors."""

    async def status(self) -> HeartbeatStatus: ...

    async def switch(self, *, on: bool) -> HeartbeatStatus:
        """Turn the heartbeat on or off. Raises UserError if a setting has turned it off."""

    async def run_now(self, *, at: datetime) -> bool:
        """Run once, whatever the hour; False if a run is in progress, after which another follows.
        `at` is when it was asked for, and the same whenever the request is repeated."""

    async def add(self, text: str) -> HeartbeatStatus:
        """Add an open line to HEARTBEAT.md. Raises UserError if the file cannot be changed."""

    async def log(self, limit: int) -> Sequence[HeartbeatRun]:
        """The heartbeat's runs, newest first."""


class SelfCheckPort(Protocol):
    """Callers check that an owner asks."""

    async def check(self) -> HealthReport:
        """Run all checks now. In a running program this also repairs, stores the result, and
        notifies owners."""

    async def list_reports(self, limit: int) -> Sequence[HealthReport]:
        """Stored runs of the self-check, newest first."""

    async def list_open(self) -> Sequence[Incident]:
        """Problems that are not over yet."""

    async def list_incidents(self, limit: int) -> Sequence[Incident]:
        """All incidents, newest first."""

    async def start_repair(
        self, incident_id: int, *, by: Person, chat: ChatId, reply_to: str, words: TextCatalog
    ) -> tuple[Incident, Task | None]:
        """Create the task that a problem's card proposes, once; None if the problem is over. Raises
        NotFound."""


class DoctorPort(Protocol):
    """Callers check that an owner asks."""

    async def examine(self, *, by: Person, fix: bool) -> HealthReport:
        """Run the self-check, call each model in use, and ask each platform. With `fix`, make the
        repairs that are safe."""

    async def record_press(self, channel: Channel, milliseconds: int) -> None:
        """Record that presses of buttons on this channel reach Shiftboss, and how long ago the
        platform received this one."""


class SettingsPort(Protocol):
    """Callers check that an owner asks."""

    async def reload(self) -> SettingsReading:
        """Read all settings again. If any of them is invalid, all stay as they were."""


class SettingEditorPort(Protocol):
    """Callers check that an owner asks."""

    async def list_settings(self) -> SettingList: ...

    async def change(self, changes: Mapping[str, str], *, seen: str = "") -> SettingsReading:
        """Write these values, by their environment names, to the file that the setup writes. They
        take effect now or after a restart; all are written or none. An empty value removes the
        setting from the file. `seen` is the revision that the change is based on, empty for any.
        Raises UserError."""

    async def restart(self) -> None:
        """Stop as on a signal, and start again with the stored settings. Raises UserError if they
        could keep the program from starting."""


class DrivePort(Protocol):
    """Callers check that an owner asks. A goal that this version lacks is not changed."""

    async def get_status(self) -> DriveStatus: ...

    async def start(self) -> DriveStatus: ...

    async def stop(self) -> DriveStatus:
        """Stop a drive until it is started again or the program restarts."""

    async def enable(self, name: GoalName) -> DriveStatus: ...

    async def disable(self, name: GoalName) -> DriveStatus:
        """Turn a drive off until it is enabled again."""


class ReportPort(Protocol):
    """Implementations must check what `by` may see: owners all, members their own work; in a group
    only the group's, whoever asks."""

    async def report(
        self, period: ReportPeriod, *, by: Person, chat: ChatId, until: datetime
    ) -> WorkReport: ...

    async def draw(self, report: WorkReport, language: Language) -> ReportPictures:
        """Store pictures of the report. A full disk raises nothing."""
        ...

    async def schedule(
        self, period: ReportPeriod, timing: CronTiming, *, title: str, by: Person, chat: ChatId
    ) -> Schedule:
        """Send this report of `by` to the chat at these times, replacing earlier ones."""
        ...

    async def stop(self, *, by: Person, chat: ChatId) -> Sequence[Schedule]:
        """End the scheduled reports of `by` in this chat; returns those that were on."""
        ...


class PromptVersionPort(Protocol):
    """Implementations must check in every change that `by` is an owner, and raise NotAllowed
    otherwise."""

    async def list_prompts(self) -> Sequence[PromptInfo]:
        """All texts that may have versions, without figures; those with versions come first."""

    async def find_prompts(self, name: str) -> Sequence[PromptInfo]:
        """The prompt with this label, or else all prompts with this name."""

    async def roll_back(self, ref: PromptRef, *, by: Person) -> PromptVersion | None:
        """End the trial or, without one, return to the version before the active one. Takes effect
        at once. Returns the version that is no longer used, None if there is none."""

    async def run_cycle(self, *, by: Person) -> CycleReport:
        """Look for signals and settle trials now. May call a model."""

    async def analyze(self) -> EvolutionAnalysis:
        """The latest tasks in figures; calls no model."""

    async def list_signals(self, limit: int) -> Sequence[SignalRecord]:
        """The signals, those that fired last first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRequest:
    """A message that asks for something at a later time. `subject` is the message without the words
    of time and asking; `asks_reminder` tells a reminder from work; `zone_name` is the zone that was
    named, empty for the person's own."""

    timing: Timing
    subject: str
    asks_reminder: bool
    zone_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule with its next firings, and the last one. `more_until`: there are too many until
    the time that was asked about."""

    schedule: Schedule
    upcoming: Sequence[datetime]
    last: Firing | None = None
    last_task: Task | None = None
    more_until: bool = False


class SchedulePort(Protocol):
    """Implementations must check in every call that `by` may see the schedule: their own ones, and
    owners all; in a group only those of the group. Otherwise NotFound. Only its person and owners
    may change it. A repeat with the same `source` must change nothing.

    Refusals are UserErrors.
    """

    def read_request(self, text: str) -> TimedRequest | None:
        """Read a whole message by rules, without a model; None if it asks for nothing later."""

    def check_readable(self, text: str) -> None:
        """Raises UserError for a message that clearly asks for a reminder, but at no time that
        `read_request` reads."""

    def split_timing(self, text: str) -> tuple[Timing, str]:
        """Split a text into the time at its beginning or end and the rest. Raises UserError if
        there is no time, or none that can be used."""

    def read_timing(self, text: str) -> Timing:
        """Read a time in words, as a cron expression or as a date. Raises UserError."""

    async def propose(self, new: NewSchedule) -> ScheduleView:
        """Store a schedule that fires only once somebody confirms it."""

    async def confirm(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Let a proposed schedule fire."""

    async def decline(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Reject a proposed schedule."""

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> ScheduleView: ...

    async def list(
        self, *, by: Person, chat: ChatId, until: datetime | None = None
    ) -> Sequence[ScheduleView]:
        """Schedules, the next to fire first. With `until`, `upcoming` also holds all firings until
        then, unless there are too many."""

    async def list_newest(
        self, *, by: Person, chat: ChatId, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[ScheduleView]:
        """The schedules of `list`, newest first, after `before` (creation time and id)."""

    async def log(self, schedule: Schedule, limit: int) -> Sequence[tuple[Firing, Task | None]]:
        """The newest firings, with their tasks."""

    async def pause(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView: ...

    async def resume(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Continue with the next due time; what fell due meanwhile does not count."""

    async def delete(
        self, schedule_id: ScheduleId, *, by: Person, chat: ChatId
    ) -> ScheduleView: ...

    async def run_now(
        self, schedule_id: ScheduleId, *, by: Person, chat: ChatId, at: datetime
    ) -> ScheduleView:
        """Fire once in addition to the due times. `at` is the time of the request, and the same
        whenever the request is repeated."""

    async def skip_next(
        self,
        schedule_id: ScheduleId,
        *,
        by: Person,
        chat: ChatId,
        at: datetime,
        due_at: datetime | None = None,
    ) -> ScheduleView:
        """Leave out `due_at` or, without it, the first due time after `at`, which is when it was
        asked for. Asking again changes nothing; what has fired is refused."""

    async def finish_reminder(self, firing_id: int, *, by: Person, chat: ChatId) -> ScheduledFiring:
        """Mark a reminder as done."""

    async def snooze(
        self, firing_id: int, delay: timedelta, *, by: Person, chat: ChatId, source: str
    ) -> ScheduleView:
        """Remind again after `delay`. Returns the schedule of the new reminder."""

    async def decide_missed(
        self, firing_id: int, *, run: bool, by: Person, chat: ChatId
    ) -> ScheduledFiring:
        """Run or skip what was missed."""


# --- triggers


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerEvent:
    """Something that may start a workflow: `values` by the names of inputs, and `files` in the data
    directory. The same `key` is the same event."""

    key: str
    values: Mapping[str, Any]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TriggerView:
    """A trigger with its last firing."""

    trigger: Trigger
    last: TriggerFiring | None


MAX_HOOK_BYTES = 256_000
"""Of the body of a web request that starts a workflow."""


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The HTTP status for a web request, with the task that it has started."""

    status: int
    task_id: str = ""
    note: str = ""


class TriggerPort(Protocol):
    """The triggers that start workflows. Callers check that an owner asks. Methods with a `prefix`
    raise NotFound and AmbiguousId."""

    async def list(self) -> Sequence[TriggerView]: ...

    async def add(self, new: NewTrigger) -> tuple[Trigger, str]:
        """Create a trigger, which is active at once. The address of a webhook is returned only this
        once. Raises UserError, and WorkflowRefused for an unknown workflow."""
        ...

    async def set_enabled(self, prefix: str, *, enabled: bool) -> Trigger: ...

    async def remove(self, prefix: str) -> Trigger: ...

    async def renew_token(self, prefix: str) -> tuple[Trigger, str]:
        """Replace a webhook's address; the old one stops working."""
        ...

    async def on_message(self, text: str, *, chat: ChatId, by: Person, source: str) -> Task | None:
        """Start the task of the trigger that matches this message; the same `source` gets the same
        task. None if no trigger of the chat matches."""
        ...
