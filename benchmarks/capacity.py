"""The plan for 1,000 people, 100,000 tasks a day and 100 workers on one PostgreSQL: a day by a
simulated clock, with the costs of a task and of a message measured on the real program."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from benchmarks.figures import Figure, Measurement, Scale, format_value
from benchmarks.machines import Machines, machines
from benchmarks.results import current_conditions
from bot.transports.rate_limits import CHANNEL_LIMITS, RateLimit
from storage.db import Database
from storage.key_value import KeyValueStore
from storage.records.people import Channel
from tests.journeys.model_world import ask
from tests.postgresql_server import connect, create_database, execute
from tests.waiting import wait_until

SCALE_PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
_BEGIN, _END = "<!-- capacity -->\n", "<!-- /capacity -->"
_HOURS = (1, 1, 1, 1, 1, 1, 2, 4, 8, 11, 11, 9, 5, 8, 11, 11, 9, 6, 4, 3, 2, 2, 1, 1)
"""How the work of a day is spread over its hours."""
_SENDS = frozenset({"sendMessage", "editMessageText", "sendDocument", "sendPhoto"})
_STATEMENTS = 6
"""Of a typical transaction, besides its commit: an assumption."""
_LOADS = (0.25, 0.5, 1.0, 2.0)
_DAY = 86_400.0


# --- what is asked, what it costs, and what there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A day. `calls` are model calls of a task, each of `call_seconds`; `messages` those of a
    person that make no task."""

    people: int = 1_000
    tasks: int = 100_000
    workers: int = 100
    slots: int = 4
    calls: int = 4
    call_seconds: float = 15.0
    messages: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of one task and of one message. `writes` are transactions under the store's lock, of
    `write_ms` each; `leader_ms` and `worker_ms` are CPU of these processes, `database_ms` of the
    server, `herd_ms` of the server for each further process that hears of the task;
    `notifications` are told to every process; `sends` are calls of the platform."""

    task_writes: float
    task_leader_ms: float
    task_worker_ms: float
    task_database_ms: float
    task_herd_ms: float
    task_notifications: float
    task_sends: float
    task_bytes: float
    message_writes: float
    message_leader_ms: float
    message_database_ms: float
    message_sends: float
    write_ms: float
    connections: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The machines of the plan: assumed, not measured. A commit reaches the disk in `commit_ms`,
    and the network takes `round_trip_ms` for each of a write's `statements`."""

    database_cores: int = 8
    max_connections: int = 100
    commit_ms: float = 1.0
    round_trip_ms: float = 0.3
    statements: int = _STATEMENTS + 1
    sends_per_second: float = 15.0


# --- the day

_ARRIVES, _MESSAGE, _ANSWER, _SENT = -1, -2, -3, -10
"""Stages besides those of a task, which count from 0 to its calls, and those of the card after
each, which count on; from `_SENT` down, so many sends."""


