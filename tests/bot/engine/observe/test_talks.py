"""The trace of an answer outside tasks: while it is given, after it, over a death."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.agent.talk import Conversations
from bot.engine.agent.workbench import Workbench
from bot.engine.llm.base import BackendDenied, RunRequest, RunResult
from bot.engine.observe.recorder import CallStart
from bot.engine.observe.talks import TalkTraces
from cards.views.work.trace_data import trace_data, trace_from
from handlers.ports import BackendFailure, Question
from storage.agents.spans import SpanRepo
from storage.records.people import Language
from storage.records.workers.spans import SpanKind, SpanState, Trace
from storage.sessions import SessionRepo
from tests.engine_world import BOSS, CHAT, GROUP, Engine, FakeBackend, answered, engine, recorder


class Talker(FakeBackend):
    fails: Exception | None = None

    async def settle(self, request: RunRequest) -> RunResult:
        if self.fails:
            raise self.fails
        return answered(text="Hello, Boss")


class Scene:
    """One chat, and who looks at what its last answer was made of."""

    def __init__(self, world: Engine, home: Path, backend: Talker) -> None:
        self.world, self.backend = world, backend
        self.began = world.clock()
        self.talk = Conversations(
            db=world.db,
            sessions=SessionRepo(world.db),
            desk=world.desk,
            home=home,
            bench=Workbench(),
            now=world.clock,
            sleep=_at_once,
        )

    async def says(self, text: str, source: str) -> None:
        language = Language.ENGLISH
        question = Question(person=BOSS, chat=CHAT, text=text, language=language, source=source)
        await self.talk.answer(question, _unseen)
        self.world.clock.pass_by(seconds=1)

    async def dies_answering(self, source: str) -> None:
        """The call was begun, and nobody was there to write down its end."""
        start = CallStart(
            task_id=None,
            chat_id=CHAT.id,
            turn=source,
            parent="",
            purpose="chat",
            backend="fake",
            model="fake-1",
            session_id="gone",
        )
        await recorder(self.world.db, self.world.clock).begin(start)
        self.world.clock.pass_by(seconds=1)

    async def trace(self) -> Trace:
        found = await self._reader().talk_of(CHAT.id)
        assert found is not None
        return found

    async def elsewhere(self) -> Trace | None:
        return await self._reader().talk_of(GROUP.id)

    def _reader(self) -> TalkTraces:
        return TalkTraces(
            db=self.world.db,
            spans=SpanRepo(self.world.db),
            mask=lambda text: text.replace("fake-1", "••••"),
            now=self.world.clock,
            since=self.began,
        )


async def _at_once(_seconds: float) -> None:
    pass


async def _unseen(_text: str) -> None:
    pass


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    backend = Talker()
    async with engine(tmp_path, backend, running=False, traced=True) as world:
        yield Scene(world, tmp_path, backend)


async def test_an_answer_leaves_a_span_for_itself_and_one_for_each_call_with_its_cost(
    scene: Scene,
) -> None:
    await scene.says("hi", "inbox:1")
    trace = await scene.trace()

    kinds = [(span.depth, span.kind, span.state) for span in trace.spans]
    assert kinds == [
        (0, SpanKind.CHAT, SpanState.DONE),
        (1, SpanKind.LLM, SpanState.DONE),
    ]
    assert trace.task_id is None
    assert trace.whole.spent == trace.spans[1].spent
    assert trace.whole.spent.input_tokens > 0
    assert trace_from(trace_data(trace)) == trace


async def test_nothing_of_it_holds_what_was_said_or_a_secret(scene: Scene) -> None:
    await scene.says("my dear otter", "inbox:1")

    told = str(trace_data(await scene.trace()))

    assert "otter" not in told
    assert "Hello" not in told
    assert "fake-1" not in told


async def test_the_last_answer_of_the_chat_is_told_and_no_other_chats(scene: Scene) -> None:
    await scene.says("hi", "inbox:1")
    first = await scene.trace()
    await scene.says("and now?", "inbox:2")
    second = await scene.trace()

    assert first.id != second.id
    assert len(second.spans) == 2
    assert await scene.elsewhere() is None


async def test_an_answer_that_failed_says_so(scene: Scene) -> None:
    scene.backend.fails = BackendDenied("no key")
    with pytest.raises(BackendFailure):
        await scene.says("hi", "inbox:1")

    trace = await scene.trace()

    assert trace.whole.state is SpanState.FAILED
    assert trace.whole.error == trace.spans[1].error != ""


async def test_what_a_death_cut_off_stands_beside_the_answer_that_was_given_after_it(
    scene: Scene,
) -> None:
    await scene.dies_answering("inbox:1")
    assert (await scene.trace()).whole.state is SpanState.RUNNING

    scene.began = scene.world.clock()
    assert {span.state for span in (await scene.trace()).spans} == {SpanState.CUT}
    scene.world.clock.pass_by(seconds=1)
    await scene.says("hi", "inbox:1")

    states = [span.state for span in (await scene.trace()).spans]
    assert states == [SpanState.DONE, SpanState.CUT, SpanState.DONE]


async def test_answers_of_long_ago_are_forgotten(scene: Scene) -> None:
    await scene.says("hi", "inbox:1")

    await SpanRepo(scene.world.db).prune(before=scene.world.clock() - timedelta(days=1))
    assert len((await scene.trace()).spans) == 2
    gone = await SpanRepo(scene.world.db).prune(before=scene.world.clock() + timedelta(days=1))

    assert gone == 1
