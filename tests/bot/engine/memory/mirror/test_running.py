"""The first start, later starts, and the loops in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from bot.engine.agent.context.bootstrap import bootstrap
from bot.engine.memory.mirror import first
from bot.engine.memory.mirror.notices import Notices
from bot.engine.memory.mirror.places import Place
from bot.engine.memory.mirror.reconcile import Settled
from bot.engine.memory.writing.rights import HOME
from cards.words import words_for
from storage.errors import StoreUnavailable
from storage.ids import Ids
from storage.mail.chats import Chats
from storage.people import People
from storage.records.context import PartState
from storage.records.memory.entries import GLOBAL, Category, MemoryKind
from storage.records.people import Chat, Language
from tests.bot.engine.memory.mirror.desk import ANN, TEAM, Desk
from tests.engine_world import FakeCourier
from tests.samples import a_chat

OLD = "# What I told you\n\n- likes tea\n- 喜欢猫\n\nA paragraph\nof two lines.\n"


def states(told_by: Path, *, private: bool) -> dict[str, PartState]:
    told = bootstrap(told_by, helper=False, private=private)
    return {each.name: each.state for each in told.parts}


@pytest.fixture
def old(desk: Desk) -> Path:
    path = desk.home / "context" / "MEMORY.md"
    path.parent.mkdir()
    path.write_text(OLD)
    return path


async def test_memories_written_by_hand_before_become_the_owners_alone(
    desk: Desk, old: Path
) -> None:
    await desk.mirror.begin()

    assert await desk.texts(ANN) == ["A paragraph\nof two lines.", "likes tea", "喜欢猫"]
    assert await desk.texts(GLOBAL) == []
    assert "## What I told you" in desk.read("memory/people/ann/MEMORY.md")
    assert old.with_name("MEMORY.before.md").read_text() == OLD
    assert desk.told.kinds == ["brought"]


async def test_until_then_they_are_told_in_private_and_afterwards_not_twice(
    desk: Desk, old: Path
) -> None:
    assert states(desk.home, private=True)["MEMORY.md"] is PartState.LOADED
    assert states(desk.home, private=False)["MEMORY.md"] is PartState.KEPT_BACK

    await desk.mirror.begin()

    told = bootstrap(desk.home, helper=False, private=True)
    assert "likes tea" not in told.text


async def test_an_older_file_beside_it_is_not_written_over(desk: Desk, old: Path) -> None:
    old.with_name("MEMORY.before.md").write_text("older")

    await desk.mirror.begin()

    assert old.with_name("MEMORY.before.md").read_text() == "older"
    assert old.with_name("2.MEMORY.before.md").read_text() == OLD


async def test_what_was_forgotten_stays_so_where_the_older_file_cannot_be_moved(
    desk: Desk, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> str:
        raise PermissionError(path)

    monkeypatch.setattr(first, "_move_aside", refused)
    await desk.mirror.begin()
    (tea,) = [each for each in await desk.entries.list([ANN]) if each.text == "likes tea"]
    await desk.writer.forget(tea, HOME)
    old.write_text(f"{OLD}\n- likes cocoa\n")
    desk.start()
    await desk.mirror.begin()

    assert "likes tea" not in await desk.texts(ANN)
    assert "likes cocoa" in await desk.texts(ANN), "what is written into it is still read"

    monkeypatch.undo()
    desk.start()
    await desk.mirror.begin()
    old.write_text("- likes tea\n")
    desk.start()
    await desk.mirror.begin()
    assert "likes tea" in await desk.texts(ANN), "a new file is what somebody wrote anew"


async def test_a_chapter_that_was_removed_stays_away_at_the_next_start(desk: Desk) -> None:
    await desk.mirror.begin()
    found = await desk.entries.list([GLOBAL], kinds=(MemoryKind.HANDBOOK,))
    await desk.writer.forget(found[0], HOME)

    desk.start()
    await desk.mirror.begin()

    assert len(await desk.entries.list([GLOBAL], kinds=(MemoryKind.HANDBOOK,))) == 5


async def test_files_are_in_the_boss_language_and_both_are_understood(desk: Desk) -> None:
    desk.language = Language.CHINESE
    await desk.add("喜欢茶", category=Category.PREFERENCES)
    await desk.mirror.begin()
    assert desk.read().startswith("# 长期记忆\n")
    assert "## 原则" in desk.read("BOSS.md")

    desk.change("<!-- shiftboss: end", "## Lessons\n\n- ask first\n\n<!-- shiftboss: end")
    await desk.mirror.look()

    (lesson,) = [each for each in await desk.entries.list([GLOBAL]) if each.text == "ask first"]
    assert lesson.category is Category.LESSONS
    assert "## 教训" in desk.read()


async def test_what_nobody_has_touched_is_not_written_at_the_next_start(desk: Desk) -> None:
    await desk.add("asked for a report", TEAM, MemoryKind.CELL)
    await desk.pause(60)
    await desk.mirror.begin()
    path = desk.path("memory/chats/the-team/2026-11-23.md")
    before = path.stat()

    desk.start()
    await desk.mirror.begin()
    await desk.mirror.look()

    assert path.stat().st_ino == before.st_ino


async def test_what_was_saved_while_nothing_ran_counts_at_the_next_start(desk: Desk) -> None:
    await desk.add("asked for a report", TEAM, MemoryKind.FACT)
    await desk.pause(60)
    await desk.mirror.begin()
    desk.change("a report", "two reports", "memory/chats/the-team/2026-11-23.md")

    desk.start()
    await desk.mirror.begin()

    assert await desk.texts(TEAM) == ["asked for two reports"]


async def test_a_day_that_was_forgotten_while_no_files_were_written_is_gone_too(
    desk: Desk,
) -> None:
    fact = await desk.add("a secret", TEAM, MemoryKind.FACT)
    episode = await desk.add("a secret told", TEAM, MemoryKind.EPISODE)
    await desk.mirror.begin()
    day = desk.path("memory/chats/the-team/2026-11-23.md")
    story = desk.home / "memory" / "episodes" / f"{episode.id}.md"
    assert day.exists()
    assert story.exists()
    for each in (fact, episode):
        await desk.writer.forget(each, HOME)

    desk.start()
    await desk.mirror.begin()

    assert not day.exists()
    assert not story.exists()


async def test_a_folder_keeps_its_name_when_the_chat_is_called_otherwise(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.add("meets on Monday", TEAM)
    await desk.mirror.begin()
    path = desk.path("memory/chats/the-team/MEMORY.md")

    async def renamed(_scope: object) -> str:
        return "Other"

    monkeypatch.setattr(desk, "name_of", renamed)
    desk.start()
    await desk.mirror.begin()

    assert "Memory of the chat Other" in path.read_text()
    assert len(list(path.parent.parent.iterdir())) == 1


async def test_the_loops_show_what_is_told_of_and_read_what_is_saved(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    async def pause(_seconds: float) -> None:
        looked.set()
        await asyncio.sleep(0)

    async def until(text: str) -> None:
        async with asyncio.timeout(60):
            while text not in "".join(desk.shown() if (desk.home / "MEMORY.md").exists() else ()):
                looked.clear()
                await looked.wait()

    monkeypatch.setattr(desk, "pause", pause)
    desk.start()
    running = asyncio.create_task(desk.mirror.run())

    await until("")
    await desk.hand("likes tea")
    await until("likes tea")
    desk.change("tea", "coffee")
    async with asyncio.timeout(60):
        while await desk.texts() != ["likes coffee"]:
            looked.clear()
            await looked.wait()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_store_that_is_away_is_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.mirror.begin()
    await desk.hand("likes tea")

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as outage:
        outage.setattr(desk.shelf, "shown", away)
        with pytest.raises(StoreUnavailable):
            await desk.mirror.render([GLOBAL])

    await desk.mirror.look()

    assert desk.shown() == ["likes tea"]


async def test_of_a_store_that_is_away_for_long_the_log_tells_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses, real = 0, desk.shelf.shown

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable

    async def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 1:
            monkeypatch.setattr(desk.shelf, "shown", away)
            desk.change("<!-- shiftboss: end", "- likes tea\n<!-- shiftboss: end")
        if pauses == 20:
            monkeypatch.setattr(desk.shelf, "shown", real)
        await asyncio.sleep(0)

    monkeypatch.setattr(desk, "pause", pause)
    desk.start()
    running = asyncio.create_task(desk.mirror.run())
    async with asyncio.timeout(60):
        while await desk.texts() != ["likes tea"]:
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert sum("have to wait" in each.message for each in caplog.records) == 1


async def test_what_goes_wrong_with_one_file_keeps_no_other_from_being_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = desk.reconciler.settle

    async def fails(place: Place, *, empty: bool) -> Settled:
        if place.path == "BOSS.md":
            raise RuntimeError
        return await real(place, empty=empty)

    async def no_language() -> Language:
        raise RuntimeError

    monkeypatch.setattr(desk.reconciler, "settle", fails)
    monkeypatch.setattr(desk.first, "_language", no_language)
    await desk.hand("likes tea")

    await desk.mirror.begin()
    await desk.mirror.look()

    assert desk.shown() == ["likes tea"]
    assert not (desk.home / "BOSS.md").exists()


async def test_owners_are_told_once_of_each_state_of_a_file(desk: Desk) -> None:
    courier = FakeCourier()

    async def owners() -> Sequence[Chat]:
        return [a_chat("home"), a_chat("office")]

    tell = Notices(
        owners=owners,
        people=People(desk.db, Ids(), Chats(desk.db, Ids())),
        courier=courier,
        language=None,
    )

    await tell("MEMORY.md", "held", "one state", n=3)
    await tell("MEMORY.md", "held", "one state", n=3)
    await tell("MEMORY.md", "held", "another", n=3)

    assert len(courier.sent) == 4, "two states, at home and at the office"
    assert "MEMORY.md" in courier.sent[0][1].title


@pytest.mark.parametrize("language", list(Language))
def test_every_notice_has_its_words(language: Language) -> None:
    words = words_for(language)
    for what in ("clash", "held", "torn", "kept", "brought"):
        assert words(f"mirror.notice.{what}", n=2, kept="x")
    for what in ("too_long", "link", "folder", "large", "binary", "unusable"):
        assert words(f"mirror.notice.{what}")