@dataclass(eq=False)
class Resource:
    """Servers of one kind, and the queue before them. Of `waits` the seconds of each user."""

    name: str
    servers: int
    busy: float = 0.0
    waits: list[float] = field(default_factory=list)
    _free_at: list[float] = field(default_factory=list)

    def use(self, at: float, seconds: float) -> float:
        """Wait for a server and hold it so long; returns when that ends."""
        if len(self._free_at) < self.servers:
            heapq.heappush(self._free_at, at)
        begins = max(at, heapq.heappop(self._free_at))
        heapq.heappush(self._free_at, begins + seconds)
        self.busy += seconds
        self.waits.append(begins - at)
        return begins + seconds

    def wait(self, share: float) -> float:
        """The wait in seconds that this share of all users does not exceed."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """How a day went: the resources, and the seconds that tasks took longer than their calls."""

    resources: Mapping[str, Resource]
    delays: Sequence[float]

    def delay(self, share: float) -> float:
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def simulate(plan: Plan, costs: Costs, site: Site, *, part: float = 1.0, seed: int = 7) -> Day:
    """One day from midnight; `part` of it from 9 o'clock on, when the work is most."""
    chance = random.Random(seed)
    slots = Resource("slots", plan.workers * plan.slots)
    lock, leader = Resource("write lock", 1), Resource("leader", 1)
    server, platform = Resource("database", site.database_cores), Resource("platform", 1)
    write, last = _write_seconds(costs, site), plan.calls
    database = costs.task_database_ms + costs.task_herd_ms * plan.workers
    share, delays = 1 / (last + 1), list[float]()
    counter = itertools.count()
    # Each is of a time, a stage, and what its task has waited so far. Whatever follows is an event
    # of its own, so that all queues are joined in the order of time.
    events: list[tuple[float, int, int, float]] = [
        *((at, next(counter), _ARRIVES, 0.0) for at in _arrivals(plan.tasks, part, chance)),
        *(
            (at, next(counter), _MESSAGE, 0.0)
            for at in _arrivals(plan.people * plan.messages, part, chance)
        ),
    ]
    heapq.heapify(events)

    def follow(at: float, stage: int, waited: float = 0.0) -> None:
        heapq.heappush(events, (at, next(counter), stage, waited))

    while events:
        now, _, stage, waited = heapq.heappop(events)
        if stage == _MESSAGE:
            follow(leader.use(now, costs.message_leader_ms / 1000), _ANSWER)
        elif stage == _ANSWER:
            at = lock.use(now, costs.message_writes * write)
            server.use(now, costs.message_database_ms / 1000)
            follow(at, _SENT - round(costs.message_sends))
        elif stage <= _SENT:
            for _ in range(_SENT - stage):
                platform.use(now, 1 / site.sends_per_second)
        elif stage == _ARRIVES:
            began = slots.use(now, last * plan.call_seconds) - last * plan.call_seconds
            follow(began, 0, began - now)
        elif stage > last:
            follow(
                leader.use(now, costs.task_leader_ms * share / 1000),
                _SENT - _sends(costs.task_sends, stage - last - 1, last),
            )
        else:
            at = lock.use(now, costs.task_writes * share * write)
            server.use(now, database * share / 1000)
            follow(at, last + 1 + stage)
            if stage < last:
                took = plan.call_seconds * chance.uniform(0.5, 1.5)
                follow(at + took, stage + 1, waited + at - now)
            else:
                delays.append(waited + at - now)
    found = {each.name: each for each in (slots, lock, leader, server, platform)}
    return Day(resources=found, delays=delays)


def _write_seconds(costs: Costs, site: Site) -> float:
    return (costs.write_ms + site.commit_ms + site.round_trip_ms * site.statements) / 1000


def _sends(total: float, stage: int, rounds: int) -> int:
    """Of a task's sends those that this stage makes."""
    share = total / (rounds + 1)
    return math.floor(share * (stage + 1)) - math.floor(share * stage)


def _arrivals(count: int, part: float, chance: random.Random) -> Iterator[float]:
    whole = sum(_HOURS)
    hours = range(24) if part >= 1 else range(9, 9 + max(1, round(24 * part)))
    for hour in hours:
        for _ in range(round(count * _HOURS[hour] / whole)):
            yield hour * 3600 + chance.random() * 3600


