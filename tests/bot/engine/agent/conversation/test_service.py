"""Conversations: streamed, kept, cut short, and turned into proposals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.conversation.service import ConversationService
from bot.engine.agent.conversation.turn_taking import ConversationExpiry
from bot.engine.agent.model_calls import ModelReply
from bot.engine.llm.answer_schemas import PROPOSE_TASK
from bot.engine.llm.backend import (
    BackendUnavailable,
    BudgetExceeded,
    ReachedCap,
    RunRequest,
    RunResult,
)
from bot.engine.llm.offline.backend import OfflineBackend
from handlers.errors import BackendFailure
from handlers.ports import ChatQuestion
from storage.db import Transaction
from storage.errors import StoreUnavailable
from storage.heartbeat import HeartbeatRepo
from storage.messages.outbox import OutboxRepo, OutgoingCard
from storage.records.approvals import Approval, ApprovalKind
from storage.records.autonomy import HeartbeatOutcome, WakeReason
from storage.records.messages import DeliveryUrgency
from storage.records.people import Language
from storage.records.tasks import TaskPriority
from storage.sessions import SessionRepo
from storage.usage import UsageFilter, UsageRepo
from tests.agent_builders import make_context_builder, make_conversation
from tests.engine_harness import (
    BOSS,
    CHAT,
    START,
    EngineHarness,
    FakeBackend,
    ManualClock,
    run_engine,
    run_result,
)

NEWS = ("Rent is due", "The moon is full")
PNG = b"\x89PNG\r\n\x1a\n and more"


class Talker(FakeBackend):
    """Answers talk with `said`, one delta a word, waiting at `gate` after the first."""

    said = "hello there Boss"
    gate: asyncio.Event | None = None
    fails: Exception | None = None
    cut = False

    async def respond(self, request: RunRequest) -> RunResult:
        if self.fails:
            raise self.fails
        return replace(run_result(text=self.said), truncated=self.cut)


async def at_once(_seconds: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def talking(
    home: Path,
    backend: Any = None,
    sleep: Callable[[float], Awaitable[None]] = at_once,
    resets: ConversationExpiry | None = None,
    clock: ManualClock | None = None,
) -> AsyncGenerator[tuple[EngineHarness, ConversationService], None]:
    async with run_engine(home, backend or Talker(), start_dispatcher=False, clock=clock) as world:
        yield (
            world,
            make_conversation(
                db=world.db,
                sessions=SessionRepo(world.db),
                gateway=world.gateway,
                data_dir=home,
                context_builder=make_context_builder(),
                now=world.clock,
                sleep=sleep,
                expiry=resets or ConversationExpiry(),
            ),
        )


def question(text: str, **changes: Any) -> ChatQuestion:
    facts: dict[str, Any] = {"language": Language.ENGLISH, "source": "inbox:1", **changes}
    return ChatQuestion(person=BOSS, chat=CHAT, text=text, **facts)


async def unseen(_text: str) -> None:
    pass


async def test_an_answer_is_shown_as_it_grows_and_then_whole(tmp_path: Path) -> None:
    shown: list[str] = []

    async def show(text: str) -> None:
        shown.append(text)

    async with talking(tmp_path) as (_, talk):
        said = await talk.answer(question("hi"), show)

    assert shown == ["hello ", "hello there ", "hello there Boss "]
    assert said.text == "hello there Boss"


async def test_news_of_the_heartbeat_during_an_answer_reach_the_next_turn_once(
    tmp_path: Path,
) -> None:
    async with talking(tmp_path) as (world, talk):
        runs = HeartbeatRepo(world.db)
        await _heartbeat_tells(world, runs, "Rent is due")

        async def tell_meanwhile(text: str) -> None:
            world.clock.advance(seconds=1)
            if text == "hello there ":
                await _heartbeat_tells(world, runs, "The moon is full")

        await talk.answer(question("one"), tell_meanwhile)
        for number in (2, 3):
            await talk.answer(question("next", source=f"inbox:{number}"), unseen)

        told = [(text in each.prompt) for each in world.backend.requests for text in NEWS]
        assert told == [True, False, False, True, False, False]


async def _heartbeat_tells(world: EngineHarness, runs: HeartbeatRepo, text: str) -> None:
    now = world.clock()
    async with world.db.write() as tx:
        run = await runs.add(tx, (WakeReason.INTERVAL,), HeartbeatOutcome.RUNNING, now=now)
        await runs.settle(tx, run, HeartbeatOutcome.SAID, now=now, text=text)
        new = OutgoingCard(
            key=f"heartbeat:{run.id}", chat_id=CHAT.id, urgency=DeliveryUrgency.NOTICE, card={}
        )
        await OutboxRepo(world.db).put(tx, new, now=now)


async def test_an_answer_that_is_paid_for_waits_for_the_store(tmp_path: Path) -> None:
    rested: list[float] = []

    async def sleep(seconds: float) -> None:
        rested.append(seconds)

    async with talking(tmp_path, sleep=sleep) as (world, talk):
        book, troubles = world.gateway.record_reply, [StoreUnavailable("disk full")] * 2

        async def fails_at_first(tx: Transaction, reply: ModelReply) -> None:
            await book(tx, reply)
            if troubles:
                raise troubles.pop()

        world.gateway.record_reply = fails_at_first  # type: ignore[method-assign]  # full for a while
        said = await talk.answer(question("hi"), unseen)

        assert said.text == "hello there Boss"
        assert len(rested) == 2
        assert len(world.backend.requests) == 1
        assert (await UsageRepo(world.db).sum(UsageFilter(since=START))).calls == 1
        world.gateway.record_reply = book  # type: ignore[method-assign]  # and free again
        await talk.answer(question("and now?"), unseen)
        assert len(world.backend.requests[-1].history) == 1, "the turn is kept once"


async def test_the_next_turn_knows_the_one_before(tmp_path: Path) -> None:
    async with talking(tmp_path) as (world, talk):
        await talk.answer(question("hi"), unseen)
        await talk.answer(question("and now?"), unseen)

        assert [len(request.history) for request in world.backend.requests] == [0, 1]


async def test_a_new_conversation_forgets(tmp_path: Path) -> None:
    async with talking(tmp_path) as (world, talk):
        await talk.answer(question("hi"), unseen)
        assert await talk.reset(CHAT.id)
        assert not await talk.reset(CHAT.id)
        await talk.answer(question("who am I?"), unseen)

        assert world.backend.requests[-1].history == ()


async def test_a_session_goes_on_however_many_turns_it_has(tmp_path: Path) -> None:
    async with talking(tmp_path) as (world, talk):
        for _ in range(30):
            await talk.answer(question("go on"), unseen)

        assert [len(request.history) for request in world.backend.requests] == list(range(30))


async def test_a_session_ends_by_tokens_where_that_is_chosen(tmp_path: Path) -> None:
    async with talking(tmp_path, resets=ConversationExpiry(max_tokens=14)) as (world, talk):
        for _ in range(3):
            await talk.answer(question("go on"), unseen)

        assert [len(request.history) for request in world.backend.requests] == [0, 0, 0]


async def test_a_session_ends_by_idleness_and_by_turns(tmp_path: Path) -> None:
    most = 10
    async with talking(tmp_path, resets=ConversationExpiry(max_turns=most)) as (world, talk):
        await talk.answer(question("hi"), unseen)
        world.clock.advance(minutes=61)
        for _ in range(most + 1):
            await talk.answer(question("go on"), unseen)

        turns = [len(request.history) for request in world.backend.requests]
        assert turns == [0, *range(most), 0]


async def test_an_answer_cut_short_keeps_what_was_said_and_the_next_knows_the_question(
    tmp_path: Path,
) -> None:
    begun = asyncio.Event()

    async def show(_text: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with talking(tmp_path) as (world, talk):
        answering = asyncio.create_task(talk.answer(question("tell me all"), show))
        await begun.wait()
        assert talk.interrupt(CHAT.id)
        assert not talk.interrupt(CHAT.id)

        said = await answering

        assert (said.text, said.interrupted) == ("hello ", True)
        await talk.answer(question("short, please"), unseen)
        await talk.answer(question("thanks"), unseen)
        spent = await UsageRepo(world.db).sum(UsageFilter(since=START))
        assert (spent.calls, spent.input_tokens) == (3, 30), "the cut answer was paid for too"
        _, short, thanks = world.backend.requests
        assert (short.history, "tell me all" in short.prompt) == ((), True)
        assert thanks.prompt == "thanks"


async def test_what_was_cut_short_is_known_after_a_restart_too(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def show(_text: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with talking(tmp_path) as (_, talk):
        answering = asyncio.create_task(talk.answer(question("tell me all"), show))
        await begun.wait()
        talk.interrupt(CHAT.id)
        await answering
    async with talking(tmp_path) as (world, talk):
        await talk.answer(question("short, please"), unseen)
        await talk.answer(question("thanks"), unseen)

        first, second = world.backend.requests
        assert "tell me all" in first.prompt
        assert second.prompt == "thanks"


@pytest.mark.parametrize(
    ("language", "note"), [(Language.ENGLISH, "Say “continue”"), (Language.CHINESE, "说“继续说”")]
)
async def test_an_answer_that_reached_the_longest_allowed_is_kept_and_says_how_to_go_on(
    tmp_path: Path, language: Language, note: str
) -> None:
    backend = Talker()
    backend.cut = True
    async with talking(tmp_path, backend) as (world, talk):
        half = await talk.answer(replace(question("tell me all"), language=language), unseen)
        backend.cut = False
        rest = await talk.answer(question("go on"), unseen)

        assert (half.text, half.interrupted) == ("hello there Boss", False)
        assert note in half.notes[0]
        assert rest.notes == ()
        _, going_on = world.backend.requests
        assert going_on.history == ({"said": "hello there Boss"},), "it can be gone on with"


async def test_a_failing_model_is_told_by_its_hint(tmp_path: Path) -> None:
    backend = Talker()
    backend.fails = BackendUnavailable("529")
    async with talking(tmp_path, backend) as (_, talk):
        with pytest.raises(BackendFailure) as failure:
            await talk.answer(question("hi"), unseen)

    assert failure.value.hint == "backend.unavailable"
    assert len(backend.requests) == 3


async def test_a_service_that_is_back_soon_is_waited_for(tmp_path: Path) -> None:
    backend = Talker()
    backend.fails = BackendUnavailable("429", retry_after=2.0)
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        backend.fails = None

    async with talking(tmp_path, backend, sleep) as (_, talk):
        said = await talk.answer(question("hi"), unseen)

    assert (said.text, waited) == ("hello there Boss", [2.0])


async def test_a_service_that_sends_us_away_for_long_is_told_about_at_once(tmp_path: Path) -> None:
    backend = Talker()
    backend.fails = BackendUnavailable("429", retry_after=60.0)
    async with talking(tmp_path, backend) as (_, talk):
        with pytest.raises(BackendFailure):
            await talk.answer(question("hi"), unseen)

    assert len(backend.requests) == 1


async def test_files_reach_the_model_pictures_as_pictures(tmp_path: Path) -> None:
    sent = {"a": PNG, "b.txt": b"words", "c.png": b"<svg/>", "d.jpg": PNG}
    for name, content in sent.items():
        (tmp_path / name).write_bytes(content)
    async with talking(tmp_path) as (world, talk):
        await talk.answer(question("see", files=tuple(sent)), unseen)

        asked = world.backend.requests[0]
        assert [(one.path.name, one.mime) for one in asked.pictures] == [
            ("a", "image/png"),
            ("d.jpg", "image/png"),
        ]
        assert all(name in asked.prompt for name in ("b.txt", "c.png"))


async def test_work_said_in_plain_words_becomes_a_proposal(tmp_path: Path) -> None:
    async with talking(tmp_path, OfflineBackend()) as (_, talk):
        said = await talk.answer(question("Write a haiku and save it to haiku.md"), unseen)

    assert said.proposal is not None
    assert "haiku.md" in said.proposal.text
    assert isinstance(said.proposal.priority, TaskPriority)


async def test_what_a_failed_try_proposed_is_not_proposed(tmp_path: Path) -> None:
    class Broken(Talker):
        async def respond(self, request: RunRequest) -> RunResult:
            if len(self.requests) > 1:
                return run_result(text="Good morning!")
            (propose,) = request.tools
            await propose.run({"title": "Greet", "task": "Write a greeting"})
            raise BackendUnavailable("529")

    async with talking(tmp_path, Broken()) as (_, talk):
        said = await talk.answer(question("Good morning"), unseen)

    assert (said.text, said.proposal) == ("Good morning!", None)


async def test_a_declined_proposal_is_not_made_again(tmp_path: Path) -> None:
    async with talking(tmp_path) as (world, talk):
        await talk.answer(question("Write it", no_proposal=True), unseen)
        await talk.answer(question("Write it"), unseen)

        tools = [[tool.name for tool in request.tools] for request in world.backend.requests]
        assert tools == [[], [PROPOSE_TASK]]


async def test_talk_that_would_pass_a_cap_asks_the_owners_for_more_once(tmp_path: Path) -> None:
    worker = Talker()
    worker.fails = BudgetExceeded(
        ReachedCap(
            scope="day",
            subject="",
            day="2026-01-05",
            cap_micros=25_000_000,
            cap_tokens=0,
            spent_micros=24_990_000,
            spent_tokens=5,
            until=START + timedelta(hours=7),
        )
    )
    async with talking(tmp_path, worker) as (_, talk):
        with pytest.raises(BackendFailure) as failure:
            await talk.answer(question("what does it cost?"), unseen)
        with pytest.raises(BackendFailure) as again:
            await talk.answer(question("hello?"), unseen)

    first, second = (each.value.facts["approval"] for each in (failure, again))
    assert isinstance(first, Approval)
    assert isinstance(second, Approval)
    assert first.id == second.id
    assert (first.kind, first.title) == (ApprovalKind.BUDGET, "what does it cost?")
    assert (first.payload["more_micros"], first.payload["tasks"]) == (25_000_000, [])
    assert failure.value.hint == "backend.budget"


class WritingTalker(Talker):
    """Writes `file` into the chat's folder before it answers."""

    file = ""
    content = "miau"

    async def respond(self, request: RunRequest) -> RunResult:
        assert request.workspace is not None
        if self.file:
            request.workspace.mkdir(parents=True, exist_ok=True)
            (request.workspace / self.file).write_text(self.content)
        return await super().respond(request)


