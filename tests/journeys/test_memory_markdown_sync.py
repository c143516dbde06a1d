"""Memories edited in files while the program writes them, dies and is fed rubbish."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.journeys.program import ShiftbossProcess, running_program
from tests.journeys.program_store import open_store
from tests.thoroughness import thorough_only
from tests.waiting import wait_until


async def wait_until_true(holds: Callable[[], bool]) -> None:
    await wait_until(lambda: asyncio.to_thread(holds))


async def own_file(shiftboss: ShiftbossProcess) -> Path:
    """Where the owner's memory stands."""

    def found() -> list[Path]:
        return list((shiftboss.home / "memory" / "people").glob("*/MEMORY.md"))

    await wait_until_true(lambda: bool(found()))
    return found()[0]


def memory_texts(shiftboss: ShiftbossProcess) -> set[str]:
    with open_store(shiftboss.home) as store:
        return {text for (text,) in store.execute("select text from memories")}


def is_kept(shiftboss: ShiftbossProcess, text: str) -> bool:
    return text in memory_texts(shiftboss)


def read_file(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def has_marker(path: Path, text: str) -> bool:
    """Whether the file shows it as an entry."""
    return any(text in line and "<!-- m:" in line for line in read_file(path).split("\n"))


def edit_by_hand(path: Path, text: str, *, renames: bool) -> None:
    """An editor adds a line, in one of the two ways in which editors save."""
    body = path.read_text().replace("<!-- shiftboss: end", f"- {text}\n<!-- shiftboss: end")
    if not renames:
        path.write_text(body)
        return
    beside = path.with_name("editor~")
    beside.write_text(body)
    beside.replace(path)


async def test_simultaneous_edits_by_a_person_and_the_bot_are_all_kept(
    tmp_path: Path,
) -> None:
    async with running_program(tmp_path) as shiftboss:
        path = await own_file(shiftboss)

        async def bot() -> None:
            for number in range(3):
                await shiftboss.run_to_end("say", f"/memory add the bot's {number}")

        async def person() -> None:
            for number in range(6):
                text = f"the person's {number}"
                edit_by_hand(path, text, renames=number % 2 == 0)
                await wait_until_true(partial(is_kept, shiftboss, text))

        await asyncio.gather(bot(), person())

        wanted = {f"the bot's {n}" for n in range(3)} | {f"the person's {n}" for n in range(6)}
        assert wanted <= memory_texts(shiftboss)
        await wait_until_true(lambda: all(has_marker(path, text) for text in wanted))


@thorough_only
async def test_file_edits_saved_during_a_kill_are_imported_after_the_restart(
    tmp_path: Path,
) -> None:
    async with running_program(tmp_path) as shiftboss:
        path = await own_file(shiftboss)
        await shiftboss.run_to_end("say", "/memory add likes tea")
        await wait_until_true(lambda: has_marker(path, "likes tea"))

        edit_by_hand(path, "in a hurry", renames=False)
        await shiftboss.kill()
        path.write_text(path.read_text().replace("likes tea", "likes coffee"))
        await shiftboss.start()

        await wait_until_true(
            lambda: has_marker(path, "likes coffee") and has_marker(path, "in a hurry")
        )
        assert {"likes coffee", "in a hurry"} <= memory_texts(shiftboss)
        await wait_until_true(lambda: not list(path.parent.glob(".*")))


async def test_garbage_in_place_of_a_memory_file_harms_no_other_file(tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("- not ours\n")
    async with running_program(tmp_path / "home") as shiftboss:
        path = await own_file(shiftboss)
        await shiftboss.run_to_end("say", "/memory add likes tea")
        await wait_until_true(lambda: has_marker(path, "likes tea"))
        home = shiftboss.home

        (home / "link").symlink_to(outside)
        (home / "link").replace(home / "MEMORY.md")
        path.with_name("PROFILE.md").write_bytes(os.urandom(10_000_000))
        edit_by_hand(home / "BOSS.md", "end of rubbish", renames=False)
        await wait_until_true(
            lambda: has_marker(path, "likes tea") and "end of rubbish" in all_texts(shiftboss)
        )
        path.write_text("")
        await wait_until_true(lambda: has_marker(path, "likes tea"))

        assert outside.read_text() == "- not ours\n"
        assert path.with_name("PROFILE.md").stat().st_size == 10_000_000
        assert "not ours" not in all_texts(shiftboss)
        assert (await shiftboss.run_to_end("say", "/help"))[0] == 0
        assert "Traceback" not in shiftboss.printed


def all_texts(shiftboss: ShiftbossProcess) -> str:
    return "\n".join(memory_texts(shiftboss))
