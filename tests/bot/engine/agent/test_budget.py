"""The caps hold, whatever is called in whatever order; more is asked for once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.engine.agent.budget import (
    MIN_ANSWER_TOKENS,
    BudgetReservation,
    SpendingBudget,
    SpendingCaps,
    grant_cap_extension,
    request_cap_extension,
    to_micros,
)
from bot.engine.agent.cost_report import CostReportService
from bot.engine.agent.pricing import ModelPrice, PriceTable
from bot.engine.llm.backend import BudgetExceeded, ReachedCap, TokenUsage
from storage.approvals import ApprovalRepo, find_waiting_budget_request
from storage.db import Database
from storage.errors import WrongState
from storage.heartbeat import HeartbeatRepo
from storage.ids import IdGenerator
from storage.records.approvals import Approval, ApprovalKind
from storage.records.people import ChatId, PersonId
from storage.records.tasks import TaskId
from storage.records.usage import (
    BudgetScope,
    CostPeriod,
    CostQuery,
    PendingModelCall,
    SpendingCap,
    UsageRecord,
)
from storage.usage import BudgetRepo, UsageFilter, UsageRepo, sum_budget_grants
from tests.agent_builders import usual_cap
from tests.engine_harness import (
    BOSS,
    CHAT,
    GROUP,
    MATE,
    START,
    EngineHarness,
    ManualClock,
    open_seeded_database,
    run_engine,
)
from tests.thoroughness import sampled

SHANGHAI = ZoneInfo("Asia/Shanghai")
PLAIN = ModelPrice(
    input=Decimal(3), output=Decimal(15), cache_read=Decimal("0.3"), cache_write=Decimal("3.75")
)
MODELS = {
    "plain": PLAIN,
    "dear": ModelPrice(
        input=Decimal(30), output=Decimal(150), cache_read=Decimal(3), cache_write=Decimal(60)
    ),
    "free": ModelPrice(
        input=Decimal(0), output=Decimal(0), cache_read=Decimal(0), cache_write=Decimal(0)
    ),
}
NOTHING = TokenUsage(cost=None)
ZONE = ZoneInfo("Asia/Shanghai")
CAPS = {
    BudgetScope.TASK: SpendingCap(micros=5_000_000),
    BudgetScope.PERSON: SpendingCap(tokens=10_000),
    BudgetScope.DAY: SpendingCap(micros=25_000_000),
}
"""The fifth of January 2026 is a Monday."""


@dataclass
class Bank:
    """A budget on a real store. Runs are charged to a person and a chat."""

    db: Database
    clock: ManualClock
    caps: dict[BudgetScope, SpendingCap] = field(default_factory=dict)
    names: Any = field(default_factory=count)
    holder: str = "here"

    def __post_init__(self) -> None:
        self.usage = UsageRepo(self.db)
        self.budget = self.opened()

    def opened(self, **own: ModelPrice) -> SpendingBudget:
        return SpendingBudget(
            db=self.db,
            holder=self.holder,
            caps=SpendingCaps(zone=SHANGHAI, by_scope=self.caps),
            prices=PriceTable(custom_prices=own or MODELS),
            usage=self.usage,
            grants=BudgetRepo(self.db),
            task_cap=usual_cap,
            now=self.clock,
        )

    def reserve(self, person: str = BOSS.id, chat: str = CHAT.id, most: int = 16_000) -> Run:
        return self.begin({BudgetScope.PERSON: person, BudgetScope.CHAT: chat}, most)

    def begin(self, subjects: Mapping[BudgetScope, str], most: int) -> Run:
        made = self.budget.reserve(subjects, "openai", most)
        return Run(bank=self, reservation=made, id=f"{self.holder}-{next(self.names)}")

    async def book(self, run: Run, used: TokenUsage, model: str) -> None:
        """As a desk does: the run ends, and the store is told a moment later."""
        run.reservation.finish(used)
        async with self.db.write() as tx:
            await self.usage.add(tx, run.bill(used, model))
            await self.usage.book_call(tx, run.id, None)

    async def ask(self, hit: ReachedCap, task: TaskId | None = None) -> Approval:
        now = self.clock()
        async with self.db.write() as tx:
            return await request_cap_extension(
                tx,
                hit,
                task=task,
                chat_id=CHAT.id,
                title="Write a book",
                ids=IdGenerator(),
                now=now,
                expires_at=now + timedelta(days=7),
            )

    async def extend(self, hit: ReachedCap) -> None:
        approval = await self.ask(hit)
        approvals = ApprovalRepo(
            self.db, now=self.clock, decision_handlers={ApprovalKind.BUDGET: grant_cap_extension}
        )
        # Runs that were stopped together ask together, and one answer is enough.
        with suppress(WrongState):
            await approvals.decide(approval, approve=True, by=BOSS, source=f"p{next(self.names)}")

    async def allowed(self, limit: BudgetScope, subject: str, day: str) -> SpendingCap:
        async with self.db.read() as view:
            more = await sum_budget_grants(view, limit, subject, day)
        cap = self.caps[limit]
        return SpendingCap(micros=cap.micros + more.micros, tokens=cap.tokens + more.tokens)


@dataclass(kw_only=True)
class Run:
    """A run, which is asked for room before each call, and its bill."""

    bank: Bank
    reservation: BudgetReservation
    id: str

    async def __call__(self, model: str, input_tokens: int, spent: TokenUsage) -> int:
        subjects = self.reservation.subjects
        call = PendingModelCall(
            id=self.id,
            at=self.bank.clock(),
            purpose="step",
            backend="openai",
            model=model,
            person_id=PersonId(subjects[BudgetScope.PERSON])
            if BudgetScope.PERSON in subjects
            else None,
            chat_id=ChatId(subjects[BudgetScope.CHAT]) if BudgetScope.CHAT in subjects else None,
            task_id=None,
            requests=1,
            input_tokens=input_tokens,
            output_tokens=0,
            cost_micros=0,
        )
        return await self.reservation.admit(call, input_tokens, spent)

    def bill(self, used: TokenUsage, model: str) -> UsageRecord:
        return UsageRecord(
            at=self.bank.clock(),
            purpose="step",
            backend="openai",
            model=model,
            person_id=PersonId(self.reservation.subjects[BudgetScope.PERSON]),
            chat_id=ChatId(self.reservation.subjects[BudgetScope.CHAT]),
            task_id=None,
            requests=used.requests,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cache_read_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
            cost_micros=to_micros(self.reservation.cost(used, model)),
        )


@asynccontextmanager
async def bank(folder: Path, **caps: SpendingCap) -> AsyncGenerator[Bank, None]:
    async with AsyncExitStack() as stack:
        db = await open_seeded_database(folder / "shiftboss.db", stack)
        yield Bank(
            db=db, clock=ManualClock(), caps={BudgetScope(name): cap for name, cap in caps.items()}
        )


@asynccontextmanager
async def beside(first: Bank, folder: Path) -> AsyncGenerator[Bank, None]:
    """A second process with the store and the clock of the first."""
    async with AsyncExitStack() as stack:
        db = await Database.open(f"sqlite:///{folder / 'shiftboss.db'}", stack)
        yield Bank(db=db, clock=first.clock, caps=first.caps, holder="there")


@dataclass
class Running:
    """A run under way, and what it has really used."""

    reservation: Run
    model: str
    used: TokenUsage = NOTHING


_call = st.tuples(
    st.just("call"),
    st.integers(0, 3),
    st.integers(0, 60_000),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
)
_moves = st.lists(
    st.one_of(
        _call,
        _call,
        _call,
        st.tuples(st.just("ends"), st.integers(0, 3)),
        st.tuples(st.just("breaks"), st.integers(0, 3)),
        st.tuples(st.just("together"), st.integers(1, 40_000), st.floats(0, 1)),
    ),
    max_size=25,
)
_caps = st.fixed_dictionaries(
    {
        scope: st.builds(
            SpendingCap,
            micros=st.one_of(st.just(0), st.integers(1_000, 3_000_000)),
            tokens=st.one_of(st.just(0), st.integers(500, 300_000)),
        )
        for scope in (BudgetScope.PERSON, BudgetScope.CHAT, BudgetScope.DAY)
    }
)
_WHO = ((BOSS.id, CHAT.id), (MATE.id, GROUP.id), (BOSS.id, GROUP.id), (MATE.id, CHAT.id))


class Story:
    """One day at the bank: every run that was ever begun, and the truth about it."""

    def __init__(self, banks: tuple[Bank, Bank], models: tuple[str, ...]) -> None:
        self.banks = banks
        self.bank, _ = banks
        self.all: list[Running] = []
        self.here = [self.begun(n, models[n]) for n in range(len(_WHO))]

    def begun(self, which: int, model: str) -> Running:
        run = Running(reservation=self.banks[which % 2].reserve(*_WHO[which]), model=model)
        self.all.append(run)
        return run

    async def call(
        self, run: Running, reads: int, truth: float, cached: float, written: float
    ) -> None:
        """The call reads no more than was feared, and writes no more than it may."""
        try:
            most = await run.reservation(run.model, reads, run.used)
        except BudgetExceeded as reached:
            if truth > 0.8:
                await self.bank.extend(reached.cap)
            return
        assert most >= MIN_ANSWER_TOKENS
        read = int(reads * truth)
        from_cache = int(read * cached)
        run.used = TokenUsage(
            requests=run.used.requests + 1,
            input_tokens=run.used.input_tokens + read,
            output_tokens=run.used.output_tokens + (most if written > 0.5 else int(most * written)),
            cache_read_tokens=run.used.cache_read_tokens + from_cache,
            cache_write_tokens=run.used.cache_write_tokens + read - from_cache,
        )

    async def move(self, move: tuple[Any, ...]) -> None:
        match move:
            case ("call", which, reads, *truth):
                await self.call(self.here[which], reads, *truth)
            case ("together", reads, truth):
                await asyncio.gather(*(self.call(each, reads, truth, 0, 1) for each in self.here))
            case ("ends", which):
                run = self.here[which]
                await self.bank.book(run.reservation, run.used, run.model)
                self.here[which] = self.begun(which, run.model)
            case ("breaks", which):
                run = self.here[which]
                run.reservation.reservation.finish(run.used)
                self.here[which] = self.begun(which, run.model)

    def spent(self, scope: BudgetScope, subject: str) -> SpendingCap:
        mine = [
            each for each in self.all if each.reservation.reservation.subjects.get(scope) == subject
        ]
        costs = [
            each.reservation.reservation.cost(each.used, each.model) or Decimal(0) for each in mine
        ]
        return SpendingCap(
            micros=sum(to_micros(cost) or 0 for cost in costs),
            tokens=sum(each.used.input_tokens + each.used.output_tokens for each in mine),
        )


async def test_no_sequence_of_calls_ever_passes_a_cap(tmp_path: Path) -> None:
    """On one store, which two processes use, a day for each example: yesterday's money does not
    count today."""
    async with bank(tmp_path) as one, beside(one, tmp_path) as other:
        loop = asyncio.get_running_loop()

        async def play(
            caps: Mapping[BudgetScope, SpendingCap],
            models: tuple[str, ...],
            moves: list[tuple[Any, ...]],
        ) -> None:
            one.clock.advance(days=3)
            for each in (one, other):
                each.caps = {**caps}
                each.budget = each.opened()
            story = Story((one, other), models)
            for move in moves:
                await story.move(move)
                for limit in one.budget._caps.active_for(  # the same day for all of them
                    {BudgetScope.DAY: "", BudgetScope.PERSON: BOSS.id, BudgetScope.CHAT: GROUP.id},
                    one.clock(),
                ):
                    allowed = await one.allowed(limit.scope, limit.subject, limit.day)
                    spent = story.spent(limit.scope, limit.subject)
                    assert not limit.cap.micros or spent.micros <= allowed.micros
                    assert not limit.cap.tokens or spent.tokens <= allowed.tokens

        @settings(
            max_examples=sampled(60, 30),
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(_caps, st.tuples(*[st.sampled_from(sorted(MODELS))] * len(_WHO)), _moves)
        def examples(
            caps: Mapping[BudgetScope, SpendingCap],
            models: tuple[str, ...],
            moves: list[tuple[Any, ...]],
        ) -> None:
            asyncio.run_coroutine_threadsafe(play(caps, models, moves), loop).result()

        await asyncio.to_thread(examples)


async def test_a_call_may_write_no_more_than_fits_under_the_cap(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(micros=100_000)) as one:
        most = await one.reserve()("plain", 10_000, NOTHING)

    # All of what is read may have to be written to the cache, at 3.75 dollars a million.
    assert most == (100_000 - 37_500) // 15


async def test_a_tasks_own_cap_goes_before_the_usual_one(tmp_path: Path) -> None:
    own = {"t1": "10k tokens", "t2": ""}

    async def cap_of(task: TaskId) -> str:
        return own[task]

    async with bank(tmp_path, task=SpendingCap(tokens=50_000)) as one:
        one.budget = SpendingBudget(
            db=one.db,
            holder="here",
            caps=SpendingCaps(zone=SHANGHAI, by_scope=one.caps),
            prices=PriceTable(custom_prices=MODELS),
            usage=one.usage,
            grants=BudgetRepo(one.db),
            task_cap=cap_of,
            now=one.clock,
        )
        usual = one.begin({BudgetScope.TASK: "t2"}, 16_000)
        assert await usual("plain", 20_000, NOTHING) == 16_000
        small = one.begin({BudgetScope.TASK: "t1"}, 16_000)
        with pytest.raises(BudgetExceeded) as reached:
            await small("plain", 20_000, NOTHING)
        assert reached.value.cap.cap_tokens == 10_000


def test_the_cap_of_a_task_that_is_tried_again_counts_from_then_on() -> None:
    since = datetime(2026, 1, 5, tzinfo=UTC)
    caps = SpendingCaps(zone=SHANGHAI, by_scope={BudgetScope.TASK: SpendingCap(tokens=30_000)})

    again = caps.with_task_cap("", since).cap_for(BudgetScope.TASK, "t1", since)

    assert (again.since, again.cap.tokens, again.until) == (since, 30_000, None)
    assert caps.with_task_cap("").cap_for(BudgetScope.TASK, "t1", since).since is None


async def test_a_call_that_could_pass_the_cap_is_not_made(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(micros=50_000)) as one:
        with pytest.raises(BudgetExceeded) as reached:
            await one.reserve()("plain", 10_000, NOTHING)

    hit = reached.value.cap
    assert (hit.scope, hit.subject, hit.day) == ("day", "", "2026-01-05")
    assert (hit.cap_micros, hit.cap_tokens, hit.spent_micros) == (50_000, 0, 0)
    assert hit.until is not None
    assert hit.until.astimezone(SHANGHAI).isoformat() == "2026-01-06T00:00:00+08:00"


async def test_an_answer_too_short_to_be_of_use_is_not_paid_for(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(tokens=10_000 + MIN_ANSWER_TOKENS)) as one:
        run = one.reserve()
        assert await run("plain", 10_000, NOTHING) == MIN_ANSWER_TOKENS
        async with one.db.write() as tx:
            await one.usage.book_call(tx, run.id, None)
        with pytest.raises(BudgetExceeded):
            await one.reserve()("plain", 10_001, NOTHING)


async def test_a_short_answer_is_enough_where_no_more_is_wanted(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(tokens=1_100)) as one:
        assert await one.reserve(most=100)("plain", 1_000, NOTHING) == 100


async def test_what_others_may_still_use_is_not_given_away_twice(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(tokens=20_000)) as one:
        first = await one.reserve()("plain", 2_000, NOTHING)
        second = await one.reserve(MATE.id, GROUP.id)("plain", 900, NOTHING)

    assert (first, second) == (16_000, 20_000 - 18_000 - 900)


async def test_what_a_killed_process_had_reserved_counts_until_it_is_booked_once(
    tmp_path: Path,
) -> None:
    async with bank(tmp_path, day=SpendingCap(tokens=20_000)) as one:
        async with beside(one, tmp_path) as killed:
            assert await killed.reserve()("plain", 3_000, NOTHING) == 16_000
        with pytest.raises(BudgetExceeded):
            await one.reserve()("plain", 1_000, NOTHING)

        for living, lost in ((["there"], 0), (["here"], 1), (["here"], 0)):
            async with one.db.write() as tx:
                found = await one.usage.book_lost_calls(tx, now=one.clock(), living=living)
                assert found == lost

        spent = await one.usage.sum(UsageFilter())
        assert (spent.calls, spent.input_tokens, spent.estimated_tokens) == (1, 3_000, 3_000)
        assert await one.reserve()("plain", 1_000, NOTHING) == 16_000


async def test_a_model_without_a_price_is_seen_by_caps_on_tokens_only(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(micros=1)) as one:
        assert await one.reserve()("local-model", 5_000, NOTHING) == 16_000
    async with bank(tmp_path, day=SpendingCap(micros=1, tokens=8_000)) as one:
        assert await one.reserve()("local-model", 5_000, NOTHING) == 3_000


async def test_without_caps_all_is_allowed(tmp_path: Path) -> None:
    async with bank(tmp_path) as one:
        assert await one.reserve()("dear", 900_000, NOTHING) == 16_000


async def test_a_day_ends_where_the_boss_lives(tmp_path: Path) -> None:
    """09:00 UTC is 17:00 in Shanghai: seven hours later a new day has begun."""
    async with bank(tmp_path, person=SpendingCap(tokens=5_000)) as one:
        reservation = one.reserve()
        used = TokenUsage(requests=1, input_tokens=4_500, output_tokens=400)
        await one.book(reservation, used, "plain")
        with pytest.raises(BudgetExceeded):
            await one.reserve()("plain", 100, NOTHING)
        assert await one.reserve(MATE.id)("plain", 100, NOTHING) == 4_900
        one.clock.advance(hours=7)
        assert await one.reserve()("plain", 100, NOTHING) == 4_900


async def test_a_run_whose_bill_was_rolled_back_still_counts(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(tokens=10_000)) as one:
        reservation = one.reserve()
        await reservation("plain", 9_000 - MIN_ANSWER_TOKENS, NOTHING)
        used = TokenUsage(requests=1, input_tokens=9_000, output_tokens=500)
        reservation.reservation.finish(used)
        with suppress(RuntimeError):
            async with one.db.write() as tx:
                await one.usage.book_call(tx, reservation.id, reservation.bill(used, "plain"))
                raise RuntimeError("the disk is full")
        other = one.reserve()
        await one.book(other, TokenUsage(requests=1, input_tokens=1), "plain")

        with pytest.raises(BudgetExceeded) as reached:
            await one.reserve()("plain", 100, NOTHING)

    assert reached.value.cap.spent_tokens == 9_501, "and not the row that took its number"


async def test_whoever_is_stopped_by_the_same_cap_joins_one_request(tmp_path: Path) -> None:
    hit = _hit(cap_micros=5_000_000, spent_micros=4_900_000)
    async with bank(tmp_path) as one:
        first = await one.ask(hit)
        again = await one.ask(hit, TaskId("k3m9qa"))
        third = await one.ask(hit, TaskId("k3m9qa"))
        async with one.db.read() as view:
            stored = await find_waiting_budget_request(view, "day::2026-01-05", now=one.clock())
        tomorrow = await one.ask(replace(hit, day="2026-01-06"))

    assert first.id == again.id == third.id != tomorrow.id
    assert stored is not None
    assert stored.payload["tasks"] == ["k3m9qa"]
    assert (stored.kind, stored.approvers, stored.command_hash != "") == (
        ApprovalKind.BUDGET,
        (),
        True,
    )


async def test_a_grant_is_as_much_again_as_the_cap_itself_each_time(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(tokens=5_000)) as one:
        await one.book(one.reserve(), TokenUsage(requests=1, input_tokens=4_900), "plain")
        for allowed in (10_000, 15_000):
            with pytest.raises(BudgetExceeded) as reached:
                await one.reserve()("plain", allowed - 5_000, NOTHING)
            await one.extend(reached.value.cap)
            cap = await one.allowed(BudgetScope.DAY, "", "2026-01-05")
            assert (cap.tokens, cap.micros) == (allowed, 0)


async def test_who_was_stopped_before_a_grant_and_asks_after_it_asks_for_as_much(
    tmp_path: Path,
) -> None:
    hit = _hit(cap_micros=1_000_000, spent_micros=1_000_000)
    async with bank(tmp_path, day=SpendingCap(micros=1_000_000)) as one:
        await one.extend(hit)
        late = await one.ask(hit)

    assert late.payload["more_micros"] == 1_000_000


async def test_granting_the_same_request_again_changes_nothing(tmp_path: Path) -> None:
    async with bank(tmp_path, day=SpendingCap(micros=1_000_000)) as one:
        approval = await one.ask(_hit(cap_micros=1_000_000, spent_micros=1_000_000))
        for _ in range(2):
            async with one.db.write() as tx:
                await grant_cap_extension(tx, approval)

        assert (await one.allowed(BudgetScope.DAY, "", "2026-01-05")).micros == 2_000_000


async def test_a_request_about_a_day_ends_soon_after_it(tmp_path: Path) -> None:
    until = START + timedelta(hours=7)
    async with bank(tmp_path) as one:
        approval = await one.ask(replace(_hit(cap_micros=1, spent_micros=1), until=until))

    assert until < approval.expires_at < until + timedelta(minutes=10)


def test_many_small_sums_never_come_to_less_than_they_were() -> None:
    assert to_micros(Decimal("0.0000001")) == 1
    assert to_micros(Decimal(0)) == 0
    assert to_micros(None) is None


def _hit(*, cap_micros: int, spent_micros: int) -> ReachedCap:
    return ReachedCap(
        scope="day",
        subject="",
        day="2026-01-05",
        cap_micros=cap_micros,
        cap_tokens=0,
        spent_micros=spent_micros,
        spent_tokens=0,
        until=None,
    )


@asynccontextmanager
async def cost_service(
    home: Path, caps: dict[BudgetScope, SpendingCap] | None = None
) -> AsyncGenerator[tuple[EngineHarness, CostReportService], None]:
    async with run_engine(home, start_dispatcher=False) as world:
        of = CAPS if caps is None else caps
        usage, grants = UsageRepo(world.db), BudgetRepo(world.db)
        yield (
            world,
            CostReportService(
                usage,
                grants,
                SpendingCaps(zone=ZONE, by_scope=of),
                world.clock,
                heartbeat_runs=HeartbeatRepo(world.db),
            ),
        )


async def record_usage(world: EngineHarness, model: str = "opus", **changes: Any) -> None:
    facts: dict[str, Any] = {
        "at": START,
        "purpose": "step",
        "backend": "anthropic",
        "model": model,
        "person_id": BOSS.id,
        "chat_id": CHAT.id,
        "task_id": None,
        "requests": 1,
        "input_tokens": 1_000,
        "output_tokens": 100,
        "cache_read_tokens": 600,
        "cache_write_tokens": 200,
        "cost_micros": 2_000_000,
    }
    async with world.db.write() as tx:
        await UsageRepo(world.db).add(tx, UsageRecord(**(facts | changes)))


async def test_periods_begin_where_the_boss_lives(tmp_path: Path) -> None:
    """START is 17:00 in Shanghai: the day before ended seventeen hours ago."""
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world)
        await record_usage(world, at=START - timedelta(hours=16))
        await record_usage(world, at=START - timedelta(hours=18))
        await record_usage(world, at=START - timedelta(days=30))
        report = await service.report(by=BOSS, chat=CHAT.id)
        asked = [
            (await service.report(by=BOSS, chat=CHAT.id, query=query)).total.calls
            for query in (
                CostQuery(period=CostPeriod.TODAY),
                CostQuery(period=CostPeriod.DAYS, days=2),
                CostQuery(period=CostPeriod.ALL),
            )
        ]

    assert (report.today.calls, report.week.calls, report.month.calls) == (2, 2, 3)
    assert asked == [2, 3, 4]


async def test_it_is_broken_down_dearest_first_with_what_the_cache_did(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world, "haiku", cost_micros=10, purpose="plan")
        await record_usage(world, "opus")
        await record_usage(world, "opus", chat_id=GROUP.id, person_id=MATE.id)
        report = await service.report(
            by=BOSS, chat=CHAT.id, query=CostQuery(lists_chats_and_people=True)
        )

    assert [line.name for line in report.models] == ["opus", "haiku"]
    assert [(line.name, line.spent.calls) for line in report.purposes] == [("step", 2), ("plan", 1)]
    assert {line.name for line in report.people} == {"Boss", "Mate"}
    assert {line.name for line in report.chats} == {"web Boss", "web Team"}
    assert (report.total.cache_read_tokens, report.total.cache_write_tokens) == (1_800, 600)


async def test_one_model_can_be_asked_for_by_a_part_of_its_name(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world, "claude-opus-5-5")
        await record_usage(world, "gpt_5%")
        query = CostQuery(model="OPUS")
        report = await service.report(by=BOSS, chat=CHAT.id, query=query)
        percent = await service.report(by=BOSS, chat=CHAT.id, query=CostQuery(model="%"))

    assert [line.name for line in report.models] == ["claude-opus-5-5"]
    assert (report.total.calls, report.today.calls) == (1, 1)
    assert [line.name for line in percent.models] == ["gpt_5%"]


async def test_a_member_sees_what_they_and_their_chat_spent_and_no_names(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world)
        await record_usage(world, person_id=MATE.id, chat_id=GROUP.id)
        report = await service.report(
            by=MATE, chat=GROUP.id, query=CostQuery(lists_chats_and_people=True)
        )

    assert report.total.calls == 1
    assert (report.people, report.chats) == ((), ())
    assert [each.scope for each in report.caps] == [BudgetScope.PERSON]


@pytest.mark.parametrize("name", ["Asia/Shanghai", "Asia/Kathmandu", "America/Santiago", "UTC"])
async def test_days_are_those_of_the_zone_also_where_clocks_change(
    tmp_path: Path, name: str
) -> None:
    """In Santiago clocks change at midnight: on 4 April and on 6 September 2026."""
    zone, counted = ZoneInfo(name), Counter[date]()
    first = datetime(2026, 4, 3, tzinfo=UTC)
    hours = (*range(0, 96, 5), *range(156 * 24 - 48, 156 * 24 + 48, 7))
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        for hour in hours:
            at = first + timedelta(hours=hour, minutes=hour % 60)
            counted[at.astimezone(zone).date()] += 1
            await record_usage(world, at=at)
        days = await UsageRepo(world.db).by_day(UsageFilter(), zone)

    assert [(day, spent.calls) for day, spent in days] == sorted(counted.items())
    assert all(spent.tokens == spent.calls * 1_100 for _, spent in days)


async def test_the_caps_of_today_tell_what_is_left(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world)
        await record_usage(world, at=START - timedelta(days=1))
        report = await service.report(by=BOSS, chat=CHAT.id)

    left = {each.scope: each.remaining for each in report.caps}
    assert left == {
        BudgetScope.PERSON: SpendingCap(micros=0, tokens=10_000 - 1_100),
        BudgetScope.DAY: SpendingCap(micros=23_000_000),
    }


async def test_a_model_that_a_cap_on_money_cannot_see_is_named(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        await record_usage(world, "local-model", cost_micros=None)
        seen = await service.report(by=BOSS, chat=CHAT.id)
    async with cost_service(tmp_path, {BudgetScope.DAY: SpendingCap(tokens=5)}) as (_, service):
        by_tokens = await service.report(by=BOSS, chat=CHAT.id)

    assert seen.unpriced_models == ("local-model",)
    assert seen.month.unpriced == 1
    assert by_tokens.unpriced_models == ()


async def test_a_task_has_its_own_sum_and_its_own_cap(tmp_path: Path) -> None:
    async with cost_service(tmp_path) as (world, service):
        task = await world.create_task("write a book")
        await record_usage(world, task_id=task.id)
        await record_usage(world, task_id=task.id, at=START - timedelta(days=400), purpose="plan")
        await record_usage(world)
        cost = await service.report_task(task)

    assert cost.total.calls == 2
    assert {line.name for line in cost.purposes} == {"plan", "step"}
    assert [each.remaining for each in cost.caps] == [SpendingCap(micros=1_000_000)]
