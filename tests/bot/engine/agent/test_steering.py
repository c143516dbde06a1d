"""People's messages to a running step reach the worker with its next tool result, and no later:
also when the process dies in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from bot.engine.llm.api.access import ApiProvider
from bot.engine.workflow.definition import WorkflowNode
from bot.engine.workflow.step_approvals import StepApprovalRules
from storage.errors import WrongState
from storage.records.approvals import ApprovalKind
from storage.records.tasks import TaskStatus
from tests.bot.engine.agent.test_durable_turns import call, check_bills, die
from tests.bot.engine.permissions.builders import ScriptedWorker, permission_setup
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import (
    ReceivedRequest,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
)
from tests.engine_harness import BOSS, EngineHarness, ManualClock
from tests.journeys.model_world import ScriptedModel, held_reply, plan_reply, step_reply
from tests.thoroughness import pairs, sampled
from tests.waiting import WAIT_SECONDS

NEWS = "Use the blue broom"
REPLIES = ((call("look", "the attic"), call("jot", "the boxes")), (call("look", "the cellar"),))
STEP_COMMITS = 24

both_apis = pytest.mark.parametrize("api", [ApiProvider.ANTHROPIC, ApiProvider.OPENAI])


def heard(asked: ReceivedRequest) -> int:
    return sum(text.count(NEWS) for text in asked.user_texts)


def worker_says(
    stage: ScriptedModel, go: asyncio.Event, replies: Sequence[Sequence[ScriptedCall]] = REPLIES
) -> None:
    """These calls and an end. Its first reply comes when it is let go."""

    def work(asked: ReceivedRequest) -> ScriptedReply:
        transcript = str(asked.body["messages"])
        for calls in replies:
            if calls[0].arguments["command"] not in transcript:
                return ScriptedReply(calls=list(calls))
        return step_reply("It is tidy.")(asked)

    stage.script("Tidy up", "plan", plan_reply("sweep"))
    stage.script("sweep", "step", held_reply(work, go))


async def speak(
    here: EngineHarness, stage: ScriptedModel, go: asyncio.Event, text: str = NEWS
) -> None:
    """Say it once while the first reply is under way."""
    task = await here.create_task("Tidy up", source="test:once")
    async with asyncio.timeout(WAIT_SECONDS):
        await stage.wait_for_request("sweep")
        with suppress(WrongState):  # the work of an earlier life may be done
            await here.tasks.send_message(task, text, by=BOSS, source="test:news")
    go.set()


@both_apis
async def test_a_message_reaches_the_worker_with_its_next_tool_result(
    tmp_path: Path, api: ApiProvider
) -> None:
    hands, stage, go = ScriptedWorker(), ScriptedModel(), asyncio.Event()
    worker_says(stage, go)
    async with (
        ModelEmulator() as models,
        permission_setup(tmp_path, models, stage, hands, api=api) as here,
    ):
        task = await here.world.create_task("Tidy up", source="test:once")
        await speak(here.world, stage, go)
        ended = await here.world.until(task)

    asked = stage.requests_for("sweep", "step")
    assert [heard(each) for each in asked] == [0, 1, 1]
    assert [step.title for step in ended.steps] == ["sweep"], "nobody has to look again"
    assert ended.task.status is TaskStatus.COMPLETED
    assert models.refused == []


@pytest.mark.parametrize(
    ("nth", "api"), pairs(range(1, STEP_COMMITS + 1, sampled(1, 3)), [*ApiProvider])
)
async def test_a_message_is_heard_once_whenever_death_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, api: ApiProvider
) -> None:
    hands, clock, stage, go = ScriptedWorker(), ManualClock(), ScriptedModel(), asyncio.Event()
    worker_says(stage, go)
    async with ModelEmulator() as models:

        async def live(world: EngineHarness) -> tuple[TaskStatus, list[str]]:
            task = await world.create_task("Tidy up", source="test:once")
            await speak(world, stage, go)
            view = await world.until(task)
            return view.task.status, [step.title for step in view.steps]

        async with permission_setup(tmp_path, models, stage, hands, clock=clock, api=api) as here:
            await die(nth, monkeypatch, live(here.world))
        async with permission_setup(tmp_path, models, stage, hands, clock=clock, api=api) as here:
            async with asyncio.timeout(WAIT_SECONDS):
                status, steps = await live(here.world)
            await check_bills(here.world, models)

    assert status is TaskStatus.COMPLETED
    assert heard(stage.requests_for("sweep", "step")[-1]) == 1
    assert steps == ["sweep"], "the step under way heard it"
    assert models.refused == []


async def test_a_message_beside_a_call_that_waits_for_approval_is_heard_once(
    tmp_path: Path,
) -> None:
    hands, stage, go = ScriptedWorker(), ScriptedModel(), asyncio.Event()
    worker_says(stage, go, [(call("look", "the attic"), call("deploy", "the broom"))])
    async with (
        ModelEmulator() as models,
        permission_setup(tmp_path, models, stage, hands) as here,
    ):
        task = await here.world.create_task("Tidy up", source="test:once")
        await speak(here.world, stage, go)
        await here.decide(await here.request(task))
        ended = await here.world.until(task)

    asked = stage.requests_for("sweep", "step")
    assert [heard(each) for each in asked] == [0, 1]
    assert ended.task.status is TaskStatus.COMPLETED
    assert hands.ran == ["look the attic", "the broom"]
    assert models.refused == []


async def test_a_message_in_a_request_that_was_too_long_is_told_again(tmp_path: Path) -> None:
    hands, stage, go, refused = ScriptedWorker(), ScriptedModel(), asyncio.Event(), asyncio.Event()
    worker_says(stage, go)
    too_long = ScriptedFailure(status=400, message="prompt is too long: 9000 tokens > 8000 maximum")

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        if heard(asked) and not refused.is_set():
            refused.set()
            return ScriptedReply(failure=too_long)
        return stage(asked)

    async with (
        ModelEmulator() as models,
        permission_setup(tmp_path, models, stage, hands) as here,
    ):
        models.replies(reply)
        task = await here.world.create_task("Tidy up", source="test:once")
        await speak(here.world, stage, go)
        ended = await here.world.until(task)

    assert refused.is_set()
    assert ended.task.status is TaskStatus.COMPLETED
    assert any(map(heard, stage.requests)), "a reply came after it"


async def test_a_message_after_the_last_call_gets_a_step_of_its_own(tmp_path: Path) -> None:
    """The worker has ended its step without having heard it."""
    hands, stage, go = ScriptedWorker(), ScriptedModel(), asyncio.Event()
    stage.script("Tidy up", "plan", plan_reply("sweep"))
    stage.script("sweep", "step", held_reply(step_reply("It is tidy."), go))
    stage.script(NEWS, "step", step_reply("With the blue broom."))
    async with (
        ModelEmulator() as models,
        permission_setup(tmp_path, models, stage, hands) as here,
    ):
        task = await here.world.create_task("Tidy up", source="test:once")
        await speak(here.world, stage, go)
        ended = await here.world.until(task)

    assert [step.title for step in ended.steps] == ["sweep", f"💬 {NEWS}"]
    assert ended.task.status is TaskStatus.COMPLETED


@pytest.mark.parametrize("text", ["Now deploy it", "Ｄｅｐｌｏｙ it", "first de\u200bploy it"])
async def test_a_risky_message_waits_for_an_approval_outside_the_step_under_way(
    tmp_path: Path, text: str
) -> None:
    hands, stage, go = ScriptedWorker(), ScriptedModel(), asyncio.Event()
    worker_says(stage, go)
    async with (
        ModelEmulator() as models,
        permission_setup(tmp_path, models, stage, hands) as here,
    ):
        task = await here.world.create_task("Tidy up", source="test:once")
        await speak(here.world, stage, go, text)
        asked = await here.request(task)
        heard_early = [said for each in stage.requests for said in each.user_texts if text in said]

    assert asked.kind is ApprovalKind.RISK
    assert heard_early == []
    assert hands.ran == ["look the attic", "jot the boxes", "look the cellar"]


@pytest.mark.parametrize(
    ("title", "talk", "before", "may"),
    [
        ("Write the notes", "use blue", (), True),
        ("Write the notes", "run rm -rf build", (), True),
        ("Write the notes", "deploy", (), False),
        ("Write the de", "ploy it", ("now",), True),
        ("Deploy the shop", "in the evening, please", (), True),
        ("Deploy the shop", "run rm -rf build", (), False),
        ("Deploy the shop", "deploy the bank too", (), False),
        ("Write the notes", "deploy again", ("deploy",), False),
    ],
)
def test_a_step_under_way_hears_nothing_that_would_have_to_be_asked_about(
    title: str, talk: str, before: tuple[str, ...], may: bool
) -> None:
    node = WorkflowNode(id="task-1", title=title)

    assert StepApprovalRules(("deploy",)).may_hear(node, talk, before) is may
