"""A session that its model cannot take goes on: told shorter, and made shorter for good."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bot.engine.agent.account import Account
from bot.engine.agent.budget import Budget, Caps
from bot.engine.agent.context.history import SHORTENED, History
from bot.engine.agent.context.windows import Room, Windows
from bot.engine.agent.desk import Ask, Desk, Reply
from bot.engine.agent.prices import Prices
from bot.engine.llm.access import Api
from bot.engine.llm.api import ApiBackend
from bot.engine.llm.base import Chosen, Limits, Purpose, Tool, TooLong
from bot.engine.memory.archive.context import Archive
from storage.budgets import BudgetRepo
from storage.marks import Marks
from storage.records.people import Language
from storage.sessions import Session
from storage.usage import Span, UsageRepo
from tests.bot.engine.llm.world import MODELS, backend_of, tool_that
from tests.bot.engine.memory.archive.world import World, answered, asked, world
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Asked, Call, Failure
from tests.emulators.models.script import Reply as Said
from tests.engine_world import BOSS, CHAT, Clock, make_store

WINDOW = 8_000
SAYS = {
    "OpenAI": Failure(
        status=400,
        message="This model's maximum context length is 8,000 tokens. However, you requested 12345"
        " tokens (9345 in the messages, 3000 in the completion).",
        code="context_length_exceeded",
    ),
    "a local server": Failure(
        status=400, message="request (12345 tokens) exceeds the available context size (8000)"
    ),
    "one that gives no number": Failure(status=413, message="Your prompt is too long."),
}


def size(asked: Asked) -> int:
    """As the service counts."""
    return len(json.dumps(asked.body["messages"])) // 4 + int(
        asked.body.get("max_completion_tokens") or asked.body.get("max_tokens") or 0
    )


@dataclass
class Small:
    """A desk that works with a model of a small window; `windows` are what it knows of them."""

    world: World
    models: Models
    backend: ApiBackend
    windows: Windows = field(default_factory=Windows)
    grown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        w = self.world
        backend = self.backend

        class One:
            def choose(self, model: str, backend_name: str) -> Chosen:
                return Chosen(backend=backend, model=MODELS[Api.OPENAI])

        self.history = History(
            w.sessions,
            Archive(w.summaries),
            tokens=100_000,
            windows=self.windows,
            grown=self.grown.append,
        )
        self.usage = UsageRepo(w.db)
        self.desk = Desk(
            db=w.db,
            sessions=w.sessions,
            usage=self.usage,
            backends=One(),
            now=w.clock,
            new_id=lambda: "new",
            budget=Budget(
                caps=Caps(zone=ZoneInfo("UTC"), of={}),
                prices=Prices(),
                usage=self.usage,
                grants=BudgetRepo(w.db),
                now=w.clock,
            ),
            history=self.history,
        )

    async def ask(self, session: Session, prompt: str = "and now?", *tools: Tool) -> Reply:
        ask = Ask(
            purpose=Purpose.CHAT,
            prompt=prompt,
            system="You are a test.",
            language=Language.ENGLISH,
            account=Account(person=BOSS.id, chat=CHAT.id),
            facts={},
            tools=tools,
            limits=Limits(turns=20, output_tokens=100_000),
        )
        reply = await self.desk.ask(ask, self.desk.choose("", ""), session)
        async with self.world.db.write() as tx:
            await self.desk.book(tx, reply)
        return reply


@asynccontextmanager
async def small(home: Path, failure: Failure, **how: Any) -> AsyncGenerator[Small, None]:
    async with world(home) as w, Models() as models:
        backend = backend_of(models, Api.OPENAI)

        def reply(asked: Asked) -> Said:
            return Said(failure=failure) if size(asked) > WINDOW else Said(text="here I am")

        models.replies(reply)
        try:
            yield Small(w, models, backend, **how)
        finally:
            await backend.aclose()


async def long_talk(w: World, turns: int = 40) -> Session:
    session = await w.session(backend="openai")
    for n in range(turns):
        rows = [asked(f"question {n} " + "word " * 200), answered(f"answer {n} " + "yes " * 100)]
        await w.say(session, rows)
    return session


@pytest.mark.parametrize("failure", SAYS.values(), ids=SAYS)
async def test_a_chat_too_long_for_its_model_is_answered_all_the_same(
    tmp_path: Path, failure: Failure
) -> None:
    async with small(tmp_path, failure) as s:
        session = await long_talk(s.world)
        reply = await s.ask(session)
        first, second = s.models.requests
        next_one = await s.ask(session)

        assert reply.result.text == next_one.result.text == "here I am"
        assert size(first) > WINDOW >= size(second)
        assert "earlier messages of this conversation are left out" in json.dumps(second.body)
        assert second.said[-1] == "and now?"
        assert len(s.models.requests) == 3, "what a model can take is learnt once"
        assert s.grown == [session.id], "it is made shorter for good"
        assert len(await s.world.sessions.history(session.id)) == 84, "nothing is lost"


async def test_the_session_is_then_summarised_to_what_its_model_can_take(tmp_path: Path) -> None:
    windows = Windows()
    async with small(tmp_path, SAYS["OpenAI"], windows=windows) as s:
        session = await long_talk(s.world)
        await s.ask(session)
        s.world.windows[session.id] = await windows.of_session(session.id, "openai", "")
        s.world.compactor.grown(session.id)
        await s.world.compactor.look()
        told = await s.history.told(session.id)
        await s.ask(session)

        assert "<summary" in json.dumps(told[0])
        assert "It was said." in json.dumps(s.models.requests[-1].body)
        assert size(s.models.requests[-1]) <= WINDOW


async def test_what_was_done_before_it_became_too_long_is_kept_and_not_done_again(
    tmp_path: Path,
) -> None:
    calls: list[Mapping[str, Any]] = []
    async with small(tmp_path, SAYS["OpenAI"]) as s:

        def reply(asked: Asked) -> Said:
            if size(asked) > WINDOW:
                return Said(failure=SAYS["OpenAI"])
            if len(calls) < 3:
                path = f"{len(calls)}.md"
                return Said(calls=[Call(name="write", arguments={"path": path})])
            return Said(text="all written")

        s.models.replies(reply)
        s.windows.own = {"gpt-*": WINDOW}
        session = await s.world.session(backend="openai")
        done = await s.ask(session, "write three", tool_that("y" * 9_000, calls))
        rows = json.dumps(list(await s.world.sessions.history(session.id)))

        assert done.result.text == "all written"
        assert [each["path"] for each in calls] == ["0.md", "1.md", "2.md"]
        assert SHORTENED.strip() in rows
        assert (await s.usage.sum(Span())).calls > 1, "what it cost is counted"


async def test_a_question_that_is_too_long_by_itself_fails_and_says_so(tmp_path: Path) -> None:
    async with small(tmp_path, SAYS["OpenAI"]) as s:
        session = await s.world.session(backend="openai")
        with pytest.raises(TooLong) as error:
            await s.ask(session, "word " * 20_000)

        assert error.value.hint == "backend.too_long"
        assert len(s.models.requests) == 2, "once more, and no more"


async def test_a_known_window_is_kept_to_without_being_told(tmp_path: Path) -> None:
    windows = Windows(own={"gpt-*": WINDOW})
    async with small(tmp_path, SAYS["OpenAI"], windows=windows) as s:
        session = await long_talk(s.world)
        await s.ask(session)

        assert [size(each) <= WINDOW for each in s.models.requests] == [True]


async def test_what_people_set_counts_and_what_a_service_says_counts_more() -> None:
    published: list[tuple[str, str]] = []

    async def known(backend: str, model: str) -> int:
        published.append((backend, model))
        return 200_000 if model == "known" else 0

    windows = Windows(own={"qwen*": 8_192, "openai:big": 1_000_000}, published=known)
    assert await windows.of("openai", "Qwen2.5:7b") == 8_192
    assert await windows.of("openai", "big") == 1_000_000
    assert [await windows.of("openai", "known") for _ in range(2)] == [200_000] * 2
    assert await windows.room("s", "openai", "nobody", 500) == Room()
    assert published == [("openai", "known"), ("openai", "nobody")]
    assert (await windows.room("s", "openai", "big", 500)).answer == 16_000
    room = await windows.room("s", "openai", "qwen", 1_000)
    assert (room.answer, room.session) == (2_048, 4_096)
    assert await windows.of_session("s", "openai", "known") == 8_192, "who was asked last"

    await windows.learn("openai", "qwen", said=4_096, sent=9_000, began=False)
    assert await windows.of("openai", "qwen") == 4_096
    await windows.learn("openai", "qwen", said=4_096, sent=4_000, began=True)
    assert await windows.of("openai", "qwen") == 4_096
    await windows.learn("openai", "qwen", said=4_096, sent=4_000, began=False)
    assert await windows.of("openai", "qwen") == 3_072, "our estimates were too low"
    await windows.learn("openai", "qwen", said=0, sent=10, began=False)
    assert await windows.of("openai", "qwen") == 2_000


async def test_what_a_service_said_is_known_after_a_restart_for_a_month(tmp_path: Path) -> None:
    clock = Clock()
    async with AsyncExitStack() as stack:
        marks = Marks(await make_store(tmp_path / "shiftboss.db", stack))

        def begun(**own: int) -> Windows:
            return Windows(own=own, notes=marks, now=clock)

        await begun().learn("openai", "qwen", said=4_096, sent=9_000, began=False)
        await begun(phi=8_192).learn("openai", "phi", said=2_048, sent=9_000, began=False)

        assert await begun().of("openai", "qwen") == 4_096
        assert await begun(phi=8_192).of("openai", "phi") == 2_048, "the setting is as it was"
        assert await begun(phi=6_000).of("openai", "phi") == 6_000, "people have set it anew"
        assert await begun(qwen=9_000).of("openai", "qwen") == 9_000
        clock.pass_by(days=29)
        assert await begun().of("openai", "qwen") == 4_096
        clock.pass_by(days=2)
        assert await begun().of("openai", "qwen") == 0
