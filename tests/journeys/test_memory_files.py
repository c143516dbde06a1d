"""Memories edited in files while the program writes them, dies and is fed rubbish."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.journeys.program import Program, program
from tests.thorough import long

PATIENCE = 60.0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(holds):
            await asyncio.sleep(0.05)


async def own_file(shiftboss: Program) -> Path:
    """Where the owner's memory stands."""

    def found() -> list[Path]:
        return list((shiftboss.home / "memory" / "people").glob("*/MEMORY.md"))

    await until(lambda: bool(found()))
    return found()[0]


def remembered(shiftboss: Program) -> set[str]:
    with closing(sqlite3.connect(shiftboss.home / "shiftboss.db")) as store:
        return {text for (text,) in store.execute("select text from memories")}


def is_kept(shiftboss: Program, text: str) -> bool:
    return text in remembered(shiftboss)


def reads(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def marked(path: Path, text: str) -> bool:
    """Whether the file shows it as an entry."""
    return any(text in line and "<!-- m:" in line for line in reads(path).split("\n"))


def by_hand(path: Path, text: str, *, renames: bool) -> None:
    """An editor adds a line, in one of the two ways in which editors save."""
    body = path.read_text().replace("<!-- shiftboss: end", f"- {text}\n<!-- shiftboss: end")
    if not renames:
        path.write_text(body)
        return
    beside = path.with_name("editor~")
    beside.write_text(body)
    beside.replace(path)


async def test_what_a_person_and_the_bot_write_at_the_same_time_is_all_kept(
    tmp_path: Path,
) -> None:
    async with program(tmp_path) as shiftboss:
        path = await own_file(shiftboss)

        async def bot() -> None:
            for number in range(3):
                await shiftboss.run_to_end("say", f"/memory add the bot's {number}")

        async def person() -> None:
            for number in range(6):
                text = f"the person's {number}"
                by_hand(path, text, renames=number % 2 == 0)
                await until(partial(is_kept, shiftboss, text))

        await asyncio.gather(bot(), person())

        wanted = {f"the bot's {n}" for n in range(3)} | {f"the person's {n}" for n in range(6)}
        assert wanted <= remembered(shiftboss)
        await until(lambda: all(marked(path, text) for text in wanted))


@long
async def test_what_is_saved_while_the_program_is_killed_counts_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with program(tmp_path) as shiftboss:
        path = await own_file(shiftboss)
        await shiftboss.run_to_end("say", "/memory add likes tea")
        await until(lambda: marked(path, "likes tea"))

        by_hand(path, "in a hurry", renames=False)
        await shiftboss.kill()
        path.write_text(path.read_text().replace("likes tea", "likes coffee"))
        await shiftboss.start()

        await until(lambda: marked(path, "likes coffee") and marked(path, "in a hurry"))
        assert {"likes coffee", "in a hurry"} <= remembered(shiftboss)
        await until(lambda: not list(path.parent.glob(".*")))


async def test_rubbish_in_the_place_of_files_hurts_nothing_else(tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("- not ours\n")
    async with program(tmp_path / "home") as shiftboss:
        path = await own_file(shiftboss)
        await shiftboss.run_to_end("say", "/memory add likes tea")
        await until(lambda: marked(path, "likes tea"))
        home = shiftboss.home

        (home / "link").symlink_to(outside)
        (home / "link").replace(home / "MEMORY.md")
        path.with_name("PROFILE.md").write_bytes(os.urandom(10_000_000))
        by_hand(home / "BOSS.md", "end of rubbish", renames=False)
        await until(lambda: marked(path, "likes tea") and "end of rubbish" in all_of(shiftboss))
        path.write_text("")
        await until(lambda: marked(path, "likes tea"))

        assert outside.read_text() == "- not ours\n"
        assert path.with_name("PROFILE.md").stat().st_size == 10_000_000
        assert "not ours" not in all_of(shiftboss)
        assert (await shiftboss.run_to_end("say", "/help"))[0] == 0
        assert "Traceback" not in shiftboss.text


def all_of(shiftboss: Program) -> str:
    return "\n".join(remembered(shiftboss))
