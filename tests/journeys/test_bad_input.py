"""What nobody should order, and results that are not what they are said to be."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

from bot.engine.workflow.places.artifacts import MOST_BYTES
from tests.chaos.store import rows
from tests.emulators.models.script import Asked, Reply
from tests.journeys.model_world import World, done, shows, steps, world
from tests.journeys.town import PATIENCE, town
from tests.thorough import long

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


async def test_fifty_kilobytes_are_one_task_and_nothing_is_a_question(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        for nothing in ("/run", "/run   ", "/run\n\n", "/run -p urgent"):
            await here.ask_chief(nothing)
        assert instructions(tmp_path) == []

        await here.chief.says(here.office, f"/run {LONG}")
        # Its end, too, is told before the list is asked for: the answer is the next thing said.
        await here.office.wait_for(lambda m: "Task is stuck" in m.text, timeout=PATIENCE)
        assert instructions(tmp_path) == [LONG.strip()]
        await here.ask_chief("/list", expects="Tasks (1)")
        assert "Traceback" not in here.shiftboss.text


@long
async def test_ids_that_nobody_has_are_refused_in_words(tmp_path: Path) -> None:
    async with town(tmp_path) as here:
        # The platform lets us answer once a second: each command meets one of them.
        for command, unknown in zip(UNKNOWN, cycle(("zzzzzz", "'; DROP TABLE tasks; --", "%"))):
            assert await here.ask(command.format(unknown)), command
        await here.ask("/list", expects="Tasks (0)")
        assert "incident" not in here.shiftboss.text
        assert "Traceback" not in here.shiftboss.text


@long
async def test_results_that_are_not_what_they_are_said_to_be_are_never_a_success(
    tmp_path: Path,
) -> None:
    """Missing, outside, a folder; and a report in another language is somebody's own words."""
    async with world(tmp_path, "openai") as here:
        for cue, lines in {
            "lies": (
                done("made it", "ghost.md"),
                done("made it", "../../etc/passwd"),
                done("made it", "."),
            ),
        }.items():
            here.stage.on(cue, "plan", steps("one"))
            here.stage.on(cue, "step", *lines)
            assert "Task finished" not in await ending(here, cue)
        here.stage.on("chinese", "plan", steps("one"))
        here.stage.on("chinese", "step", done("全部完成了。"))
        shown = await ending(here, "chinese")
        assert "Task finished" in shown, "whose words these are is plain, and ours stay English"
        assert "全部完成了" in shown
        assert "Traceback" not in here.shiftboss.text


@long
async def test_a_result_too_large_to_send_is_named_and_left_where_it_is(tmp_path: Path) -> None:
    async with world(tmp_path, "anthropic") as here:
        here.stage.on("enormous", "plan", steps("one", "two"))
        here.stage.on(
            "enormous",
            "step",
            done("first"),
            lambda asked: grown(tmp_path, asked),
        )
        shown = await ending(here, "enormous")
        assert "big.bin" in shown
        assert "Traceback" not in here.shiftboss.text


def grown(home: Path, asked: Asked) -> Reply:
    """The step has made a file larger than can be sent."""
    (folder,) = (home / "work").iterdir()
    with (folder / "big.bin").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    return done("made it", "big.bin")(asked)


async def ending(here: World, cue: str) -> str:
    boss, chat = here.boss()
    await boss.says(chat, f"/run the case of {cue}")
    message = await chat.wait_for(
        lambda m: any(shows(m, f"Task {word}") for word in ("finished", "failed", "is stuck")),
        timeout=60,
    )
    return message.text


def instructions(home: Path) -> list[str]:
    return [text.strip() for (text,) in rows(home, "SELECT instruction FROM tasks")]