async def notes_of(home: Path, backend: Talker, text: str, **changes: Any) -> tuple[str, ...]:
    async with talking(home, backend) as (_, talk):
        return tuple((await talk.answer(question(text, **changes), unseen)).notes)


async def test_an_answer_that_claims_a_file_is_checked(tmp_path: Path) -> None:
    backend = WritingTalker()
    backend.said = "I wrote it into cats.txt."

    lied = await notes_of(tmp_path, backend, "Write a poem into cats.txt")
    chinese = await notes_of(tmp_path, backend, "写一首诗存到 cats.txt", language=Language.CHINESE)
    backend.file = "cats.txt"
    honest = await notes_of(tmp_path, backend, "Write a poem into cats.txt")

    assert lied == ("⚠️ Not written: cats.txt. No such file is there.",)
    assert chinese == ("⚠️ 没有写出 cats.txt，找不到这个文件。",)
    assert honest == ()


async def test_an_answer_that_spoils_or_does_not_change_a_file_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "workspaces" / f"chat-{CHAT.id}"
    folder.mkdir(parents=True)
    file, backend = folder / "a.ini", WritingTalker()
    file.write_text("[server]\nport = 8080\n")
    ask = "Change the port in a.ini to 9090"
    clock = ManualClock()
    clock.advance_to(datetime.now(UTC) + timedelta(hours=1))

    async with talking(tmp_path, backend, clock=clock) as (_, talk):
        idle = await talk.answer(question(ask), unseen)
        backend.said = "The port is already 9090."
        believed = await talk.answer(question(ask, source="inbox:2"), unseen)
        backend.file, backend.content = "a.ini", "server\nport = 9090\n"
        spoilt = await talk.answer(question("Look at a.ini", source="inbox:3"), unseen)

    assert idle.notes == ("⚠️ Not changed: a.ini.",)
    assert believed.notes == ()
    assert spoilt.notes[0].startswith("⚠️ Valid before, and not any more: a.ini (not valid INI")


async def test_a_question_how_to_write_a_file_has_no_note(tmp_path: Path) -> None:
    assert await notes_of(tmp_path, Talker(), "How do I write a poem into cats.txt?") == ()
