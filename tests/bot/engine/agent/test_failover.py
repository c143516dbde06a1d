"""Work whose model fails goes on with the next backend of the chain, in the same conversation where
both are model APIs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from bot.engine.llm.acp.agent_config import AcpAgentsFile
from bot.engine.llm.acp.backend import AcpBackends
from bot.engine.llm.backend_registry import BackendRegistry, build_registry
from storage.records.tasks import TaskStatus
from storage.usage import UsageFilter, UsageRepo
from tests.bot.engine.agent.test_durable_turns import call
from tests.bot.engine.llm.acp.test_agent_config import write_agents_file
from tests.bot.engine.llm.test_backend_registry import NO_AGENTS
from tests.bot.engine.llm.test_failover import Seconds
from tests.bot.engine.permissions.builders import ScriptedWorker, permission_setup
from tests.emulators.acp.fake_cli import FakeCli, result_reply
from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedFailure, ScriptedReply
from tests.journeys.model_world import ScriptedModel, plan_reply, step_reply, through
from tests.thoroughness import pairs

REPLIES = ((call("look", "a"), call("jot", "b")), (call("look", "c"),))
OVERLOADED = ScriptedFailure(status=529, message="Overloaded")


@asynccontextmanager
async def chain(
    models: ModelEmulator, *names: str, clock: Seconds | None = None, clis: AcpBackends = NO_AGENTS
) -> AsyncGenerator[BackendRegistry, None]:
    backends = build_registry(
        model="anthropic:sonnet",
        anthropic_key=models.key,
        anthropic_base_url=models.url,
        openai_key=models.key,
        openai_base_url=models.openai_url,
        clis=clis,
        fallbacks=names or ("openai:gpt-5.2",),
        clock=clock or Seconds(),
    )
    async with aclosing(backends):
        yield backends


def failing(
    model: ScriptedModel, api: str, failure: ScriptedFailure, *, after: int = 0
) -> Callable[[ReceivedRequest], ScriptedReply]:
    """The model, but for requests of this kind of API after so many."""
    seen = 0

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        nonlocal seen
        seen += asked.api == api
        if asked.api == api and seen > after:
            model.requests.append(asked)
            return ScriptedReply(failure=failure)
        return model(asked)

    return reply


def sweeping() -> ScriptedModel:
    stage = ScriptedModel()
    stage.script("Tidy up", "plan", plan_reply("sweep"))
    stage.script("sweep", "step", through(REPLIES, step_reply("It is tidy.")))
    return stage


FAILURES = [
    ScriptedFailure(status=401, message="invalid x-api-key"),
    ScriptedFailure(status=403, message="Forbidden"),
    ScriptedFailure(status=404, message="model not found", kind="not_found_error"),
    ScriptedFailure(status=429, message="Too many requests", retry_after="30"),
    ScriptedFailure(status=500, message="Internal server error"),
    OVERLOADED,
]


@pytest.mark.parametrize(
    ("failure", "after"),
    pairs(FAILURES, range(4)),
    ids=lambda value: str(getattr(value, "status", value)),
)
async def test_a_task_goes_on_with_the_next_api_and_repeats_no_call(
    tmp_path: Path, failure: ScriptedFailure, after: int
) -> None:
    hands, stage = ScriptedWorker(), sweeping()
    async with (
        ModelEmulator() as models,
        chain(models) as backends,
        permission_setup(tmp_path, models, stage, hands, backends=backends) as here,
    ):
        models.replies(failing(stage, "anthropic", failure, after=after))
        ended = await here.world.until(await here.world.create_task("Tidy up"))
        booked = await UsageRepo(here.world.db).sum(UsageFilter())

    assert ended.task.status is TaskStatus.COMPLETED, ended.task.status_reason
    assert hands.ran == ["look a", "jot b", "look c"]
    assert models.refused == []
    answered = [each for each in stage.requests if each.api != "anthropic"]
    assert [each.api for each in stage.requests].count("anthropic") == after + 1
    assert booked.calls == after + len(answered)


async def test_where_all_fail_the_task_says_why_and_nobody_is_asked_twice(tmp_path: Path) -> None:
    stage = sweeping()
    denied = ScriptedFailure(status=401, message="invalid key")
    async with (
        ModelEmulator() as models,
        chain(models) as backends,
        permission_setup(tmp_path, models, stage, ScriptedWorker(), backends=backends) as here,
    ):
        models.replies(lambda _asked: ScriptedReply(failure=denied))
        task = await here.world.create_task("Tidy up")
        ended = await here.world.until(task, TaskStatus.BLOCKED, TaskStatus.FAILED)

    assert ended.task.status is TaskStatus.BLOCKED
    assert "key" in ended.task.status_reason
    assert len(models.requests) == 2


async def test_the_next_step_is_done_by_the_first_again_once_it_is_well(tmp_path: Path) -> None:
    hands, stage, clock = ScriptedWorker(), ScriptedModel(), Seconds()
    stage.script("Tidy up", "plan", plan_reply("sweep", "wipe", "polish"))
    for title in ("sweep", "wipe", "polish"):
        stage.script(title, "step", step_reply("Done."))
    is_down = True

    def reply(asked: ReceivedRequest) -> ScriptedReply:
        nonlocal is_down
        if is_down and asked.api == "anthropic" and "Your step now: sweep" in asked.last_text:
            stage.requests.append(asked)
            return ScriptedReply(failure=OVERLOADED)
        if "Your step now: wipe" in asked.last_text:
            is_down, clock.now = False, 1_000.0
        return stage(asked)

    async with (
        ModelEmulator() as models,
        chain(models, clock=clock) as backends,
        permission_setup(tmp_path, models, stage, hands, backends=backends) as here,
    ):
        models.replies(reply)
        ended = await here.world.until(await here.world.create_task("Tidy up"))

    assert ended.task.status is TaskStatus.COMPLETED, ended.task.status_reason
    by_step = [
        (title, asked.api)
        for asked in stage.requests
        for title in ("sweep", "wipe", "polish")
        if f"Your step now: {title}" in asked.last_text
    ]
    assert by_step == [
        ("sweep", "anthropic"),
        ("sweep", "openai"),
        ("wipe", "openai"),
        ("polish", "anthropic"),
    ]
    assert models.refused == []


@pytest.mark.parametrize(("after", "by_cli"), [(1, True), (2, False)])
async def test_a_coding_cli_takes_over_only_where_nothing_was_changed(
    tmp_path: Path, after: int, by_cli: bool
) -> None:
    """It can't read the transcript: nobody would know what was done."""
    hands, stage, cli = ScriptedWorker(), sweeping(), FakeCli(tmp_path)
    write_agents_file(cli)
    cli.script([result_reply({"status": "done", "summary": "Swept."})])
    clis = AcpBackends(AcpAgentsFile(cli.root), cli.runtime())
    async with (
        ModelEmulator() as models,
        chain(models, "acp:fake", clis=clis) as backends,
        permission_setup(tmp_path, models, stage, hands, backends=backends) as here,
    ):
        models.replies(failing(stage, "anthropic", OVERLOADED, after=after))
        ended = await here.world.until(await here.world.create_task("Tidy up"))

    assert ended.task.status is (TaskStatus.COMPLETED if by_cli else TaskStatus.FAILED)
    assert bool(cli.received("session/prompt", "pragmatist")) is by_cli
    assert hands.ran == ([] if by_cli else ["look a", "jot b"])


