"""The gateway books usage, keeps work and updates caps, however a run ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from bot.engine.agent.budget import SpendingBudget, SpendingCaps
from bot.engine.agent.model_calls import ModelReply, ModelRequest
from bot.engine.agent.pricing import ModelPrice, PriceTable
from bot.engine.autonomy.doctor import ModelCallProbe
from bot.engine.llm.backend import (
    MAX_ANSWER_TOKENS,
    BackendUnavailable,
    BudgetExceeded,
    ImageInput,
    PartialTurn,
    RunLimits,
    RunPurpose,
    RunRequest,
    RunResult,
    TokenUsage,
)
from bot.engine.workers.spec import CostAccount
from storage import schema
from storage.db import Database, Transaction
from storage.errors import StoreUnavailable
from storage.records.people import Language
from storage.records.system import ModelChoice
from storage.records.usage import BudgetScope, SpendingCap
from storage.sessions import SessionRepo
from storage.usage import BudgetRepo, UsageFilter, UsageRepo
from tests.agent_builders import make_gateway, usual_cap
from tests.engine_harness import BOSS, CHAT, EngineHarness, FakeBackend, run_engine
from tests.fakes.backends import OnlyBackend
from tests.waiting import wait_until

USED = TokenUsage(requests=1, input_tokens=1_000, output_tokens=100, cache_read_tokens=400)
PRICE = ModelPrice(
    input=Decimal(10), output=Decimal(100), cache_read=Decimal(1), cache_write=Decimal(10)
)


class Spender(FakeBackend):
    """Asks before it works, as the model APIs do; then fails, if it is told to."""

    fails: Exception | None = None
    is_answered = False
    turns = 1
    allowed: list[int]

    async def respond(self, request: RunRequest) -> RunResult:
        self.allowed = []
        history: tuple[Any, ...] = ()
        for turn in range(self.turns):
            used = TokenUsage(requests=turn, input_tokens=1_000 * turn, output_tokens=100 * turn)
            assert request.gate is not None
            try:
                self.allowed.append(await request.gate("fake-1", 1_000, used))
            except BudgetExceeded as reached:
                raise BudgetExceeded(reached.cap, usage=used, new_history=history) from None
            history = (*history, {"turn": turn})
        if self.fails:
            raise self.fails
        return RunResult(text="done", value=None, model="fake-1", usage=USED, new_history=history)


class Money:
    """A desk with caps over a backend that spends."""

    def __init__(
        self, world: EngineHarness, worker: Spender, cap: SpendingCap, **changes: Any
    ) -> None:
        self.db = world.db
        self.usage = UsageRepo(world.db)
        self.sessions = SessionRepo(world.db)
        self.worker = worker
        ids = count(1)
        self.desk = make_gateway(
            world.db,
            OnlyBackend(worker, "fake-1"),
            world.clock,
            lambda: f"s{next(ids)}",
            budget=SpendingBudget(
                db=world.db,
                holder="here",
                caps=SpendingCaps(zone=ZoneInfo("UTC"), by_scope={BudgetScope.CHAT: cap}),
                prices=PriceTable(custom_prices={"fake-*": PRICE}),
                usage=self.usage,
                grants=BudgetRepo(world.db),
                task_cap=usual_cap,
                now=world.clock,
            ),
            **changes,
        )

    async def ask(
        self,
        *,
        book: bool = True,
        output_tokens: int = 32_000,
        turn_key: str = "",
        pictures: tuple[ImageInput, ...] = (),
    ) -> None:
        reply = await self.call(output_tokens=output_tokens, turn_key=turn_key, pictures=pictures)
        if book:
            async with self.db.write() as tx:
                await self.desk.record_reply(tx, reply)

    async def call(
        self,
        *,
        output_tokens: int = 32_000,
        turn_key: str = "",
        pictures: tuple[ImageInput, ...] = (),
    ) -> ModelReply:
        chosen = self.desk.select_backend("", "")
        session = await self.desk.open_session("task:t", chosen)
        ask = ModelRequest(
            purpose=RunPurpose.STEP,
            prompt="work",
            system_prompt="",
            language=Language.ENGLISH,
            account=CostAccount(person=BOSS.id, chat=CHAT.id),
            facts={},
            limits=RunLimits(output_tokens=output_tokens),
            turn_key=turn_key,
            pictures=pictures,
        )
        return await self.desk.call_model(ask, chosen, session)


@asynccontextmanager
async def money(home: Path, cap: SpendingCap, **how: Any) -> AsyncGenerator[Money, None]:
    async with run_engine(home, start_dispatcher=False) as world:
        worker = Spender()
        for name, value in how.items():
            setattr(worker, name, value)
        yield Money(world, worker, cap)


async def test_own_prices_are_what_is_booked(tmp_path: Path) -> None:
    async with money(tmp_path, SpendingCap()) as one:
        await one.ask()
        spent = await one.usage.sum(UsageFilter())

    assert spent.cost_micros == 600 * 10 + 400 * 1 + 100 * 100
    assert (spent.cache_read_tokens, spent.unpriced) == (400, 0)


async def test_no_answer_is_allowed_to_be_longer_than_the_run_may_write(tmp_path: Path) -> None:
    async with money(tmp_path, SpendingCap()) as one:
        await one.ask()
        assert one.worker.allowed == [MAX_ANSWER_TOKENS]
        await one.ask(output_tokens=50)
        assert one.worker.allowed == [50]


async def test_the_doctor_finds_a_cap_that_its_call_would_pass(tmp_path: Path) -> None:
    async with money(tmp_path, SpendingCap(tokens=1)) as one:
        probe = ModelCallProbe(
            gateway=one.desk,
            db=one.db,
            choices=lambda: (ModelChoice(backend=one.worker.name, model="fake-1"),),
            account=CostAccount(person=BOSS.id, chat=CHAT.id),
            is_api=lambda _: True,
        )
        found = await probe.find()

    assert [each.text for each in found] == ["model_capped"]


async def test_what_is_booked_counts_once(tmp_path: Path) -> None:
    async with money(tmp_path, SpendingCap(tokens=5_000)) as one:
        await one.ask()
        await one.ask()

    assert one.worker.allowed == [5_000 - 1_100 - 1_000]


async def test_what_is_not_booked_yet_counts_too(tmp_path: Path) -> None:
    async with money(tmp_path, SpendingCap(tokens=5_000)) as one:
        await one.ask(book=False)
        await one.ask()

    assert one.worker.allowed == [5_000 - 1_100 - 1_000]


async def test_what_failed_is_booked_and_holds_nothing_back(tmp_path: Path) -> None:
    async with money(tmp_path, SpendingCap(tokens=6_000)) as one:
        one.worker.fails = BackendUnavailable("gone", usage=USED)
        with pytest.raises(BackendUnavailable):
            await one.ask()
        one.worker.fails = BackendUnavailable("gone before anything was said")
        with pytest.raises(BackendUnavailable):
            await one.ask()
        one.worker.fails = None
        await one.ask()

    assert one.worker.allowed == [6_000 - 1_100 - 1_000]


async def test_of_a_broken_run_what_it_says_it_has_used_is_all_that_counts(tmp_path: Path) -> None:
    async with money(tmp_path, SpendingCap(tokens=5_000)) as one:
        one.worker.fails = RuntimeError("a tool of ours is broken")
        with pytest.raises(RuntimeError):
            await one.ask()
        one.worker.fails = None
        await one.ask()

    # Ten tokens is what that run tells.
    assert one.worker.allowed == [5_000 - 10 - 1_000]


async def test_what_a_stopped_run_has_done_is_kept_with_what_it_has_cost(tmp_path: Path) -> None:
    async with money(tmp_path, SpendingCap(tokens=5_000), turns=4) as one:
        with pytest.raises(BudgetExceeded) as reached:
            await one.ask()
        kept = await one.sessions.list_messages("s1")
        spent = await one.usage.sum(UsageFilter())

    assert reached.value.cap.scope == "chat"
    assert reached.value.cap.spent_tokens == spent.input_tokens + spent.output_tokens == 3_300
    assert kept == ({"turn": 0}, {"turn": 1}, {"turn": 2})


class Replier(Spender):
    """Gets one reply, which is stored when it arrives; `arrived` is set just before. A run that
    goes on has its result in that, if it `is_answered`."""

    arrived: asyncio.Event

    async def respond(self, request: RunRequest) -> RunResult:
        assert request.gate is not None
        assert request.on_reply is not None
        if request.resumed_text is not None and self.is_answered:
            return RunResult(
                text="done", value=None, model="fake-1", usage=TokenUsage(), new_history=()
            )
        await request.gate("fake-1", 1_000, TokenUsage())
        self.arrived.set()
        message = {"kind": "response", "parts": []}
        reply = PartialTurn(messages=(message,), usage=USED, model="fake-1", context_tokens=1_100)
        await request.on_reply(reply)
        if self.fails:
            raise self.fails
        return await asyncio.Future()


@asynccontextmanager
async def replying(
    home: Path, **changes: Any
) -> AsyncGenerator[tuple[Money, asyncio.Task[None]], None]:
    """A call whose reply has just arrived."""
    async with run_engine(home, start_dispatcher=False) as world:
        worker = Replier()
        worker.arrived = asyncio.Event()
        one = Money(world, worker, SpendingCap(tokens=5_000), **changes)
        asked = asyncio.create_task(one.ask(turn_key="step t"))
        await worker.arrived.wait()
        yield one, asked


async def cancel(asked: asyncio.Task[None]) -> None:
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_a_run_that_is_cancelled_while_a_reply_is_stored_has_its_bill_once(
    tmp_path: Path,
) -> None:
    async with replying(tmp_path) as (one, asked):
        async with one.db.write():
            asked.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await asked

        spent = await one.usage.sum(UsageFilter())
        session = await one.sessions.find_open("task:t")

    assert (spent.calls, spent.input_tokens, spent.output_tokens) == (1, 1_000, 100)
    assert session is not None
    assert session.open_turn, "it goes on from there"


async def test_a_run_that_is_cancelled_while_the_store_is_full_has_its_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book_call, tries, resting = UsageRepo.book_call, count(), asyncio.Event()

    async def is_full_at_first(repo: UsageRepo, tx: Transaction, *of: Any, **how: Any) -> None:
        if next(tries) < 2:  # as one of a group, and alone
            raise StoreUnavailable("disk full")
        await book_call(repo, tx, *of, **how)

    async def rest(_seconds: float) -> None:
        resting.set()
        await asyncio.Future()

    monkeypatch.setattr(UsageRepo, "book_call", is_full_at_first)
    async with replying(tmp_path, sleep=rest) as (one, asked):
        await resting.wait()
        await cancel(asked)

        spent = await one.usage.sum(UsageFilter())

    # The fake reports a call of ten tokens besides.
    assert (spent.input_tokens, spent.output_tokens) == (1_010, 100)


async def test_a_turn_that_goes_on_is_sent_without_the_pictures_it_began_with(
    tmp_path: Path,
) -> None:
    async with run_engine(tmp_path, start_dispatcher=False) as world:
        worker = Replier()
        worker.fails = BackendUnavailable("gone")
        worker.arrived = asyncio.Event()
        one = Money(world, worker, SpendingCap())
        shown = (ImageInput(path=tmp_path / "cat.png", mime="image/png"),)
        for _ in range(2):
            with pytest.raises(BackendUnavailable):
                await one.ask(turn_key="step t", pictures=shown)

    first, again = worker.requests
    assert (first.pictures, again.pictures) == (shown, ())
    assert again.resumed_text is not None


async def test_an_answer_that_was_stored_before_its_run_broke_off_is_booked_once(
    tmp_path: Path,
) -> None:
    async with replying(tmp_path) as (one, asked):
        one.worker.fails = BackendUnavailable("gone")
        with pytest.raises(BackendUnavailable):
            await asked
        one.worker.is_answered = True
        await one.ask(turn_key="step t")
        rows = await one.db.fetch_all(sa.select(schema.usage.c.input_tokens))

    assert [each.input_tokens for each in rows] == [1_000]


class ForgetfulStore:
    """Makes the next write with usage in it end as if the answer to its commit had been lost, and
    no server could tell what became of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._commit, book_call = Database._commit, UsageRepo.book_call
        self.is_lost = self.has_booked = False

        async def book(repo: UsageRepo, tx: Transaction, *of: Any, **how: Any) -> None:
            self.has_booked = True
            await book_call(repo, tx, *of, **how)

        async def commit(db: Database, tx: Transaction) -> None:
            await self._commit(db, tx)
            if self.has_booked and not self.is_lost:
                self.is_lost = True
                raise StoreUnavailable("whether it was stored is not known")

        monkeypatch.setattr(UsageRepo, "book_call", book)
        monkeypatch.setattr(Database, "_commit", commit)


