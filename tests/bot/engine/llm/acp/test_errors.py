"""CLIs that are missing, die, flood, hang, lie or are somebody else: each has one clear message."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from bot.engine.llm.acp.process import PROCESS_MARK_VARIABLE, build_environment, home_mark
from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    InvalidAnswer,
    RunLimitReached,
    RunLimits,
    TextDelta,
)
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.bot.engine.llm.acp.builders import (
    DONE_ANSWER,
    chat_request,
    collect_run,
    read_pid,
    step_request,
)
from tests.emulators.acp.fake_cli import FakeCli, is_alive, result_reply
from tests.waiting import WAIT_SECONDS


async def run_and_fail(cli: FakeCli, **house: object) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await collect_run(cli.backend(**house), step_request(cli))
    for language in Language:
        assert catalog_for(language).has(caught.value.hint)
    return caught.value


async def test_a_missing_program(cli: FakeCli) -> None:
    cli.agent = replace(cli.agent, command=("no-such-cli", "--acp"))

    error = await run_and_fail(cli)

    assert isinstance(error, BackendDenied)
    assert error.hint == "backend.cli_missing"


async def test_a_missing_login(cli: FakeCli) -> None:
    cli.script([result_reply(DONE_ANSWER)], login=True)

    assert (await run_and_fail(cli)).hint == "backend.cli_login"


async def test_another_version_of_the_protocol(cli: FakeCli) -> None:
    cli.script([result_reply(DONE_ANSWER)], protocol=2)

    assert (await run_and_fail(cli)).hint == "backend.cli_protocol"


async def test_a_node_that_is_too_old(cli: FakeCli) -> None:
    said = "npm WARN EBADENGINE Unsupported engine { required: { node: '>=22' } }"
    cli.script([], die_on=["initialize"], last_words=said)

    assert (await run_and_fail(cli)).hint == "backend.cli_old_node"


async def test_a_death_in_the_middle_is_tried_again_like_a_service_away(cli: FakeCli) -> None:
    cli.script([{"say": "So far"}, {"die": 9}], last_words="out of memory")

    error = await run_and_fail(cli)

    assert isinstance(error, BackendUnavailable)
    assert error.hint == "backend.cli_died"
    assert "out of memory" in str(error)
    assert error.usage is not None
    assert error.usage.requests == 1


async def test_a_program_that_only_chatters_is_no_agent(cli: FakeCli) -> None:
    cli.script([], greeting="Welcome!\n" * 3_000, hang_on=["initialize"])

    assert (await run_and_fail(cli)).hint == "backend.cli_garbage"


async def test_a_greeting_before_the_first_message_is_passed_over(cli: FakeCli) -> None:
    cli.script(
        [{"garbage": '{"half": \n[]\nnull\n\n'}, result_reply(DONE_ANSWER)], greeting="Welcome!\n"
    )

    _, ended = await collect_run(cli.backend(), step_request(cli))

    assert ended.value is not None


async def test_long_lines_are_read_whole(cli: FakeCli) -> None:
    cli.script([{"flood": {"count": 2, "size": 200_000}}])

    _, ended = await collect_run(cli.backend(), chat_request(cli))

    assert len(ended.text) == 400_000


async def test_one_that_writes_without_end_is_ended(cli: FakeCli) -> None:
    cli.script([{"flood": {"count": 10_000_000, "size": 10_000}}])

    error = await run_and_fail(cli)

    assert isinstance(error, RunLimitReached)
    assert error.hint == "backend.cli_flood"


async def test_one_that_fills_stderr_is_not_stopped_by_it_nor_the_disk(cli: FakeCli) -> None:
    cli.script([{"stderr": 3_000_000}, result_reply(DONE_ANSWER)])

    _, ended = await collect_run(cli.backend(), step_request(cli))

    assert ended.value is not None
    log = cli.root / "agents" / "fake" / "default.log"
    assert 0 < log.stat().st_size <= 1_000_000


async def test_one_that_says_nothing_is_ended(cli: FakeCli) -> None:
    cli.script([{"hang": True}])

    error = await run_and_fail(cli, idle_timeout=0.2)

    assert error.hint == "backend.cli_silent"


async def test_wall_time_ends_one_that_goes_on(cli: FakeCli) -> None:
    cli.script([{"flood": {"count": 10_000_000, "size": 1, "kind": "agent_thought_chunk"}}])
    request = step_request(cli, limits=RunLimits(seconds=0.5))

    with pytest.raises(RunLimitReached, match="longer") as error:
        await collect_run(cli.backend(), request)
    assert error.value.hint == "backend.limit_seconds"


async def test_one_without_limits_of_its_own_has_the_time_of_coding_clis(cli: FakeCli) -> None:
    cli.script([{"flood": {"count": 10_000_000, "size": 1, "kind": "agent_thought_chunk"}}])
    request = step_request(cli, limits=RunLimits(default_seconds=3600.0))

    with pytest.raises(RunLimitReached, match="longer"):
        await collect_run(cli.backend(max_run_seconds=0.5), request)


async def test_a_refusal_is_no_answer(cli: FakeCli) -> None:
    cli.script([{"end": "refusal"}])

    assert isinstance(await run_and_fail(cli), InvalidAnswer)


async def test_an_empty_answer_is_none(cli: FakeCli) -> None:
    cli.script([])

    with pytest.raises(InvalidAnswer, match="empty"):
        await collect_run(cli.backend(), chat_request(cli))


async def test_a_cancelled_run_is_cancelled_in_the_protocol_first(cli: FakeCli) -> None:
    cli.script([{"say": "So far"}, {"hang": True}])

    async with cli.backend().run(chat_request(cli)) as run:
        assert await anext(aiter(run.events)) == TextDelta(text="So far")

    assert len(cli.received("session/cancel")) == 1
    assert run.usage_so_far.requests == 1


async def test_one_that_is_deaf_dies_all_the_same_and_all_its_children(cli: FakeCli) -> None:
    cli.script([{"spawn": "child.pid"}, {"say": "So far"}, {"deaf": True}])
    running = asyncio.create_task(collect_run(cli.backend(), chat_request(cli)))
    path = cli.home() / "child.pid"
    while not (path.exists() and path.read_text()):
        await asyncio.sleep(0.01)
    child = read_pid(path)
    assert is_alive(child)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async with asyncio.timeout(WAIT_SECONDS):
        while is_alive(child):
            await asyncio.sleep(0.01)


async def test_a_second_cancel_does_not_wait(cli: FakeCli) -> None:
    cli.script([{"say": "So far"}, {"deaf": True}])
    house = cli.runtime()
    said = asyncio.Event()

    async def drive() -> None:
        from bot.engine.llm.acp.backend import AcpBackend

        async with AcpBackend(lambda: cli.agent, house).run(chat_request(cli)) as run:
            async for _ in run.events:
                said.set()

    running = asyncio.create_task(drive())
    await said.wait()
    running.cancel()
    while not house.closing_tasks:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.gather(*house.closing_tasks)


def test_only_what_is_on_the_list_reaches_a_cli(tmp_path: Path) -> None:
    around = {"PATH": "/bin", "TELEGRAM_BOT_TOKEN": "t", "OPENAI_API_KEY": "k", "HOME": "/root"}

    env = build_environment(around, ["OPENAI_API_KEY", "UNSET"], {"X": "1"}, home=tmp_path)

    assert env == {"PATH": "/bin", "OPENAI_API_KEY": "k", "X": "1", "HOME": str(tmp_path)}


async def test_secrets_do_not_reach_its_log_nor_our_errors(cli: FakeCli) -> None:
    cli.agent = replace(cli.agent, env=("OPENAI_API_KEY",))
    cli.script([{"die": 1}], last_words="bad key sk-very-secret-1 given")

    error = await run_and_fail(cli, environ={**os.environ, "OPENAI_API_KEY": "sk-very-secret-1"})

    log = cli.root / "agents" / "fake" / "default.log"
    assert "sk-very-secret-1" not in log.read_text() + str(error)
    assert "***" in log.read_text()


async def test_what_a_dead_program_has_left_running_ends_before_the_first_new_one(
    cli: FakeCli,
) -> None:
    env = {**os.environ, PROCESS_MARK_VARIABLE: f"{home_mark(cli.root)}-of-another-life"}
    left = await asyncio.create_subprocess_exec("sleep", "3600", env=env)
    cli.script([result_reply(DONE_ANSWER)])

    await collect_run(cli.backend(), step_request(cli))

    async with asyncio.timeout(WAIT_SECONDS):
        assert await left.wait() == -signal.SIGKILL
