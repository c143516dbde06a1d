"""The whole program on PostgreSQL: a store moves there, works there, and is saved and restored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.emulators.models.script import ScriptedCall, ScriptedReply
from tests.emulators.telegram.chats import TelegramChat, TelegramMessage
from tests.emulators.telegram.users import TelegramUser
from tests.journeys import (
    program_store,
    test_approvals,
    test_memory_retrieval,
    test_preemption,
    test_workflows,
)
from tests.journeys.model_world import (
    ModelWorld,
    ask,
    held_reply,
    label_with,
    model_world,
    plan_reply,
    script_task,
    step_reply,
    wait_for_message,
)
from tests.journeys.program import ShiftbossProcess
from tests.postgresql_server import create_database, execute

_REST = """\
name: Rest
nodes:
  - {id: rest, type: delay, delay: {value: 1, unit: h}}
"""


@pytest.fixture
def on_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of a journey have their stores on the server."""
    monkeypatch.setattr(program_store, "USES_POSTGRESQL", True)


@pytest.mark.usefixtures("on_server")
@pytest.mark.parametrize(
    "journey",
    [
        test_preemption.test_an_urgent_task_preempts_and_the_other_continues_by_itself,
        test_approvals.test_a_risky_step_asks_and_its_button_works_once_across_a_kill,
    ],
)
async def test_a_journey_goes_there_as_it_does_on_a_file(
    journey: Callable[[Path], Awaitable[None]], tmp_path: Path
) -> None:
    await journey(tmp_path)


@pytest.mark.usefixtures("on_server")
async def test_workflows_and_memory_go_there_as_they_do_on_a_file(tmp_path: Path) -> None:
    async with model_world(tmp_path / "home", "anthropic") as world:
        for journey in (
            test_workflows.test_timers_and_human_steps_survive_a_kill_and_one_may_time_out,
            test_memory_retrieval.test_memories_from_a_private_chat_stay_out_of_groups,
        ):
            await journey(world)


async def test_a_home_moves_to_postgresql_and_works_there(tmp_path: Path) -> None:
    url = create_database(migrated=False)
    async with model_world(tmp_path / "home", "openai") as world:
        boss, chat = world.new_owner()
        await boss.says(chat, "/task write the owl page")
        await wait_for_message(chat, "Task finished")
        await world.program.stop()

        await move(world.program, url)
        world.program.settings = {**world.program.settings, "DATABASE_URL": url}
        await world.program.start()
        await boss.says(chat, "/task write the heron page")
        await wait_for_message(chat, "heron page", "Task finished")
        archive = await back_up(world)
        await world.program.stop()

    titles = "SELECT title, status FROM tasks ORDER BY created_at"
    assert execute(url, titles) == [
        ("write the owl page", "completed"),
        ("write the heron page", "completed"),
    ]
    other = create_database(migrated=False)
    restored = ShiftbossProcess(
        home=tmp_path / "other", settings={**world.program.settings, "DATABASE_URL": other}
    )
    restored.home.mkdir()
    status, said = await restored.run_to_end("restore", archive)
    assert status == 0, said
    assert execute(other, titles) == execute(url, titles)
    status, said = await restored.run_to_end("restore", archive, "--replace")
    assert (status, "nothing was restored" in said, "has a store already" in said) == (
        2,
        True,
        True,
    )
    await restored.start()
    await restored.kill()


# @thorough_only
async def test_a_home_amid_its_work_moves_there_and_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    server, file = create_database(migrated=False), f"sqlite:///{home / 'shiftboss.db'}"
    async with model_world(home, "anthropic", SHIFTBOSS_LANGUAGE="en") as world:
        boss, chat = world.new_owner()
        asked = [await fill(world, boss, chat, n) for n in range(2)]
        await boss.says(chat, "/workflow run rest")
        await wait_for_message(chat, "Waiting until")
        go = asyncio.Event()
        world.script.script("the long one", "plan", plan_reply("first part", "second part"))
        world.script.script(
            "the long one", "step", step_reply("Began."), held_reply(step_reply("Lost."), go)
        )
        await boss.says(chat, "/task the long one")
        await world.script.wait_for_request("the long one", count=2)
        world.script.script("the long one", "step", held_reply(step_reply("Ended."), go))
        await world.program.kill()
        before = await told(world.program)

        for n, url in enumerate((server, file)):
            await move(world.program, url)
            world.program.settings = {**world.program.settings, "DATABASE_URL": url}
            assert await told(world.program) == before
            await world.program.start()
            await boss.presses(asked[n], label_with(asked[n].buttons, "Once"))
            await wait_for_message(chat, f"It is done: risk{n}.")
            await ask(boss, chat, "/memory search harbour", "blue boat")
            await ask(boss, chat, f"what was said {n}", "nothing more")
            if url == file:
                go.set()
                await wait_for_message(chat, "the long one", "Task finished")
            await world.program.stop()
            before = await told(world.program)
        status, said = await world.program.run_to_end("check")
        assert status == 0, said
    done = world.script.requests_for("the long one", "step")
    assert sum("Your step now: first part" in one.user_texts[-1] for one in done) == 1


async def fill(
    world: ModelWorld, boss: TelegramUser, chat: TelegramChat, n: int
) -> TelegramMessage:
    """A chat with the traces of some use; returns the card of an open request."""
    folder = world.program.home / "workflows"
    folder.mkdir(exist_ok=True)
    (folder / "rest.yaml").write_text(_REST, encoding="utf-8")
    await ask(
        boss, chat, f"/remember The harbour of day {n} has a blue boat, 蓝色的船", "blue boat"
    )
    await ask(boss, chat, f"/remind every day at {n + 7} air the rooms", "air the rooms")
    world.script.script(
        "what was said", "talk", *[ScriptedReply(text="There is nothing more.")] * 4
    )
    await ask(boss, chat, f"hello and what was said on day {n}", "nothing more")
    write = ScriptedCall(name="write", arguments={"path": "AGENTS.md", "content": f"notes {n}"})
    await boss.says(chat, script_task(world.script, f"risk{n}", ScriptedReply(calls=[write])))
    return await chat.wait_for(
        lambda m: m.from_bot and f"notes {n}" in m.text and any("Once" in one for one in m.buttons)
    )


async def told(program: ShiftbossProcess) -> list[str]:
    """What the shell says of the home."""
    asked = (
        ("task", "ls"),
        ("memory", "search", "blue boat"),
        ("memory", "search", "船"),
        ("memory", "list"),
        ("approvals",),
    )
    said = [await program.run_to_end(*one) for one in asked]
    assert [status for status, _ in said] == [0] * len(asked), said
    return [text for _, text in said]


async def move(program: ShiftbossProcess, url: str) -> None:
    status, said = await program.run_to_end("migrate", "--to", url)
    assert status == 0, said
    assert "compared" in said
    status, said = await program.run_to_end("run")
    assert status != 0
    assert "moved to" in said


async def back_up(world: ModelWorld) -> str:
    """Beside the running program, which is checked too."""
    for command in ("backup", "check"):
        status, said = await world.program.run_to_end(command)
        assert status == 0, said
    (archive,) = (world.program.home / "backups").glob("*.tar.gz")
    return str(archive)