# --- what breaks first


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One thing that may be used up. `peak` is asked of it in the busiest hour of the plan, and
    `has` is there, in `unit`; `advice` is what to do then."""

    name: str
    peak: float
    has: float
    unit: str
    advice: str

    @property
    def used(self) -> float:
        return self.peak / self.has

    def breaks_at(self, plan: Plan) -> float:
        """Tasks a day at which it is used up."""
        return plan.tasks / self.used


def limits(plan: Plan, costs: Costs, site: Site) -> list[Limit]:
    """All of them, the one that breaks first first."""
    peak = max(_HOURS) / sum(_HOURS) / 3600
    tasks, messages = plan.tasks * peak, plan.people * plan.messages * peak
    writes = tasks * costs.task_writes + messages * costs.message_writes
    database = tasks * (costs.task_database_ms + costs.task_herd_ms * plan.workers)
    database += messages * costs.message_database_ms
    leader = tasks * costs.task_leader_ms + messages * costs.message_leader_ms
    found = (
        Limit(
            name="connections to the database",
            peak=(plan.workers + 2) * costs.connections,
            has=site.max_connections,
            unit="",
            advice="set `max_connections` (1,000 take some 3 GB), or run fewer workers with more"
            " slots each",
        ),
        Limit(
            name="messages of one Feishu app",
            peak=tasks * costs.task_sends + messages * costs.message_sends,
            has=site.sends_per_second,
            unit="/s",
            advice="progress is left out first, answers and approvals are not; then an app and a"
            " Shiftboss for each department",
        ),
        Limit(
            name="CPU of the front that leads",
            peak=leader / 1000,
            has=1.0,
            unit="cores",
            advice="a Shiftboss for each department: one process handles all messages",
        ),
        Limit(
            name="the write lock of the store",
            peak=writes * _write_seconds(costs, site),
            has=1.0,
            unit="of the time",
            advice="a database nearer and a faster disk; then a store for each department",
        ),
        Limit(
            name="CPU of the database",
            peak=database / 1000,
            has=site.database_cores,
            unit="cores",
            advice="fewer workers with more slots each: every process hears of every task",
        ),
        Limit(
            name="slots of the workers",
            peak=tasks * plan.calls * plan.call_seconds,
            has=plan.workers * plan.slots,
            unit="",
            advice="more slots: a task that waits for its model costs little",
        ),
        Limit(
            name="CPU of one worker",
            peak=tasks * costs.task_worker_ms / 1000 / plan.workers,
            has=1.0,
            unit="cores",
            advice="more workers",
        ),
    )
    return sorted(found, key=lambda each: -each.used)


# --- measured on the real program


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used up between two moments."""

    writes: float = 0.0
    notifications: float = 0.0
    bytes: float = 0.0
    sends: float = 0.0
    cpu: Mapping[str, float] = field(default_factory=dict)