async def test_a_step_with_an_approved_call_waits_for_its_service_rather_than_begin_anew(
    tmp_path: Path,
) -> None:
    hands, stage, cli = ScriptedWorker(), ScriptedModel(), FakeCli(tmp_path)
    write_agents_file(cli)
    cli.script([result_reply({"status": "done", "summary": "Swept."})])
    clis = AcpBackends(AcpAgentsFile(cli.root), cli.runtime())
    stage.script("Tidy up", "plan", plan_reply("sweep"))
    stage.script("sweep", "step", through(((call("deploy", "it"),),), step_reply("It is tidy.")))
    times = iter(range(2))
    async with (
        ModelEmulator() as models,
        chain(models, "acp:fake", clis=clis) as backends,
        permission_setup(tmp_path, models, stage, hands, backends=backends) as here,
    ):
        task = await here.world.create_task("Tidy up")
        asked = await here.request(task)
        await here.world.until(task, TaskStatus.WAITING)

        def reply(request: ReceivedRequest) -> ScriptedReply:
            is_down = next(times, None) is not None
            return ScriptedReply(failure=OVERLOADED) if is_down else stage(request)

        models.replies(reply)
        await here.decide(asked)
        ended = await here.world.until(task)

    assert ended.task.status is TaskStatus.COMPLETED, ended.task.status_reason
    assert hands.ran == ["it"]
    assert not cli.received("session/prompt", "pragmatist")


async def test_a_call_that_was_approved_meanwhile_is_made_once_by_the_next_api(
    tmp_path: Path,
) -> None:
    hands, stage = ScriptedWorker(), ScriptedModel()
    stage.script("Tidy up", "plan", plan_reply("sweep"))
    replies = ((call("look", "a"),), (call("deploy", "the broom"),))
    stage.script("sweep", "step", through(replies, step_reply("It is tidy.")))
    async with (
        ModelEmulator() as models,
        chain(models) as backends,
        permission_setup(tmp_path, models, stage, hands, backends=backends) as here,
    ):
        task = await here.world.create_task("Tidy up")
        asked = await here.request(task)
        await here.world.until(task, TaskStatus.WAITING)
        models.replies(failing(stage, "anthropic", OVERLOADED))
        await here.decide(asked)
        ended = await here.world.until(task)

    assert ended.task.status is TaskStatus.COMPLETED, ended.task.status_reason
    assert hands.ran == ["look a", "the broom"]
    assert stage.requests[-1].api == "openai"
    assert models.refused == []
