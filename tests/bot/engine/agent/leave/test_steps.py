"""Steps whose worker wants something risky: asked, decided, gone on with, over any death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.engine.llm.access import Api
from cards.reasons import reason_told
from cards.words import words_for
from storage.records.approvals import Approval, ApprovalKind, ApprovalState
from storage.records.people import Language
from storage.records.tasks import TaskStatus
from storage.records.tools import CallState
from tests.bot.engine.agent.leave.live import live_permit, wish
from tests.bot.engine.agent.leave.world import SECRET, Hands, Shop, does, does_both, shop
from tests.emulators.models.emulator import Models
from tests.emulators.models.script import Call, Failure, Reply
from tests.engine_world import BOSS, Clock
from tests.journeys.model_world import Stage, done, steps


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    async with Models() as models:
        yield models


def staged(*lines: Reply) -> Stage:
    """A task of one step, whose worker says these lines and then that it is done."""
    stage = Stage()
    stage.on("Ship it", "plan", steps("go live"))
    stage.on("go live", "step", *lines, done("It is live."))
    return stage


@pytest.mark.parametrize("api", list(Api))
async def test_a_risky_call_is_made_once_and_only_when_it_was_allowed(
    tmp_path: Path, models: Models, api: Api
) -> None:
    stage, hands = staged(does_both("deploy --all")), Hands()
    async with shop(tmp_path, models, stage, hands, api=api) as here:
        task = await here.world.add("Ship it")
        waiting = await here.world.until(task, TaskStatus.WAITING)
        asked = await here.request(task)

        assert hands.ran == ["look around"], "what needs no leave is done at once"
        assert (asked.kind, asked.detail, asked.path) == (ApprovalKind.TOOL, "deploy --all", "s1")
        assert reason_told(asked.payload["why"], words_for(Language.CHINESE)) == "没有规则允许它。"
        assert waiting.task.failures_in_row == 0

        await here.decide(asked)
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == ["look around", "deploy --all"]
        look, deploy = await here.of_task(task)
        assert (look.state, deploy.state) == (CallState.DONE, CallState.DONE)
        assert SECRET not in deploy.outcome
        assert not deploy.suspended
    assert models.refused == []


async def test_a_no_reaches_the_worker_with_its_reason_and_the_step_goes_on(
    tmp_path: Path, models: Models
) -> None:
    stage, hands = staged(does("deploy", "deploy --all")), Hands()
    async with shop(tmp_path, models, stage, hands) as here:
        task = await here.world.add("Ship it")
        await here.decide(await here.request(task), approve=False, reason="not on Friday")
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == []
        assert "Boss said no. Reason: not on Friday" in str(stage.asked[-1].results)
        assert [each.state for each in await here.of_task(task)] == [CallState.DENIED]


async def test_what_a_rule_denies_is_told_at_once_and_nobody_is_asked(
    tmp_path: Path, models: Models
) -> None:
    stage, hands = staged(does("deploy", "wipe everything")), Hands()
    async with shop(tmp_path, models, stage, hands) as here:
        task = await here.world.add("Ship it")
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == []
        assert "It would destroy what lies outside" in str(stage.asked[-1].results)
        assert await here.approvals.of_task(task.id) == ()


@pytest.mark.parametrize(
    ("scope", "asks_elsewhere"), [("task", True), ("chat", False), ("always", False)]
)
async def test_leave_for_more_than_once_covers_the_same_call_and_no_other(
    tmp_path: Path, models: Models, scope: str, asks_elsewhere: bool
) -> None:
    stage = staged(does("deploy", "a"), does("deploy", "a"), does("deploy", "b"))
    stage.on("Again", "plan", steps("once more"))
    stage.on("once more", "step", does("deploy", "a"), done("Again."))
    hands = Hands()
    async with shop(tmp_path, models, stage, hands) as here:
        task = await here.world.add("Ship it")
        await here.decide(await here.request(task), scope=scope)
        other = await here.request(task)
        assert other.detail == "b"
        assert hands.ran == ["a", "a"]
        await here.decide(other)
        await here.world.until(task)

        again = await here.world.add("Again")
        view = await here.world.until(again, TaskStatus.WAITING, TaskStatus.COMPLETED)

        assert (view.task.status is TaskStatus.WAITING) is asks_elsewhere


async def test_several_open_calls_are_asked_one_after_another_and_answered_together(
    tmp_path: Path, models: Models
) -> None:
    stage, hands = staged(does_both("a", "b", "b")), Hands()
    async with shop(tmp_path, models, stage, hands) as here:
        task = await here.world.add("Ship it")
        first = await here.request(task)
        await here.decide(first, approve=False)
        second = await here.request(task)
        assert hands.ran == ["look around"], "nothing is done before all is decided"
        # The third is the same again: leave for the task covers it.
        await here.decide(second, scope="task")
        await here.world.until(task)

        assert hands.ran == ["look around", "b", "b"]
        assert [first.detail, second.detail] == ["a", "b"]


async def test_a_decision_outlives_the_program_and_the_call_is_made_once(
    tmp_path: Path, models: Models
) -> None:
    stage, hands, clock = staged(does("deploy", "a")), Hands(), Clock()
    async with shop(tmp_path, models, stage, hands, clock=clock) as here:
        task = await here.world.add("Ship it")
        asked = await here.request(task)
    async with shop(tmp_path, models, stage, hands, clock=clock, running=False) as here:
        await here.decide(asked)
    async with shop(tmp_path, models, stage, hands, clock=clock) as here:
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == ["a"]


async def test_what_was_done_is_not_done_again_where_its_answer_never_reached_the_model(
    tmp_path: Path, models: Models
) -> None:
    broken = Reply(failure=Failure(status=500))
    stage, hands = staged(does("deploy", "a"), broken, broken), Hands()
    async with shop(tmp_path, models, stage, hands) as here:
        task = await here.world.add("Ship it")
        await here.decide(await here.request(task))
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == ["a"], "paid for twice, done once"
        assert "did a with ••••" in str(stage.asked[-1].results)


async def test_a_call_that_a_death_cut_off_is_not_repeated_but_told(
    tmp_path: Path, models: Models
) -> None:
    stage, clock = staged(does("deploy", "a")), Clock()
    hands = Hands(hold=asyncio.Event())
    async with shop(tmp_path, models, stage, hands, clock=clock) as here:
        task = await here.world.add("Ship it")
        await here.decide(await here.request(task))
        await hands.begun.wait()
    async with shop(tmp_path, models, stage, hands, clock=clock) as here:
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == ["a"]
        assert "cut off while it ran" in str(stage.asked[-1].results)
        assert [each.state for each in await here.of_task(task)] == [CallState.CUT]


async def test_what_nobody_decides_in_time_pauses_and_is_asked_again(
    tmp_path: Path, models: Models
) -> None:
    stage, hands, clock = staged(does("deploy", "a")), Hands(), Clock()
    async with shop(tmp_path, models, stage, hands, clock=clock) as here:
        task = await here.world.add("Ship it")
        first = await here.request(task)
        clock.pass_by(days=8)
        await here.approvals.expire()
        paused = await here.world.until(task, TaskStatus.PAUSED)

        await here.world.foreman.resume(paused.task, by=BOSS, source="r:1")
        second = await here.request(task)
        assert second.id != first.id
        await here.decide(second)
        await here.world.until(task)

        assert hands.ran == ["a"]


async def test_a_question_is_answered_by_what_the_person_says(
    tmp_path: Path, models: Models
) -> None:
    question = {"question": "Which colour?", "options": ["red", "blue"]}
    stage = staged(Reply(calls=[Call(name="ask_user", arguments=question)]))
    async with shop(tmp_path, models, stage, Hands()) as here:
        task = await here.world.add("Ship it")
        asked = await here.request(task)
        assert (asked.kind, asked.title) == (ApprovalKind.QUESTION, "Which colour?")
        assert asked.payload["options"] == ["red", "blue"]
        assert BOSS.id in asked.approvers

        await here.decide(asked, reason="blue")
        await here.world.until(task)

        assert stage.asked[-1].results[-1] == ("ask_user", "blue")


async def test_what_people_say_while_it_waits_reaches_the_worker_with_the_answer(
    tmp_path: Path, models: Models
) -> None:
    stage, hands = staged(does("deploy", "a")), Hands()
    async with shop(tmp_path, models, stage, hands) as here:
        task = await here.world.add("Ship it")
        asked = await here.request(task)
        view = await here.world.until(task, TaskStatus.WAITING)
        await here.world.foreman.tell(view.task, "and make it quick", by=BOSS, source="m:1")
        await here.decide(asked)
        await here.world.until(task)

        assert "and make it quick" in stage.asked[-1].last
        assert "go live" not in stage.asked[-1].last, "the rest it knows already"


async def test_leave_asked_live_is_given_at_once_or_later(tmp_path: Path, models: Models) -> None:
    """As for a coding CLI, which holds its call open for a while."""

    async with shop(tmp_path, models, staged(), Hands(), running=False) as here:
        permit = await live_permit(here)
        waiting = asyncio.create_task(permit(wish("c1", "a"), patience=20))
        asked = await _shown(here)
        await here.decide(asked)
        given = await waiting
        assert given.leave == "allow"
        await permit.ended("c1", good=True, outcome="done")

        later = await permit(wish("c2", "b"), patience=0.01)
        assert later.leave == "later"
        await here.decide(here.shown[-1])
        again = await permit(wish("c3", "b"), patience=0.01)
        assert again.leave == "allow", "the decision was for exactly this"
        third = await permit(wish("c4", "b"), patience=0.01)
        assert third.leave == "later", "and for once"


async def _shown(here: Shop) -> Approval:
    async with asyncio.timeout(60):
        while not here.shown:
            await asyncio.sleep(0.005)
    assert here.shown[-1].state is ApprovalState.WAITING
    return here.shown[-1]