async def test_a_reply_whose_commit_is_in_doubt_is_booked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replying(tmp_path) as (one, asked):
        store = ForgetfulStore(monkeypatch)
        await wait_until(lambda: store.is_lost)
        async with one.db.write():
            """The second try has the lock before."""
        await cancel(asked)
        spent = await one.usage.sum(UsageFilter())
        kept = await one.sessions.list_messages("s1")

    assert (spent.calls, spent.input_tokens, spent.output_tokens) == (1, 1_000, 100)
    assert len(kept) == 1


async def test_a_result_whose_commit_is_in_doubt_is_booked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with money(tmp_path, SpendingCap()) as one:
        reply = await one.call()
        store = ForgetfulStore(monkeypatch)
        for _ in range(2):
            with suppress(StoreUnavailable):
                async with one.db.write() as tx:
                    await one.desk.record_reply(tx, reply)
        spent = await one.usage.sum(UsageFilter())

    assert store.is_lost
    assert (spent.calls, spent.input_tokens) == (1, 1_000)


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_failed_call_whose_bill_the_store_did_not_take_is_booked_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    async with money(tmp_path, SpendingCap()) as one:
        one.worker.fails = BackendUnavailable("gone", usage=USED)
        with monkeypatch.context() as broken:
            store = ForgetfulStore(broken)
            if not is_stored:
                broken.setattr(UsageRepo, "book_call", fail_for_lack_of_space)
            with pytest.raises(StoreUnavailable):
                await one.ask()
        assert store.is_lost is is_stored
        one.worker.fails = None
        await one.ask()
        spent = await one.usage.sum(UsageFilter())
        left = await one.db.fetch_all(sa.select(schema.pending_model_calls))

    assert (spent.calls, spent.input_tokens) == (2, 2_000)
    assert not left


async def fail_for_lack_of_space(*_of: Any, **_how: Any) -> None:
    raise StoreUnavailable("disk full")
