"""The card of a trace goes along with its task: not for ever, and only where it was sent."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from bot.engine.tracing.trace_card import FOLLOW_FOR, TraceCardUpdater
from cards.model import Card
from storage.errors import NotFound
from storage.records.people import ChatId
from storage.records.tasks import TaskId
from storage.records.traces import SpanKind, SpanState, Trace
from tests.builders import NOW, make_span, make_trace
from tests.engine_harness import RecordingCourier, no_sleep

TASK, CHAT = TaskId("t"), ChatId("c1")


class FollowedTask:
    """One task whose trace a test changes, and the chat that looks at it."""

    def __init__(self) -> None:
        self.time: datetime = NOW
        self.trace: Trace | None = None
        self.there = True
        self.courier = RecordingCourier()
        self.follower = TraceCardUpdater(
            traces=self,
            chat_traces=self,
            courier=self.courier,
            card_exists=self._is_there,
            now=self._now,
            sleep=no_sleep,
        )
        self.is_at(SpanState.RUNNING, "one")

    def is_at(self, whole: SpanState, step: str, state: SpanState = SpanState.RUNNING) -> None:
        first = make_span("w", SpanKind.WORKFLOW, whole)
        self.trace = make_trace(TASK, first, make_span("n", state=state, name=step))

    async def get_task_trace(self, task_id: TaskId) -> Trace:
        if self.trace is None:
            raise NotFound("task", task_id)
        return self.trace

    async def get_chat_trace(self, _chat_id: ChatId) -> Trace | None:
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
def scene() -> FollowedTask:
    return FollowedTask()


async def test_the_card_shows_what_is_new_until_the_task_ends(scene: FollowedTask) -> None:
    scene.follow()
    await scene.follower.update_cards()
    scene.is_at(SpanState.RUNNING, "two")
    await scene.follower.update_cards()
    scene.is_at(SpanState.DONE, "done", SpanState.DONE)
    await scene.follower.update_cards()
    scene.is_at(SpanState.RUNNING, "again")
    await scene.follower.update_cards()

    assert [title for _, title in scene.shown] == ["one", "two", "done"]


async def test_while_nothing_moves_nothing_is_drawn(scene: FollowedTask) -> None:
    scene.is_at(SpanState.WAITING, "one", SpanState.WAITING)
    scene.follow()
    for _ in range(3):
        await scene.follower.update_cards()

    assert len(scene.shown) == 1


async def test_it_ends_when_nobody_looks_any_more(scene: FollowedTask) -> None:
    scene.follow()
    await scene.follower.update_cards()
    scene.time += FOLLOW_FOR + timedelta(seconds=1)
    await scene.follower.update_cards()
    scene.is_at(SpanState.RUNNING, "late")
    await scene.follower.update_cards()

    assert [title for _, title in scene.shown] == ["one"]


async def test_a_card_that_was_never_sent_is_not_sent_now(scene: FollowedTask) -> None:
    scene.there = False
    scene.follow()
    await scene.follower.update_cards()
    await scene.follower.update_cards()
    scene.there = True
    await scene.follower.update_cards()

    assert scene.shown == []


async def test_a_newer_card_in_a_chat_takes_the_place_of_the_older(scene: FollowedTask) -> None:
    scene.follow("trace:1")
    scene.follow("trace:2")
    await scene.follower.update_cards()

    assert [key for key, _ in scene.shown] == ["trace:2"]


async def test_a_task_that_is_gone_is_left(scene: FollowedTask) -> None:
    scene.trace = None
    scene.follow()
    await scene.follower.update_cards()
    scene.is_at(SpanState.RUNNING, "back")
    await scene.follower.update_cards()

    assert scene.shown == []
