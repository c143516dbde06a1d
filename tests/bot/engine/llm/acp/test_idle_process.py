"""A coding CLI that stays ready for the next step of its task."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from bot.engine.llm.acp import process
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.backend import (
    InvalidAnswer,
    McpServer,
    RunNotice,
    RunRequest,
    WorkerMode,
)
from bot.engine.workers.personas import PRAGMATIST_PERSONA
from storage.records.tasks import TaskStatus
from tests.bot.engine.llm.acp.builders import (
    ALLOW,
    DONE_ANSWER,
    PENDING,
    FakeCallAuthorizer,
    collect_run,
    read_pid,
    run_cli_task,
    step_request,
)
from tests.emulators.acp.fake_cli import (
    OPTIONS,
    FakeCli,
    is_alive,
    permission_request,
    result_reply,
    tool_call,
)
from tests.engine_harness import ManualClock
from tests.waiting import let_time_pass, wait_until

WORK = "task 1"
DONE = result_reply(DONE_ANSWER)
PID = {"pid": "agent.pid"}
YES = {"path": "asked.txt", "text": "yes"}
NO = {"path": "asked.txt", "text": "no"}


def warm_backend(cli: FakeCli, *, seconds: float = 600, slots: int = 2) -> AcpBackend:
    return cli.backend(idle=IdleProcess(seconds), slots=asyncio.Semaphore(slots))


def warm_step(cli: FakeCli, session: str = "", **more: Any) -> RunRequest:
    return step_request(cli, external_id=session, **({"kept_for": WORK} | more))


def starts(cli: FakeCli) -> int:
    return len(cli.received("initialize"))


async def test_the_next_step_of_a_task_uses_the_same_process(cli: FakeCli) -> None:
    cli.script([DONE], [permission_request("make", yes=[DONE], no=[DONE])])
    backend = warm_backend(cli)
    _, first = await collect_run(backend, warm_step(cli))
    permit = FakeCallAuthorizer({"make": ALLOW})

    _, second = await collect_run(
        backend,
        warm_step(cli, "session-1", prompt="Go on.", permit=permit, history=first.new_history),
    )

    assert starts(cli) == 1
    assert len(cli.received("session/new")) == 1
    assert cli.received("session/resume") == []
    assert [call.detail for call in permit.calls] == ["make"], "the new step's permissions"
    assert "You are a test." not in cli.prompts()[1], "the session has it already"
    assert len(cli.received("session/set_mode")) == 2
    assert second.usage.requests == 1
    await backend.end_idle()


@pytest.mark.parametrize(
    "differs",
    [
        {"kept_for": "task 2"},
        {"kept_for": ""},
        {"persona": "critic"},
        {"mode": WorkerMode.REVIEW},
        {"system": "another", "model": "big"},
        {"servers": (McpServer(name="more", command=("more",)),)},
        {"external_id": "session-2"},
    ],
    ids=lambda differs: next(iter(differs)),
)
async def test_nothing_else_uses_it(cli: FakeCli, differs: dict[str, Any]) -> None:
    cli.script([DONE], options=[{"id": "model", "options": [{"value": "big", "name": "Big"}]}])
    backend = warm_backend(cli)
    await collect_run(backend, warm_step(cli))

    await collect_run(backend, replace(warm_step(cli, "session-1"), **differs))

    who = differs.get("persona", "default")
    assert len(cli.received("initialize", who)) == (1 if who == "critic" else 2)
    await backend.end_idle()


async def test_changed_settings_replace_it(cli: FakeCli) -> None:
    cli.script([DONE])
    backend = warm_backend(cli)
    await collect_run(backend, warm_step(cli))

    cli.agent = replace(cli.agent, fixed_env={"NEW": "1"})
    await collect_run(backend, warm_step(cli, "session-1"))

    assert starts(cli) == 2
    await backend.end_idle()


async def test_it_is_ended_before_another_takes_the_last_slot(cli: FakeCli) -> None:
    cli.script([PID, DONE])
    backend = warm_backend(cli, slots=1)
    await collect_run(backend, warm_step(cli))
    waiting = read_pid(cli.home() / "agent.pid")
    assert is_alive(waiting)

    cli.script([{"hang": True}])
    other = asyncio.create_task(collect_run(backend, step_request(cli, persona="critic")))
    await wait_until(lambda: cli.prompts("critic"))

    assert not is_alive(waiting)
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_it_stays_while_there_are_slots_for_both(cli: FakeCli) -> None:
    cli.script([DONE])
    backend = warm_backend(cli, slots=2)
    await collect_run(backend, warm_step(cli))

    await collect_run(backend, step_request(cli, persona="critic"))
    await collect_run(backend, warm_step(cli, "session-1"))

    assert starts(cli) == 1
    await backend.end_idle()


async def test_one_at_most_is_kept(cli: FakeCli) -> None:
    cli.script([PID, DONE])
    backend = warm_backend(cli)
    await collect_run(backend, warm_step(cli))

    await collect_run(backend, warm_step(cli, kept_for="task 2", persona="critic"))

    assert not is_alive(read_pid(cli.home() / "agent.pid"))
    assert is_alive(read_pid(cli.home("critic") / "agent.pid"))
    await backend.end_idle()


async def test_it_ends_when_its_time_is_over(cli: FakeCli) -> None:
    cli.script([PID, DONE])
    backend = warm_backend(cli, seconds=600)
    await collect_run(backend, warm_step(cli))
    pid = read_pid(cli.home() / "agent.pid")
    assert is_alive(pid)

    await let_time_pass(601)

    await wait_until(lambda: not is_alive(pid))
    await backend.end_idle()  # it has been fetched, too


@pytest.mark.parametrize("kept_for", [WORK, None])
async def test_it_ends_with_its_work(cli: FakeCli, kept_for: str | None) -> None:
    cli.script([PID, DONE])
    backend = warm_backend(cli)
    await collect_run(backend, warm_step(cli))
    pid = read_pid(cli.home() / "agent.pid")

    await backend.end_idle("task 2")
    assert is_alive(pid)
    await backend.end_idle(kept_for)

    assert not is_alive(pid)


async def test_one_that_died_meanwhile_is_replaced_in_silence(cli: FakeCli) -> None:
    cli.script([PID, DONE])
    backend = warm_backend(cli)
    _, first = await collect_run(backend, warm_step(cli))
    os.kill(pid := read_pid(cli.home() / "agent.pid"), signal.SIGKILL)
    await wait_until(lambda: not is_alive(pid))

    events, ended = await collect_run(
        backend, warm_step(cli, "session-1", history=first.new_history)
    )

    assert [each for each in events if isinstance(each, RunNotice)] == []
    assert ended.value is not None
    assert len(cli.received("session/resume")) == 1
    await backend.end_idle()


async def test_one_that_does_not_answer_any_more_is_replaced_in_silence(cli: FakeCli) -> None:
    cli.script([DONE], die_on_second=["session/set_mode"])
    backend = warm_backend(cli)
    await collect_run(backend, warm_step(cli))

    _, ended = await collect_run(backend, warm_step(cli, "session-1"))

    assert ended.value is not None
    assert len(cli.received("session/resume")) == 1
    assert len(cli.prompts()) == 2
    await backend.end_idle()


@pytest.mark.parametrize(
    "turn",
    [
        [{"spawn": "child.pid"}, DONE],
        [permission_request("make", yes=[DONE])],
        [{"say": "Done, trust me."}],
    ],
    ids=["left a program running", "waits for a person", "no result"],
)
async def test_after_such_an_end_it_is_not_kept(
    cli: FakeCli, turn: Sequence[dict[str, Any]]
) -> None:
    cli.script([PID, *turn])
    permit = FakeCallAuthorizer({"make": PENDING})

    with suppress(InvalidAnswer):
        await collect_run(warm_backend(cli), warm_step(cli, permit=permit))

    assert not is_alive(read_pid(cli.home() / "agent.pid"))
    child = cli.home() / "child.pid"
    assert not (child.exists() and is_alive(read_pid(child)))


async def test_one_that_takes_much_memory_is_not_kept(
    cli: FakeCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MAX_IDLE_BYTES", 1_000_000)
    cli.script([PID, DONE])

    await collect_run(warm_backend(cli), warm_step(cli))

    assert not is_alive(read_pid(cli.home() / "agent.pid"))


async def test_between_steps_it_may_do_nothing(cli: FakeCli) -> None:
    ask = {"toolCall": tool_call("make"), "options": list(OPTIONS)}
    cli.script([DONE, {"later": {"ask": ask, "yes": [{"append": YES}], "no": [{"append": NO}]}}])
    backend = warm_backend(cli)
    permit = FakeCallAuthorizer({"make": ALLOW})

    await collect_run(backend, warm_step(cli, permit=permit))
    (cli.home() / "go").touch()
    await wait_until((cli.home() / "asked.txt").exists)

    assert (cli.home() / "asked.txt").read_text() == "no"
    assert permit.calls == []
    await backend.end_idle()


async def test_money_of_earlier_steps_is_not_counted_again(cli: FakeCli) -> None:
    def spent(amount: float) -> dict[str, Any]:
        cost = {"amount": amount, "currency": "USD"}
        return {"update": {"sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": cost}}

    cli.script([spent(0.5), DONE], [spent(0.7), DONE])
    backend = warm_backend(cli)
    _, first = await collect_run(backend, warm_step(cli))

    _, second = await collect_run(backend, warm_step(cli, "session-1"))

    assert (first.usage.cost, second.usage.cost) == (Decimal("0.5"), Decimal("0.2"))
    await backend.end_idle()


async def test_a_task_starts_one_process_for_its_steps_and_leaves_none(cli: FakeCli) -> None:
    steps = [{"title": "one"}, {"title": "two"}, {"title": "three"}]
    cli.script([result_reply({"plan": "Go.", "steps": steps})], [PID, DONE])
    async with run_cli_task(cli, ManualClock(), idle=IdleProcess(600)) as here:
        task = await here.world.create_task("Do it")
        await here.world.until(task, TaskStatus.COMPLETED)
        who = PRAGMATIST_PERSONA.name
        await wait_until(lambda: not is_alive(read_pid(cli.home(who) / "agent.pid")))

    assert len(cli.prompts(who)) == 4
    assert len(cli.received("initialize", who)) == 2, "the planner's own, and one for all steps"
    assert len(cli.received("session/new", who)) == 1
