"""The times of what is due: when timings fire, in local time, and the process's one timer of due
rows."""

from __future__ import annotations

import asyncio
import logging
import re
from calendar import monthrange
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, Protocol, assert_never
from zoneinfo import ZoneInfo

from handlers.errors import UserError
from storage.db import STORE_RETRY_SECONDS
from storage.errors import StoreUnavailable
from storage.records.schedules import CronTiming, DayFilter, Interval, OneTime, Timing

# --- single times, intervals, cron expressions, and parts of a day

if TYPE_CHECKING:
    from holidays import HolidayBase


MIN_INTERVAL = timedelta(minutes=1)
HORIZON = timedelta(days=3653)
"""Ten years: nothing is scheduled later."""
MAX_CRON = 200
"""Characters of cron expressions."""

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_CRON_FIELDS = 5
_MAX_FILTERED_DAYS = 400
_CRON_REFERENCE_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_ZONE_NAME = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,2}")
_SATURDAY = 5


class TimingError(UserError):
    """A text that gives no time, or a time for which nothing can be scheduled."""


def next_due(
    timing: Timing, *, after: datetime, zone: ZoneInfo, calendar: WorkingCalendar
) -> datetime | None:
    """The first firing after `after`, in UTC; None if there is none."""
    match timing:
        case OneTime(at=at):
            return at.astimezone(UTC) if at > after else None
        case Interval():
            due = _next_of_interval(timing, after, zone)
        case CronTiming(since=since):
            if since is not None:
                after = max(after, since - _SECOND)
            due = _next_of_cron(timing, after, zone, calendar)
        case _:
            assert_never(timing)
    is_over = due is not None and timing.until is not None and due > timing.until
    return None if is_over else due


def check_timing(
    timing: Timing, *, now: datetime, zone: ZoneInfo, calendar: WorkingCalendar | None = None
) -> None:
    """Raise TimingError if the timing never fires, not within ten years, or too often."""
    if isinstance(timing, CronTiming) and not all(map(is_cron, timing.expressions)):
        raise TimingError("timing.cron", text=timing.expression[:60])
    if isinstance(timing, Interval):
        if timing.every < MIN_INTERVAL:
            raise TimingError("timing.too_often")
        if timing.every > HORIZON:
            raise TimingError("timing.too_far")
    due = next_due(timing, after=now, zone=zone, calendar=calendar or WeekdayCalendar())
    if due is None:
        until = None if isinstance(timing, OneTime) else timing.until
        is_over = isinstance(timing, OneTime) or (until is not None and until <= now)
        raise TimingError("timing.past" if is_over else "timing.never")
    if due - now > HORIZON:
        raise TimingError("timing.too_far")


def is_cron(text: str) -> bool:
    """Whether the text is a cron expression of five fields that ever matches."""
    return next_cron_time(text, after=_CRON_REFERENCE_TIME, zone=ZoneInfo("UTC")) is not None


def next_cron_time(expression: str, *, after: datetime, zone: ZoneInfo) -> datetime | None:
    """The first time after `after` that matches, in UTC; None if there is none or it is no
    expression of five fields.

    Hours are local: an hour that a clock change skips is the end of the gap, one that comes twice
    is the first. Only `*` means each hour that passes, so that nothing is left out for an hour."""
    fields = expression.split() if len(expression) <= MAX_CRON else []
    if len(fields) != _CRON_FIELDS:
        return None
    # Imported on first use.
    from cronsim import CronSim, CronSimError

    try:
        start = after.astimezone(zone)
        if fields[1] == "*":
            return next(CronSim(expression, start)).astimezone(UTC)
        for local in CronSim(expression, start.replace(tzinfo=None)):
            due = local_to_utc(local, zone)
            # What comes twice, and the end of a gap, may already be over.
            if due > after:
                return due
    except (CronSimError, StopIteration, ValueError, OverflowError):
        return None
    return None


