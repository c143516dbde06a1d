"""Steps whose worker wants something risky: asked, decided, gone on with, over any death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.api.access import ApiProvider
from bot.engine.llm.tool_calls import CallKind
from bot.engine.permissions.policy import PolicyLevels, RulePolicy
from bot.engine.permissions.rules import PermissionRules
from cards.catalog import catalog_for
from cards.permission_reasons import describe_reason
from storage.records.approvals import Approval, ApprovalKind, ApprovalState, ToolCallState
from storage.records.people import Language
from storage.records.tasks import TaskStatus
from tests.bot.engine.permissions.builders import (
    SECRET,
    PermissionSetup,
    ScriptedWorker,
    permission_setup,
    reply_with_call,
    reply_with_calls,
)
from tests.bot.engine.permissions.live_permits import live_permit, tool_call
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ScriptedCall, ScriptedFailure, ScriptedReply
from tests.engine_harness import BOSS, ManualClock
from tests.journeys.model_world import ScriptedModel, plan_reply, step_reply
from tests.waiting import WAIT_SECONDS


@pytest.fixture
async def models() -> AsyncIterator[ModelEmulator]:
    async with ModelEmulator() as models:
        yield models


def staged(*lines: ScriptedReply) -> ScriptedModel:
    """A task of one step, whose worker says these lines and then that it is done."""
    stage = ScriptedModel()
    stage.script("Ship it", "plan", plan_reply("go live"))
    stage.script("go live", "step", *lines, step_reply("It is live."))
    return stage


@pytest.mark.parametrize("api", list(ApiProvider))
async def test_a_risky_call_is_made_once_and_only_when_it_was_allowed(
    tmp_path: Path, models: ModelEmulator, api: ApiProvider
) -> None:
    stage, hands = staged(reply_with_calls("deploy --all")), ScriptedWorker()
    async with permission_setup(tmp_path, models, stage, hands, api=api) as here:
        task = await here.world.create_task("Ship it")
        waiting = await here.world.until(task, TaskStatus.WAITING)
        asked = await here.request(task)

        assert hands.ran == ["look around"], "what needs no leave is done at once"
        assert (asked.kind, asked.detail, asked.path) == (ApprovalKind.TOOL, "deploy --all", "s1")
        assert (
            describe_reason(asked.payload["why"], catalog_for(Language.CHINESE)) == "没有规则允许。"
        )
        assert waiting.task.failures_in_row == 0

        await here.decide(asked)
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == ["look around", "deploy --all"]
        look, deploy = await here.of_task(task)
        assert (look.state, deploy.state) == (ToolCallState.DONE, ToolCallState.DONE)
        assert SECRET not in deploy.outcome
        assert not deploy.suspended
    assert models.refused == []


async def test_what_changes_while_an_approved_call_waits_for_its_turn_is_not_run(
    tmp_path: Path, models: ModelEmulator
) -> None:
    """Another worker's command has the workspace when the person approves."""
    again = reply_with_call("deploy", "sh go.sh --now")
    stage = staged(reply_with_call("deploy", "sh go.sh"), again)
    hands = ScriptedWorker()
    async with permission_setup(tmp_path, models, stage, hands) as here:
        task = await here.world.create_task("Ship it")
        asked = await here.request(task)
        (folder,) = (tmp_path / "work").glob(str(task.id))
        (folder / "go.sh").write_text(". ./part.sh\n")
        (folder / "part.sh").write_text("harmless\n")
        await here.decide(asked)
        # Both files are new since the question.
        asked = await here.request(task)
        assert hands.ran == []

        async with hands.lock:
            await here.decide(asked)
            while (await here.of_task(task))[-1].state is not ToolCallState.RUNNING:
                await asyncio.sleep(0)
            (folder / "part.sh").write_text("hurtful!\n")
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == []
        last = (await here.of_task(task))[-1]
        assert last.state is ToolCallState.FAILED
        assert "has changed" in last.outcome


async def test_a_no_reaches_the_worker_with_its_reason_and_the_step_goes_on(
    tmp_path: Path, models: ModelEmulator
) -> None:
    stage, hands = staged(reply_with_call("deploy", "deploy --all")), ScriptedWorker()
    async with permission_setup(tmp_path, models, stage, hands) as here:
        task = await here.world.create_task("Ship it")
        await here.decide(await here.request(task), approve=False, reason="not on Friday")
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == []
        assert "Boss said no. Reason: not on Friday" in str(stage.requests[-1].tool_results)
        assert [each.state for each in await here.of_task(task)] == [ToolCallState.DENIED]


async def test_what_a_rule_denies_is_told_at_once_and_nobody_is_asked(
    tmp_path: Path, models: ModelEmulator
) -> None:
    stage, hands = staged(reply_with_call("deploy", "wipe everything")), ScriptedWorker()
    async with permission_setup(tmp_path, models, stage, hands) as here:
        task = await here.world.create_task("Ship it")
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == []
        assert "It would destroy data outside" in str(stage.requests[-1].tool_results)
        assert await here.approvals.list_by_task(task.id) == ()


