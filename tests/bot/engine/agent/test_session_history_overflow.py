"""A session that its model cannot take goes on: told shorter, and made shorter for good."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.engine.agent.context_window import ContextBudget, ContextWindows
from bot.engine.agent.model_calls import ModelReply, ModelRequest
from bot.engine.agent.session_history import SHORTENED_NOTE, SessionHistory
from bot.engine.llm.api.access import ApiProvider
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import ContextTooLong, RunLimits, RunPurpose
from bot.engine.llm.tool_calls import AgentTool
from bot.engine.memory.conversation_archive.service import ArchiveContext
from bot.engine.workers.spec import CostAccount
from storage.key_value import KeyValueStore
from storage.records.people import Language
from storage.records.workers import ModelSession
from storage.usage import UsageFilter, UsageRepo
from tests.agent_builders import make_gateway, make_windows
from tests.bot.engine.llm.builders import MODELS, build_backend, recording_tool
from tests.bot.engine.memory.conversation_archive.archive_builders import (
    ArchiveSetup,
    assistant_message,
    build_archive,
    user_message,
)
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedCall, ScriptedFailure
from tests.emulators.models.script import ScriptedReply as Said
from tests.engine_harness import BOSS, CHAT, ManualClock, open_seeded_database
from tests.fakes.backends import OnlyBackend

WINDOW = 8_000
SAYS = {
    "OpenAI": ScriptedFailure(
        status=400,
        message="This model's maximum context length is 8,000 tokens. However, you requested 12345"
        " tokens (9345 in the messages, 3000 in the completion).",
        code="context_length_exceeded",
    ),
    "a local server": ScriptedFailure(
        status=400, message="request (12345 tokens) exceeds the available context size (8000)"
    ),
    "one that gives no number": ScriptedFailure(status=413, message="Your prompt is too long."),
}


def size(asked: ReceivedRequest) -> int:
    """As the service counts."""
    return len(json.dumps(asked.body["messages"])) // 4 + int(
        asked.body.get("max_completion_tokens") or asked.body.get("max_tokens") or 0
    )


@dataclass
class Small:
    """A desk that works with a model of a small window; `windows` are what it knows of them."""

    world: ArchiveSetup
    models: ModelEmulator
    backend: ApiBackend
    windows: ContextWindows = field(default_factory=make_windows)
    grown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        w = self.world
        self.history = SessionHistory(
            w.sessions,
            ArchiveContext(w.summaries),
            max_tokens=100_000,
            windows=self.windows,
            on_too_long=self.grown.append,
        )
        self.usage = UsageRepo(w.db)
        self.desk = make_gateway(
            w.db,
            OnlyBackend(self.backend, MODELS[ApiProvider.OPENAI]),
            w.clock,
            lambda: "new",
            history=self.history,
        )

    async def ask(
        self, session: ModelSession, prompt: str = "and now?", *tools: AgentTool
    ) -> ModelReply:
        ask = ModelRequest(
            purpose=RunPurpose.CHAT,
            prompt=prompt,
            system_prompt="You are a test.",
            language=Language.ENGLISH,
            account=CostAccount(person=BOSS.id, chat=CHAT.id),
            facts={},
            tools=tools,
            limits=RunLimits(turns=20, output_tokens=100_000),
        )
        reply = await self.desk.call_model(ask, self.desk.select_backend("", ""), session)
        async with self.world.db.write() as tx:
            await self.desk.record_reply(tx, reply)
        return reply


@asynccontextmanager
async def small(home: Path, failure: ScriptedFailure, **how: Any) -> AsyncGenerator[Small, None]:
    async with build_archive(home) as w, ModelEmulator() as models:
        backend = build_backend(models, ApiProvider.OPENAI)

        def reply(asked: ReceivedRequest) -> Said:
            return Said(failure=failure) if size(asked) > WINDOW else Said(text="here I am")

        models.replies(reply)
        try:
            yield Small(w, models, backend, **how)
        finally:
            await backend.aclose()


async def long_talk(w: ArchiveSetup, turns: int = 40) -> ModelSession:
    session = await w.session(backend="openai")
    for n in range(turns):
        rows = [
            user_message(f"question {n} " + "word " * 200),
            assistant_message(f"answer {n} " + "yes " * 100),
        ]
        await w.say(session, rows)
    return session


@pytest.mark.parametrize("failure", SAYS.values(), ids=SAYS)
async def test_a_chat_too_long_for_its_model_is_answered_all_the_same(
    tmp_path: Path, failure: ScriptedFailure
) -> None:
    async with small(tmp_path, failure) as s:
        session = await long_talk(s.world)
        reply = await s.ask(session)
        first, second = s.models.requests
        next_one = await s.ask(session)

        assert reply.result.text == next_one.result.text == "here I am"
        assert size(first) > WINDOW >= size(second)
        assert "earlier messages of this conversation are left out" in json.dumps(second.body)
        assert second.user_texts[-1] == "and now?"
        assert len(s.models.requests) == 3, "what a model can take is learnt once"
        assert s.grown == [session.id], "it is made shorter for good"
        assert len(await s.world.sessions.list_messages(session.id)) == 84, "nothing is lost"


async def test_the_session_is_then_summarised_to_what_its_model_can_take(tmp_path: Path) -> None:
    windows = make_windows()
    async with small(tmp_path, SAYS["OpenAI"], windows=windows) as s:
        session = await long_talk(s.world)
        await s.ask(session)
        s.world.windows[session.id] = await windows.get_for_session(session.id, "openai", "")
        s.world.growth.notify(session.id)
        await s.world.compactor.compact_due()
        told = await s.history.build(session.id)
        await s.ask(session)

        assert "<summary" in json.dumps(told[0])
        assert "It was said." in json.dumps(s.models.requests[-1].body)
        assert size(s.models.requests[-1]) <= WINDOW


async def test_what_was_done_before_it_became_too_long_is_kept_and_not_done_again(
    tmp_path: Path,
) -> None:
    calls: list[Mapping[str, Any]] = []
    async with small(tmp_path, SAYS["OpenAI"]) as s:

        def reply(asked: ReceivedRequest) -> Said:
            if size(asked) > WINDOW:
                return Said(failure=SAYS["OpenAI"])
            if len(calls) < 3:
                path = f"{len(calls)}.md"
                return Said(calls=[ScriptedCall(name="write", arguments={"path": path})])
            return Said(text="all written")

        s.models.replies(reply)
        s.windows.configured = {"gpt-*": WINDOW}
        session = await s.world.session(backend="openai")
        done = await s.ask(session, "write three", recording_tool("y" * 9_000, calls))
        rows = json.dumps(list(await s.world.sessions.list_messages(session.id)))

        assert done.result.text == "all written"
        assert [each["path"] for each in calls] == ["0.md", "1.md", "2.md"]
        assert SHORTENED_NOTE.strip() in rows
        assert (await s.usage.sum(UsageFilter())).calls > 1, "what it cost is counted"


async def test_a_question_that_is_too_long_by_itself_fails_and_says_so(tmp_path: Path) -> None:
    async with small(tmp_path, SAYS["OpenAI"]) as s:
        session = await s.world.session(backend="openai")
        with pytest.raises(ContextTooLong) as error:
            await s.ask(session, "word " * 20_000)

        assert error.value.hint == "backend.too_long"
        assert len(s.models.requests) == 2, "once more, and no more"


async def test_a_known_window_is_kept_to_without_being_told(tmp_path: Path) -> None:
    windows = make_windows(configured={"gpt-*": WINDOW})
    async with small(tmp_path, SAYS["OpenAI"], windows=windows) as s:
        session = await long_talk(s.world)
        await s.ask(session)

        assert [size(each) <= WINDOW for each in s.models.requests] == [True]


async def test_what_people_set_counts_and_what_a_service_says_counts_more() -> None:
    published: list[tuple[str, str]] = []

    async def known(backend: str, model: str) -> int:
        published.append((backend, model))
        return 200_000 if model == "known" else 0

    windows = make_windows(configured={"qwen*": 8_192, "openai:big": 1_000_000}, published=known)
    assert await windows.get("openai", "Qwen2.5:7b") == 8_192
    assert await windows.get("openai", "big") == 1_000_000
    assert [await windows.get("openai", "known") for _ in range(2)] == [200_000] * 2
    assert await windows.allocate("s", "openai", "nobody", 500) == ContextBudget()
    assert published == [("openai", "known"), ("openai", "nobody")]
    assert (await windows.allocate("s", "openai", "big", 500)).answer_tokens == 16_000
    room = await windows.allocate("s", "openai", "qwen", 1_000)
    assert (room.answer_tokens, room.history_tokens) == (2_048, 4_096)
    assert await windows.get_for_session("s", "openai", "known") == 8_192, "who was asked last"

    await windows.learn("openai", "qwen", stated_window=4_096, sent_tokens=9_000, had_started=False)
    assert await windows.get("openai", "qwen") == 4_096
    await windows.learn("openai", "qwen", stated_window=4_096, sent_tokens=4_000, had_started=True)
    assert await windows.get("openai", "qwen") == 4_096
    await windows.learn("openai", "qwen", stated_window=4_096, sent_tokens=4_000, had_started=False)
    assert await windows.get("openai", "qwen") == 3_072, "our estimates were too low"
    await windows.learn("openai", "qwen", stated_window=0, sent_tokens=10, had_started=False)
    assert await windows.get("openai", "qwen") == 2_000


async def test_what_a_service_said_is_known_after_a_restart_for_a_month(tmp_path: Path) -> None:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        marks = KeyValueStore(await open_seeded_database(tmp_path / "shiftboss.db", stack))

        def begun(**own: int) -> ContextWindows:
            return make_windows(configured=own, store=marks, now=clock)

        await begun().learn(
            "openai", "qwen", stated_window=4_096, sent_tokens=9_000, had_started=False
        )
        await begun(phi=8_192).learn(
            "openai", "phi", stated_window=2_048, sent_tokens=9_000, had_started=False
        )

        assert await begun().get("openai", "qwen") == 4_096
        assert await begun(phi=8_192).get("openai", "phi") == 2_048, "the setting is as it was"
        assert await begun(phi=6_000).get("openai", "phi") == 6_000, "people have set it anew"
        assert await begun(qwen=9_000).get("openai", "qwen") == 9_000
        clock.advance(days=29)
        assert await begun().get("openai", "qwen") == 4_096
        clock.advance(days=2)
        assert await begun().get("openai", "qwen") == 0