class _Meter:
    """Reads the counters of the server and of the processes; `listener` hears notifications."""

    def __init__(self, made: Machines, listener: psycopg.Connection[Any]) -> None:
        self._made = made
        self._listener = listener
        listener.execute("LISTEN shiftboss")

    @contextmanager
    def measure(self, into: list[Usage]) -> Iterator[None]:
        self._count_notifications()
        before = self._read()
        yield
        after = self._read()
        cpu = {name: after.cpu[name] - before.cpu.get(name, 0.0) for name in after.cpu}
        into.append(
            Usage(
                writes=after.writes - before.writes,
                notifications=self._count_notifications(),
                bytes=after.bytes - before.bytes,
                sends=after.sends - before.sends,
                cpu=cpu,
            )
        )

    def _read(self) -> Usage:
        ((xid, size),) = execute(
            self._made.url,
            "SELECT pg_current_xact_id()::text::bigint, pg_database_size(current_database())",
        )
        backends = execute(
            self._made.url,
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'shiftboss%'",
        )
        front = self._made.world.program
        return Usage(
            writes=float(str(xid)),
            bytes=float(str(size)),
            sends=sum(call.method in _SENDS for call in self._made.world.telegram.calls),
            cpu={
                "leader": _cpu(front.pid),
                "workers": sum(_cpu(each.pid) for each in self._made.processes),
                "database": sum(_cpu(int(str(pid))) for (pid,) in backends),
            },
        )

    def _count_notifications(self) -> int:
        return sum(1 for _ in self._listener.notifies(timeout=0))


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has used; 0 for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure_costs(scale: Scale) -> Costs:
    """Tasks of a plan and three steps, and messages that get an answer, on the real program; the
    same tasks again while more processes listen."""
    count, idle = scale.pick(16, 2), scale.pick(4, 1)
    tasks, herd, messages = list[Usage](), list[Usage](), list[Usage]()
    async with machines(create_database(migrated=False)) as made, AsyncExitStack() as stack:
        made.seconds = 0.05
        await made.start("worker", "--name", "w0", "--slots", "4")
        meter = _Meter(made, stack.enter_context(connect(made.url)))
        await _settle(made, "warm", 2)
        with meter.measure(tasks):
            await _settle(made, "one", count)
        with meter.measure(messages):
            for _ in range(count):
                await ask(*made.owner, "/list", "")
            await _outbox_idle(made)
        for n in range(idle):
            await made.start("worker", "--name", f"idle{n}", "--queue", "/nowhere")
        await _settle(made, "calm", 1)
        with meter.measure(herd):
            await _settle(made, "many", count)
        backends = execute(
            made.url,
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'shiftboss%'"
            " AND datname = current_database()",
        )
        write_ms = await _measure_write(made.url, scale.pick(500, 20))
    (one,), (many,), (said,) = tasks, herd, messages
    return Costs(
        task_writes=one.writes / count,
        task_leader_ms=one.cpu["leader"] / count * 1000,
        task_worker_ms=one.cpu["workers"] / count * 1000,
        task_database_ms=one.cpu["database"] / count * 1000,
        task_herd_ms=max(0.0, many.cpu["database"] - one.cpu["database"]) / count / idle * 1000,
        task_notifications=one.notifications / count,
        task_sends=one.sends / count,
        task_bytes=max(0.0, one.bytes) / count,
        message_writes=said.writes / count,
        message_leader_ms=said.cpu["leader"] / count * 1000,
        message_database_ms=said.cpu["database"] / count * 1000,
        message_sends=said.sends / count,
        write_ms=write_ms,
        connections=int(str(backends[0][0])) / (len(made.processes) + 1),
    )


