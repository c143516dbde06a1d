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


class DoctorPort(Protocol):
    """Callers check that an owner asks."""

    async def examine(self, *, by: Person, fix: bool) -> HealthReport:
        """Run the self-check, call each model in use, and ask each platform. With `fix`, make the
        repairs that are safe."""

    async def record_press(self, channel: Channel, milliseconds: int) -> None:
        """Buttons on cards of this channel reach us, this long after the platform sent them on."""


class SettingsPort(Protocol):
    """Callers check that an owner asks."""

    async def reload(self) -> SettingsReading:
        """Read all settings again; what is wrong in one leaves all as they were."""


class SettingEditorPort(Protocol):
    """Callers check that an owner asks."""

    async def list_settings(self) -> SettingList: ...

    async def change(self, changes: Mapping[str, str], *, seen: str = "") -> SettingsReading:
        """Write these values, by the names of the environment, to the file that the setup writes,
        and use them from now on, or after a restart: all or none. An empty one goes back to what
        other sources say. `seen` is the revision that the change is made from, empty for any.
        Raises UserError."""

    async def restart(self) -> None:
        """Stop as a signal does, and start again with the stored settings. Raises UserError if
        they could keep the program from starting."""


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
    """Implementations must check in every change that `by` is an owner, and raise NotAllowed
    otherwise."""

    async def list_prompts(self) -> Sequence[PromptInfo]:
        """All texts that may have versions, those that have some first, without figures."""

    async def find_prompts(self, name: str) -> Sequence[PromptInfo]:
        """The one with this label, or else all of this name."""

    async def roll_back(self, ref: PromptRef, *, by: Person) -> PromptVersion | None:
        """End the trial, or else return from the active version to the one before. Takes effect at
        once. Returns the version that is no longer used, None if there is none."""

    async def run_cycle(self, *, by: Person) -> CycleReport:
        """Look for signals and settle trials now. May call a model."""

    async def analyze(self) -> EvolutionAnalysis:
        """The latest tasks in figures; calls no model."""

    async def list_signals(self, limit: int) -> Sequence[SignalRecord]:
        """Those that fired last, newest first."""


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
        """A time at the beginning or the end, and the rest of the text. Raises UserError if there
        is none, or none that can be used."""

    def read_timing(self, text: str) -> Timing:
        """Read a time in words, as a cron expression or as a date. Raises UserError."""

    async def propose(self, new: NewSchedule) -> ScheduleView:
        """Store a schedule that fires only once somebody confirms it."""

    async def confirm(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Start firing."""

    async def decline(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Give up a proposal."""

    async def find(self, prefix: str, *, by: Person, chat: ChatId) -> ScheduleView: ...

    async def list(
        self, *, by: Person, chat: ChatId, until: datetime | None = None
    ) -> Sequence[ScheduleView]:
        """The next to fire first. With `until`, `upcoming` has all firings until then too, unless
        there are too many."""

    async def list_newest(
        self, *, by: Person, chat: ChatId, before: tuple[datetime, str] | None, limit: int
    ) -> Sequence[ScheduleView]:
        """Those that `list` has, the newest first, from the one made before on (time and id)."""

    async def log(self, schedule: Schedule, limit: int) -> Sequence[tuple[Firing, Task | None]]:
        """The newest firings with their tasks."""

    async def pause(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView: ...

    async def resume(self, schedule_id: ScheduleId, *, by: Person, chat: ChatId) -> ScheduleView:
        """Continue with the next due time; what fell due meanwhile does not count."""

    async def delete(
        self, schedule_id: ScheduleId, *, by: Person, chat: ChatId
    ) -> ScheduleView: ...

    async def run_now(
        self, schedule_id: ScheduleId, *, by: Person, chat: ChatId, at: datetime
    ) -> ScheduleView:
        """Fire once besides the due times. `at` is when it was asked for, and the same whenever the
        request is repeated."""

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
        """Tick a reminder off."""

    async def snooze(
        self, firing_id: int, delay: timedelta, *, by: Person, chat: ChatId, source: str
    ) -> ScheduleView:
        """Remind again after `delay`; returns the schedule of that."""

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
        """Create a trigger, which counts at once; with the address of a webhook, which is shown
        only now. Raises UserError, and WorkflowRefused for an unknown workflow."""
        ...

    async def set_enabled(self, prefix: str, *, enabled: bool) -> Trigger: ...

    async def remove(self, prefix: str) -> Trigger: ...

    async def renew_token(self, prefix: str) -> tuple[Trigger, str]:
        """Give a webhook another address; the one so far is worth nothing any more."""
        ...

    async def on_message(self, text: str, *, chat: ChatId, by: Person, source: str) -> Task | None:
        """The task that this message starts; the same one for the same `source`. None if no trigger
        of the chat matches."""
        ...