@pytest.mark.parametrize(
    ("scope", "asks_elsewhere"), [("task", True), ("chat", False), ("always", False)]
)
async def test_leave_for_more_than_once_covers_the_same_call_and_no_other(
    tmp_path: Path, models: ModelEmulator, scope: str, asks_elsewhere: bool
) -> None:
    stage = staged(
        reply_with_call("deploy", "a"),
        reply_with_call("deploy", "a"),
        reply_with_call("deploy", "b"),
    )
    stage.script("Again", "plan", plan_reply("once more"))
    stage.script("once more", "step", reply_with_call("deploy", "a"), step_reply("Again."))
    hands = ScriptedWorker()
    async with permission_setup(tmp_path, models, stage, hands) as here:
        task = await here.world.create_task("Ship it")
        await here.decide(await here.request(task), scope=scope)
        other = await here.request(task)
        assert other.detail == "b"
        assert hands.ran == ["a", "a"]
        await here.decide(other)
        await here.world.until(task)

        again = await here.world.create_task("Again")
        view = await here.world.until(again, TaskStatus.WAITING, TaskStatus.COMPLETED)

        assert (view.task.status is TaskStatus.WAITING) is asks_elsewhere


@pytest.mark.parametrize(
    ("scope", "asks_again"), [("task", False), ("chat", True), ("always", True)]
)
async def test_leave_beyond_a_task_is_for_the_files_that_were_there(
    tmp_path: Path, models: ModelEmulator, scope: str, asks_again: bool
) -> None:
    stage = staged(*[reply_with_call("deploy", "sh go.sh")] * 3)
    hold = asyncio.Event()
    hands = ScriptedWorker(hold=hold)
    async with permission_setup(tmp_path, models, stage, hands) as here:
        here.leaves.policy = RulePolicy(rules=PermissionRules(), levels=PolicyLevels())
        task = await here.world.create_task("Ship it")
        asked = await here.request(task)
        (folder,) = (tmp_path / "work").glob(str(task.id))
        (folder / "go.sh").write_text("harmless\n")
        await here.decide(asked, approve=False)
        await here.decide(await here.request(task), scope=scope)
        async with asyncio.timeout(WAIT_SECONDS):
            await hands.begun.wait()

        (folder / "go.sh").write_text("hurtful!\n")
        hold.set()
        if asks_again:
            asked = await here.request(task)
            assert hands.ran == ["sh go.sh"]
            await here.decide(asked, scope=scope)
        await here.world.until(task)

        assert hands.ran == ["sh go.sh"] * 2


async def test_several_open_calls_are_asked_one_after_another_and_answered_together(
    tmp_path: Path, models: ModelEmulator
) -> None:
    stage, hands = staged(reply_with_calls("a", "b", "b")), ScriptedWorker()
    async with permission_setup(tmp_path, models, stage, hands) as here:
        task = await here.world.create_task("Ship it")
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
    tmp_path: Path, models: ModelEmulator
) -> None:
    stage, hands, clock = staged(reply_with_call("deploy", "a")), ScriptedWorker(), ManualClock()
    async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
        task = await here.world.create_task("Ship it")
        asked = await here.request(task)
    async with permission_setup(
        tmp_path, models, stage, hands, clock=clock, start_dispatcher=False
    ) as here:
        await here.decide(asked)
    async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == ["a"]


async def test_what_was_done_is_not_done_again_where_its_answer_never_reached_the_model(
    tmp_path: Path, models: ModelEmulator
) -> None:
    broken = ScriptedReply(failure=ScriptedFailure(status=500))
    stage, hands = staged(reply_with_call("deploy", "a"), broken, broken), ScriptedWorker()
    async with permission_setup(tmp_path, models, stage, hands) as here:
        task = await here.world.create_task("Ship it")
        await here.decide(await here.request(task))
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == ["a"], "paid for twice, done once"
        assert "did a with ••••" in str(stage.requests[-1].tool_results)


async def test_a_call_that_a_death_cut_off_is_not_repeated_but_told(
    tmp_path: Path, models: ModelEmulator
) -> None:
    stage, clock = staged(reply_with_call("deploy", "a")), ManualClock()
    hands = ScriptedWorker(hold=asyncio.Event())
    async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
        task = await here.world.create_task("Ship it")
        await here.decide(await here.request(task))
        await hands.begun.wait()
    async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
        view = await here.world.until(task)

        assert view.task.status is TaskStatus.COMPLETED
        assert hands.ran == ["a"]
        assert "cut off while it ran" in str(stage.requests[-1].tool_results)
        assert [each.state for each in await here.of_task(task)] == [ToolCallState.CUT]