def local_to_utc(at: datetime, zone: ZoneInfo) -> datetime:
    """A time without a zone as UTC. One that a clock change skips becomes the end of the gap; of
    one that comes twice it is the first."""
    found = at.replace(tzinfo=zone).astimezone(UTC)
    if _is_skipped_by_clock_change(at, zone):
        at = at.replace(second=0, microsecond=0)
        while _is_skipped_by_clock_change(at, zone):
            at -= _MINUTE
        found = at.replace(tzinfo=zone).astimezone(UTC) + _MINUTE
    return found


def load_zone(name: str) -> ZoneInfo | None:
    """The time zone of this IANA name, None if there is none."""
    try:
        return ZoneInfo(name) if _ZONE_NAME.fullmatch(name) else None
    except (KeyError, ValueError, OSError):
        return None


def _next_of_interval(timing: Interval, after: datetime, zone: ZoneInfo) -> datetime | None:
    start, since = timing.start.astimezone(UTC), after.astimezone(UTC)
    if start > since:
        return start
    elapsed = (since - start) // timing.every
    try:
        if timing.every % _DAY:
            return start + timing.every * (elapsed + 1)
        local = start.astimezone(zone).replace(tzinfo=None)
        # The clocks may be an hour before or behind those at the start.
        dues = (local_to_utc(local + timing.every * n, zone) for n in count_from(elapsed))
        return next(due for due in dues if due > since)
    except OverflowError:
        return None


def _next_of_cron(
    timing: CronTiming, after: datetime, zone: ZoneInfo, calendar: WorkingCalendar
) -> datetime | None:
    """A day on which it may not fire is skipped as a whole; so many of them in a row mean never."""
    for _ in range(_MAX_FILTERED_DAYS):
        found = (next_cron_time(each, after=after, zone=zone) for each in timing.expressions)
        due = min((each for each in found if each is not None), default=None)
        if due is None or timing.days is DayFilter.ANY:
            return due
        day = due.astimezone(zone).date()
        if _passes_filter(day, timing, calendar):
            return due
        after = max(due, local_to_utc(datetime.combine(day, time(23, 59, 59)), zone))
    return None


def _passes_filter(day: date, timing: CronTiming, calendar: WorkingCalendar) -> bool:
    def is_of_filter(each: date) -> bool:
        return calendar.is_working(each) is (timing.days is DayFilter.WORKING)

    if not is_of_filter(day) or timing.nth == 0:
        return is_of_filter(day)
    last = monthrange(day.year, day.month)[1]
    numbers = range(1, day.day + 1) if timing.nth > 0 else range(day.day, last + 1)
    return sum(is_of_filter(day.replace(day=n)) for n in numbers) == abs(timing.nth)


def _is_skipped_by_clock_change(at: datetime, zone: ZoneInfo) -> bool:
    return at.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None) != at


class WorkingCalendar(Protocol):
    def is_working(self, day: date) -> bool: ...


class WeekdayCalendar:
    """Monday to Friday, all year."""

    def is_working(self, day: date) -> bool:
        return day.weekday() < _SATURDAY


class HolidayCalendar:
    """The working days of a country such as `CN`, or of a part of one such as `DE-BY`: not its
    weekends and public holidays, but the weekends on which it works in exchange."""

    def __init__(self, region: str) -> None:
        self._region = region

    def is_working(self, day: date) -> bool:
        return self._holidays.is_working_day(day)

    @cached_property
    def _holidays(self) -> HolidayBase:
        # An extra, which the settings have checked, and imported on first use.
        from holidays import country_holidays

        country, _, part = self._region.partition("-")
        return country_holidays(country, subdiv=part or None)


def working_calendar(region: str) -> WorkingCalendar:
    """Monday to Friday for an empty region."""
    return HolidayCalendar(region) if region else WeekdayCalendar()