async def _measure_write(url: str, count: int) -> float:
    """Milliseconds of CPU, of client and server together, of a transaction under the lock."""
    async with AsyncExitStack() as stack:
        db = await Database.open(url, stack)
        store = KeyValueStore(db)

        async def write() -> int:
            async with db.write() as tx:
                for n in range(_STATEMENTS // 2):
                    await store.read(tx, f"bench.{n}")
                    await store.write(tx, f"bench.{n}", {"n": n})
                return int(await tx.scalar(sa.text("SELECT pg_backend_pid()")) or 0)

        backend = await write()
        before = time.process_time() + _cpu(backend)
        for _ in range(count):
            await write()
        return (time.process_time() + _cpu(backend) - before) / count * 1000


async def _settle(made: Machines, name: str, count: int) -> None:
    await made.run_tasks(name, count)
    await _outbox_idle(made)


async def _outbox_idle(made: Machines) -> None:
    queued = "SELECT 1 FROM outbox WHERE state = 'queued'"
    await wait_until(lambda: not execute(made.url, queued), 300)


# --- the page


async def measure(scale: Scale) -> list[Measurement]:
    """A task costs what it costs on the real program, in CPU and in counts, so that other work on
    the machine does little; disk, network and size of the server are assumptions."""
    costs = await measure_costs(scale)
    feishu = next(
        each.per_second
        for each in reversed(CHANNEL_LIMITS[Channel.FEISHU].overall)
        if isinstance(each, RateLimit)
    )
    plan, site = Plan(), Site(sends_per_second=feishu)
    part = scale.pick(1.0, 1 / 24)
    days = {load: simulate(_times(plan, load), costs, site, part=part) for load in _LOADS}
    found = limits(plan, costs, site)
    if scale is Scale.FULL:
        await asyncio.to_thread(_write_page, _render(plan, costs, site, days, found))
    return [
        *(Figure(f"of {each.name}, used at the peak", each.used * 100, "%") for each in found),
        Figure("bytes of a task", costs.task_bytes),
        Figure("writes of a task", costs.task_writes),
        Figure("under the lock, a write", costs.write_ms, "ms"),
    ]


def _times(plan: Plan, load: float) -> Plan:
    return replace(plan, tasks=round(plan.tasks * load), people=round(plan.people * load))


def _render(
    plan: Plan, costs: Costs, site: Site, days: Mapping[float, Day], found: Sequence[Limit]
) -> str:
    told = current_conditions()
    peak = max(_HOURS) / sum(_HOURS)
    measured = (
        f"Measured: a task of a plan and three steps makes {costs.task_writes:.0f} writes of"
        f" {costs.write_ms:.1f} ms CPU under the store's lock, {costs.task_notifications:.0f}"
        f" notifications, {costs.task_sends:.1f} calls of the platform and"
        f" {costs.task_bytes / 1000:.0f} kB; it costs {costs.task_leader_ms:.0f} ms CPU of the"
        f" front that leads, {costs.task_worker_ms:.0f} of the worker,"
        f" {costs.task_database_ms:.0f} of the database and {costs.task_herd_ms:.1f} of it for"
        f" each further process. A message with its answer: {costs.message_writes:.0f} writes,"
        f" {costs.message_leader_ms:.0f} ms of the leader. A process has"
        f" {costs.connections:.1f} connections."
    )
    assumed = (
        f"Assumed: {plan.calls} model calls of {plan.call_seconds:.0f} s a task,"
        f" {plan.messages} other messages a person, {peak:.0%} of the day in its busiest hour,"
        f" {plan.slots} slots a worker, {site.database_cores} cores for the database, whose disk"
        f" takes {site.commit_ms:g} ms a commit and whose network {site.round_trip_ms:g} ms a"
        f" round trip ({site.statements} a write), PostgreSQL's default of"
        f" {site.max_connections} connections."
    )
    daily = plan.tasks * costs.task_bytes / 1e9
    calls = plan.tasks * peak * plan.calls / 60
    grows = (
        f"The store grows by {daily:.1f} GB a day before `SHIFTBOSS_RETENTION` deletes from it,"
        f" and models get {calls:,.0f} calls a minute at the peak: ask their provider for that."
    )
    lines = [
        f"Written by `python -m benchmarks capacity` (commit `{told.commit}`, load {told.load}).",
        "",
        measured,
        "",
        assumed,
        "",
        *_limit_table(plan, found),
        "",
        "The simulated day, with enough connections:",
        "",
        *_day_table(plan, days),
        "",
        grows,
        "",
    ]
    return "\n".join(lines)


def _limit_table(plan: Plan, found: Sequence[Limit]) -> Iterator[str]:
    yield "| what is used | at the peak | there is | used | breaks at, tasks a day | then |"
    yield "|---|---|---|---|---|---|"
    for each in found:
        peak, has = format_value(each.peak, each.unit), format_value(each.has, each.unit)
        breaks = f"{each.breaks_at(plan):,.0f}"
        yield f"| {each.name} | {peak} | {has} | {each.used:.0%} | {breaks} | {each.advice} |"


def _day_table(plan: Plan, days: Mapping[float, Day]) -> Iterator[str]:
    yield (
        "| tasks a day | a task is held up, median | p95 | a message waits for the leader, p95 |"
        " a send waits for the platform, p95 |"
    )
    yield "|---|---|---|---|---|"
    for load, day in days.items():
        leader, platform = day.resources["leader"], day.resources["platform"]
        waits = (day.delay(0.5), day.delay(0.95), leader.wait(0.95), platform.wait(0.95))
        shown = " | ".join(format_value(each, "s") for each in waits)
        yield f"| {plan.tasks * load:,.0f} | {shown} |"


def _write_page(text: str) -> None:
    page = SCALE_PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(_BEGIN)
    after = rest.partition(_END)[2]
    SCALE_PAGE.write_text(f"{before}{_BEGIN}{text}{_END}{after}", encoding="utf-8")
