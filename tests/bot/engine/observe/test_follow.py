"""The card of a trace goes along with its task: not for ever, and only where it was sent."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from bot.engine.observe.follow import PATIENCE, TraceFollower
from cards.model import Card
from storage.errors import NotFound
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.workers.spans import SpanKind, SpanState, Trace
from tests.engine_world import FakeCourier, no_wait
from tests.samples import NOW, a_span, a_trace

TASK, CHAT = TaskId("t"), ChatId("c1")


class Scene:
    """One task whose trace a test changes, and the chat that looks at it."""

    def __init__(self) -> None:
        self.time: datetime = NOW
        self.trace: Trace | None = None
        self.there = True
        self.courier = FakeCourier()
        self.follower = TraceFollower(
            traces=self,
            talks=self,
            courier=self.courier,
            is_there=self._is_there,
            now=self._now,
            sleep=no_wait,
        )
        self.is_at(SpanState.RUNNING, "one")

    def is_at(self, whole: SpanState, step: str, state: SpanState = SpanState.RUNNING) -> None:
        first = a_span("w", SpanKind.WORKFLOW, whole)
        self.trace = a_trace(TASK, first, a_span("n", state=state, name=step))

    async def trace_of(self, task_id: TaskId) -> Trace:
        if self.trace is None:
            raise NotFound("task", task_id)
        return self.trace

    async def talk_of(self, _chat_id: ChatId) -> Trace | None:
        return self.trace

    def follow(self, key: str = "trace:1") -> None:
        self.follower.follow(CHAT, key, TASK, lambda trace: Card(title=trace.spans[1].name))

    @property
    def shown(self) -> list[tuple[str, str]]:
        return [(key, card.title) for key, card in self.courier.sent]

    async def _is_there(self, _key: str) -> bool:
        return self.there

    def _now(self) -> datetime:
        return self.time


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_the_card_shows_what_is_new_until_the_task_ends(scene: Scene) -> None:
    scene.follow()
    await scene.follower.look()
    scene.is_at(SpanState.RUNNING, "two")
    await scene.follower.look()
    scene.is_at(SpanState.DONE, "done", SpanState.DONE)
    await scene.follower.look()
    scene.is_at(SpanState.RUNNING, "again")
    await scene.follower.look()

    assert [title for _, title in scene.shown] == ["one", "two", "done"]


async def test_while_nothing_moves_nothing_is_drawn(scene: Scene) -> None:
    scene.is_at(SpanState.WAITING, "one", SpanState.WAITING)
    scene.follow()
    for _ in range(3):
        await scene.follower.look()

    assert len(scene.shown) == 1


async def test_it_ends_when_nobody_looks_any_more(scene: Scene) -> None:
    scene.follow()
    await scene.follower.look()
    scene.time += PATIENCE + timedelta(seconds=1)
    await scene.follower.look()
    scene.is_at(SpanState.RUNNING, "late")
    await scene.follower.look()

    assert [title for _, title in scene.shown] == ["one"]


async def test_a_card_that_was_never_sent_is_not_sent_now(scene: Scene) -> None:
    scene.there = False
    scene.follow()
    await scene.follower.look()
    await scene.follower.look()
    scene.there = True
    await scene.follower.look()

    assert scene.shown == []


async def test_a_newer_card_in_a_chat_takes_the_place_of_the_older(scene: Scene) -> None:
    scene.follow("trace:1")
    scene.follow("trace:2")
    await scene.follower.look()

    assert [key for key, _ in scene.shown] == ["trace:2"]


async def test_a_task_that_is_gone_is_left(scene: Scene) -> None:
    scene.trace = None
    scene.follow()
    await scene.follower.look()
    scene.is_at(SpanState.RUNNING, "back")
    await scene.follower.look()

    assert scene.shown == []