async def test_what_nobody_decides_in_time_pauses_and_is_asked_again(
    tmp_path: Path, models: ModelEmulator
) -> None:
    stage, hands, clock = staged(reply_with_call("deploy", "a")), ScriptedWorker(), ManualClock()
    async with permission_setup(tmp_path, models, stage, hands, clock=clock) as here:
        task = await here.world.create_task("Ship it")
        first = await here.request(task)
        clock.advance(days=8)
        await here.approvals.expire_overdue()
        paused = await here.world.until(task, TaskStatus.PAUSED)

        await here.world.tasks.resume(paused.task, by=BOSS, source="r:1")
        second = await here.request(task)
        assert second.id != first.id
        await here.decide(second)
        await here.world.until(task)

        assert hands.ran == ["a"]


async def test_a_question_is_answered_by_what_the_person_says(
    tmp_path: Path, models: ModelEmulator
) -> None:
    question = {"question": "Which colour?", "options": ["red", "blue"]}
    stage = staged(ScriptedReply(calls=[ScriptedCall(name="ask_user", arguments=question)]))
    async with permission_setup(tmp_path, models, stage, ScriptedWorker()) as here:
        task = await here.world.create_task("Ship it")
        asked = await here.request(task)
        assert (asked.kind, asked.title) == (ApprovalKind.QUESTION, "Which colour?")
        assert asked.payload["options"] == ["red", "blue"]
        assert BOSS.id in asked.approvers

        await here.decide(asked, reason="blue")
        await here.world.until(task)

        assert stage.requests[-1].tool_results[-1] == ("ask_user", "blue")


async def test_what_people_say_while_it_waits_reaches_the_worker_with_the_answer(
    tmp_path: Path, models: ModelEmulator
) -> None:
    stage, hands = staged(reply_with_call("deploy", "a")), ScriptedWorker()
    async with permission_setup(tmp_path, models, stage, hands) as here:
        task = await here.world.create_task("Ship it")
        asked = await here.request(task)
        view = await here.world.until(task, TaskStatus.WAITING)
        await here.world.tasks.send_message(view.task, "and make it quick", by=BOSS, source="m:1")
        await here.decide(asked)
        await here.world.until(task)

        assert "and make it quick" in stage.requests[-1].last_text
        assert "go live" not in stage.requests[-1].last_text, "the rest it knows already"


async def test_leave_asked_live_is_given_at_once_or_later(
    tmp_path: Path, models: ModelEmulator
) -> None:
    """As for a coding CLI, which holds its call open for a while."""

    async with permission_setup(
        tmp_path, models, staged(), ScriptedWorker(), start_dispatcher=False
    ) as here:
        permit = await live_permit(here)
        waiting = asyncio.create_task(permit(tool_call("c1", "a"), wait_seconds=WAIT_SECONDS))
        asked = await _shown(here)
        await here.decide(asked)
        given = await waiting
        assert given.verdict == "allow"
        await permit.record_outcome("c1", succeeded=True, outcome="done")

        later = await permit(tool_call("c2", "b"), wait_seconds=0.01)
        assert later.verdict == "later"
        await here.decide(here.shown[-1])
        again = await permit(tool_call("c3", "b"), wait_seconds=0.01)
        assert again.verdict == "allow", "the decision was for exactly this"
        third = await permit(tool_call("c4", "b"), wait_seconds=0.01)
        assert third.verdict == "later", "and for once"


async def test_a_refusal_given_live_holds_for_that_run_only(
    tmp_path: Path, models: ModelEmulator
) -> None:
    async with permission_setup(
        tmp_path, models, staged(), ScriptedWorker(), start_dispatcher=False
    ) as here:
        permit = await live_permit(here)
        waiting = asyncio.create_task(permit(tool_call("c1", "a"), wait_seconds=WAIT_SECONDS))
        await here.decide(await _shown(here), approve=False)
        assert (await waiting).verdict == "deny"

        again = await permit(tool_call("c2", "a"), wait_seconds=WAIT_SECONDS)
        assert again.verdict == "deny"
        assert len(here.shown) == 1, "nobody is asked twice in one run"

        later = await permit.restart()(tool_call("c3", "a"), wait_seconds=0.01)
        assert later.verdict == "later"
        assert len(here.shown) == 2


async def test_a_question_that_ends_without_an_answer_is_withdrawn_and_its_card_says_so(
    tmp_path: Path, models: ModelEmulator
) -> None:
    async with permission_setup(
        tmp_path, models, staged(), ScriptedWorker(), start_dispatcher=False
    ) as here:
        permit = await live_permit(here)
        question = replace(tool_call("q1", ""), kind=CallKind.ASK, detail="Which size?")
        given = await permit(question, wait_seconds=0.01)
        assert given.verdict == "later"
        await permit.record_outcome("q1", succeeded=False, outcome="not answered")

        first, last = here.shown
        assert (first.kind, first.state) == (ApprovalKind.QUESTION, ApprovalState.WAITING)
        assert (last.id, last.state) == (first.id, ApprovalState.EXPIRED)
        assert last.reason == "approval.gone_on"


async def _shown(here: PermissionSetup) -> Approval:
    async with asyncio.timeout(WAIT_SECONDS):
        while not here.shown:
            await asyncio.sleep(0.005)
    assert here.shown[-1].state is ApprovalState.WAITING
    return here.shown[-1]
