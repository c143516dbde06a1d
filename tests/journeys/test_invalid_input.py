"""Invalid commands, and results that are not what they claim to be."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

from bot.engine.workspaces.task_workspaces import MAX_RESULT_BYTES
from tests.chaos.inspection import rows
from tests.emulators.models.script import ReceivedRequest, ScriptedReply
from tests.journeys.model_world import ModelWorld, model_world, plan_reply, shows, step_reply
from tests.journeys.platform_world import platform_world
from tests.thoroughness import thorough_only

LONG = "write a report of everything " * 1_800
"""50 KB."""

UNKNOWN = (
    "/get {}",
    "/logs {}",
    "/pause {}",
    "/resume {}",
    "/retry {}",
    "/stop {}",
    "/priority {} urgent",
    "/msg {} hello",
    "/inject {} step",
    "/replan {} why",
    "/letin {}",
    "/plan {}",
    "/approve {}",
    "/reject {}",
)


async def test_a_fifty_kilobyte_instruction_is_one_task_and_an_empty_one_is_none(
    tmp_path: Path,
) -> None:
    async with platform_world(tmp_path) as here:
        for nothing in ("/run", "/run   ", "/run\n\n", "/run -p urgent"):
            await here.ask_on_feishu(nothing)
        assert instructions(tmp_path) == []

        await here.feishu_owner.says(here.feishu_chat, f"/run {LONG}")
        # Its end, too, is told before the list is asked for: the answer is the next thing said.
        await here.feishu_chat.wait_for(lambda m: "Task blocked" in m.text)
        assert instructions(tmp_path) == [LONG.strip()]
        await here.ask_on_feishu("/list", expects="Tasks (1)")
        assert "Traceback" not in here.program.printed


@thorough_only
async def test_unknown_ids_are_refused_with_an_explanation(tmp_path: Path) -> None:
    async with platform_world(tmp_path) as here:
        # The platform lets us answer once a second: each command meets one of them.
        for command, unknown in zip(UNKNOWN, cycle(("zzzzzz", "'; DROP TABLE tasks; --", "%"))):
            assert await here.ask(command.format(unknown)), command
        await here.ask("/list", expects="Tasks (0)")
        assert "incident" not in here.program.printed
        assert "Traceback" not in here.program.printed


@thorough_only
async def test_missing_or_false_result_files_never_count_as_success(
    tmp_path: Path,
) -> None:
    """Missing, outside, a folder; and a report in another language is somebody's own words."""
    async with model_world(tmp_path, "openai") as here:
        for cue, lines in {
            "lies": (
                step_reply("made it", "ghost.md"),
                step_reply("made it", "../../etc/passwd"),
                step_reply("made it", "."),
            ),
        }.items():
            here.script.script(cue, "plan", plan_reply("one"))
            here.script.script(cue, "step", *lines)
            assert "Task finished" not in await ending(here, cue)
        here.script.script("chinese", "plan", plan_reply("one"))
        here.script.script("chinese", "step", step_reply("全部完成了。"))
        shown = await ending(here, "chinese")
        assert "Task finished" in shown, "whose words these are is plain, and ours stay English"
        assert "全部完成了" in shown
        assert "Traceback" not in here.program.printed


@thorough_only
async def test_a_result_too_large_to_send_is_named_and_stays_on_disk(tmp_path: Path) -> None:
    async with model_world(tmp_path, "anthropic") as here:
        here.script.script("enormous", "plan", plan_reply("one", "two"))
        here.script.script(
            "enormous",
            "step",
            step_reply("first"),
            lambda asked: grow_file_and_finish(tmp_path, asked),
        )
        shown = await ending(here, "enormous")
        assert "big.bin" in shown
        assert "Traceback" not in here.program.printed


def grow_file_and_finish(home: Path, asked: ReceivedRequest) -> ScriptedReply:
    """The step has made a file larger than can be sent."""
    (folder,) = (home / "work").iterdir()
    with (folder / "big.bin").open("wb") as file:
        file.truncate(MAX_RESULT_BYTES + 1)
    return step_reply("made it", "big.bin")(asked)


async def ending(here: ModelWorld, cue: str) -> str:
    boss, chat = here.new_owner()
    await boss.says(chat, f"/run the case of {cue}")
    message = await chat.wait_for(
        lambda m: any(shows(m, f"Task {word}") for word in ("finished", "failed", "blocked")),
    )
    return message.text


def instructions(home: Path) -> list[str]:
    return [text.strip() for (text,) in rows(home, "SELECT instruction FROM tasks")]