@dataclass(frozen=True, slots=True, kw_only=True)
class DayHours:
    """From `start` inclusive to `end` exclusive in `zone`; across midnight if `end` is earlier.
    Equal times are the whole day."""

    start: time
    end: time
    zone: ZoneInfo

    def contains(self, at: datetime) -> bool:
        now = at.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= now < self.end
        return self.start == self.end or now >= self.start or now < self.end

    def next_start(self, at: datetime) -> datetime:
        """The first start after `at`, in UTC."""
        return self._next(self.start, at)

    def next_end(self, at: datetime) -> datetime:
        """The first end after `at`, in UTC."""
        return self._next(self.end, at)

    def _next(self, wanted: time, at: datetime) -> datetime:
        day = at.astimezone(self.zone).date()
        found = local_to_utc(datetime.combine(day, wanted), self.zone)
        while found <= at:
            day += _DAY
            found = local_to_utc(datetime.combine(day, wanted), self.zone)
        return found


# --- the process's timer

if TYPE_CHECKING:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

log = logging.getLogger(__name__)

LONGEST_WAIT = timedelta(minutes=1)
"""After this a due time is looked up again, so that a change of the clock is noticed."""
_FAULT_DELAY = timedelta(seconds=30)


class DueSource(Protocol):
    """Rows with a due time. The rows are the truth: `run_due` must claim what is due and may be
    called at any time."""

    name: str

    async def next_due(self) -> datetime | None:
        """When the earliest row is due; None if none is."""

    async def run_due(self) -> None:
        """Do what is due now."""


class DueTimer:
    """Runs one date job of APScheduler for each source, in memory only. Call `wake` after a commit
    that has changed a due time of a source."""

    name = "due timer"

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._sources: dict[str, DueSource] = {}
        self._scheduler: AsyncIOScheduler | None = None
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._woken: set[str] = set()

    def add(self, *sources: DueSource) -> None:
        """Must be called before `run`."""
        self._sources |= {source.name: source for source in sources}

    async def start(self, stack: AsyncExitStack) -> None:
        # Imported on first use: a single shell command needs no timer.
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        # A job arms its successor before it ends; one that APScheduler takes for a second instance
        # would be dropped for good. `_running` keeps two runs of a source apart.
        options = {"misfire_grace_time": None, "coalesce": True, "max_instances": 1000}
        scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=options)
        scheduler.start()
        self._scheduler = scheduler
        stack.push_async_callback(self._stop)

    async def _stop(self) -> None:
        """Start nothing more, and wait until what ran has ended: it may not outlive the store."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            # It acts in a later turn of the loop, and would not wait for the jobs that it cancels.
            scheduler.shutdown(wait=False)
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def run(self) -> None:
        for name in self._sources:
            self.wake(name)
        await asyncio.Event().wait()

    def wake(self, name: str) -> None:
        """Look at this source's rows now. Before the start there is nothing to do."""
        if name in self._running:
            self._woken.add(name)
        else:
            self._arm(name, timedelta())

    def _arm(self, name: str, delay: timedelta) -> None:
        # None also when the program stops.
        if self._scheduler is None:
            return
        self._scheduler.add_job(
            self._run_source,
            "date",
            run_date=datetime.now(UTC) + delay,
            args=(name,),
            id=name,
            replace_existing=True,
        )

    async def _run_source(self, name: str) -> None:
        task = asyncio.current_task()
        if task is None or self._scheduler is None:
            return
        if name in self._running:
            self._woken.add(name)
            return
        self._running[name] = task
        source, delay = self._sources[name], None
        try:
            await source.run_due()
            due = await source.next_due()
            delay = None if due is None else min(LONGEST_WAIT, max(timedelta(), due - self._now()))
        except asyncio.CancelledError:
            if self._scheduler is not None:
                raise
            # The program stops. APScheduler would log that as a fault.
            return
        except StoreUnavailable as error:
            log.warning("%s: what is due cannot be looked up now: %s", name, error)
            delay = timedelta(seconds=STORE_RETRY_SECONDS)
        except Exception:
            # Error boundary: one source must not stop the others.
            log.exception("%s: what is due could not be done", name)
            delay = _FAULT_DELAY
        finally:
            del self._running[name]
        if name in self._woken:
            self._woken.discard(name)
            delay = timedelta()
        if delay is not None:
            self._arm(name, delay)
