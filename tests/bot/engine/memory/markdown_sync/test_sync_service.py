"""The first start, later starts, and the loops in between."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from bot.engine.agent.worker_briefing import load_boss_files
from bot.engine.memory.access import LOCAL_EDITOR
from bot.engine.memory.markdown_sync import sync_service
from bot.engine.memory.markdown_sync.layout import MemoryFile, OwnerNoticeSender
from bot.engine.memory.markdown_sync.reconciler import ReconcileResult
from cards.catalog import catalog_for
from storage.errors import StoreUnavailable
from storage.records.memory import GLOBAL_SCOPE, MemoryCategory, MemoryKind
from storage.records.people import Language
from storage.records.workers import ContextPartState
from tests.bot.engine.memory.markdown_sync.sync_builders import ANN, TEAM, SyncSetup
from tests.builders import make_chat
from tests.engine_harness import RecordingCourier, owner_cards
from tests.waiting import WAIT_SECONDS, wait_until

OLD = "# What I told you\n\n- likes tea\n- 喜欢猫\n\nA paragraph\nof two lines.\n"


def states(told_by: Path, *, private: bool) -> dict[str, ContextPartState]:
    told = load_boss_files(told_by, is_subagent=False, is_private=private)
    return {each.name: each.state for each in told.parts}


@pytest.fixture
def old(desk: SyncSetup) -> Path:
    path = desk.home / "context" / "MEMORY.md"
    path.parent.mkdir()
    path.write_text(OLD)
    return path


async def test_memories_written_by_hand_before_become_the_owners_alone(
    desk: SyncSetup, old: Path
) -> None:
    await desk.sync_service.sync_all()

    assert await desk.texts(ANN) == ["A paragraph\nof two lines.", "likes tea", "喜欢猫"]
    assert await desk.texts(GLOBAL_SCOPE) == []
    assert "## What I told you" in desk.read("memory/people/ann/MEMORY.md")
    assert old.with_name("MEMORY.before.md").read_text() == OLD
    assert desk.notifier.kinds == ["brought"]


async def test_until_then_they_are_told_in_private_and_afterwards_not_twice(
    desk: SyncSetup, old: Path
) -> None:
    assert states(desk.home, private=True)["MEMORY.md"] is ContextPartState.LOADED
    assert states(desk.home, private=False)["MEMORY.md"] is ContextPartState.WITHHELD

    await desk.sync_service.sync_all()

    told = load_boss_files(desk.home, is_subagent=False, is_private=True)
    assert "likes tea" not in told.text


async def test_an_older_file_beside_it_is_not_written_over(desk: SyncSetup, old: Path) -> None:
    old.with_name("MEMORY.before.md").write_text("older")

    await desk.sync_service.sync_all()

    assert old.with_name("MEMORY.before.md").read_text() == "older"
    assert old.with_name("2.MEMORY.before.md").read_text() == OLD


async def test_what_was_forgotten_stays_so_where_the_older_file_cannot_be_moved(
    desk: SyncSetup, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path) -> str:
        raise PermissionError(path)

    monkeypatch.setattr(sync_service, "_move_aside", refused)
    await desk.sync_service.sync_all()
    (tea,) = [each for each in await desk.entries.list([ANN]) if each.text == "likes tea"]
    await desk.writer.forget(tea, LOCAL_EDITOR)
    old.write_text(f"{OLD}\n- likes cocoa\n")
    desk.start()
    await desk.sync_service.sync_all()

    assert "likes tea" not in await desk.texts(ANN)
    assert "likes cocoa" in await desk.texts(ANN), "what is written into it is still read"

    monkeypatch.undo()
    desk.start()
    await desk.sync_service.sync_all()
    old.write_text("- likes tea\n")
    desk.start()
    await desk.sync_service.sync_all()
    assert "likes tea" in await desk.texts(ANN), "a new file is what somebody wrote anew"


async def test_a_chapter_that_was_removed_stays_away_at_the_next_start(desk: SyncSetup) -> None:
    await desk.sync_service.sync_all()
    found = await desk.entries.list([GLOBAL_SCOPE], kinds=(MemoryKind.HANDBOOK,))
    await desk.writer.forget(found[0], LOCAL_EDITOR)

    desk.start()
    await desk.sync_service.sync_all()

    assert len(await desk.entries.list([GLOBAL_SCOPE], kinds=(MemoryKind.HANDBOOK,))) == 5


async def test_files_are_in_the_boss_language_and_both_are_understood(desk: SyncSetup) -> None:
    desk.language = Language.CHINESE
    await desk.add("喜欢茶", category=MemoryCategory.PREFERENCES)
    await desk.sync_service.sync_all()
    assert desk.read().startswith("# 长期记忆\n")
    assert "## 原则" in desk.read("BOSS.md")

    desk.change("<!-- shiftboss: end", "## Lessons\n\n- ask first\n\n<!-- shiftboss: end")
    await desk.sync_service.read_back()

    (lesson,) = [
        each for each in await desk.entries.list([GLOBAL_SCOPE]) if each.text == "ask first"
    ]
    assert lesson.category is MemoryCategory.LESSONS
    assert "## 教训" in desk.read()


async def test_what_nobody_has_touched_is_not_written_at_the_next_start(desk: SyncSetup) -> None:
    await desk.add("asked for a report", TEAM, MemoryKind.CELL)
    await desk.pause(60)
    await desk.sync_service.sync_all()
    path = desk.path("memory/chats/the-team/2026-11-23.md")
    before = path.stat()

    desk.start()
    await desk.sync_service.sync_all()
    await desk.sync_service.read_back()

    assert path.stat().st_ino == before.st_ino


async def test_what_was_saved_while_nothing_ran_counts_at_the_next_start(desk: SyncSetup) -> None:
    await desk.add("asked for a report", TEAM, MemoryKind.FACT)
    await desk.pause(60)
    await desk.sync_service.sync_all()
    desk.change("a report", "two reports", "memory/chats/the-team/2026-11-23.md")

    desk.start()
    await desk.sync_service.sync_all()

    assert await desk.texts(TEAM) == ["asked for two reports"]


async def test_a_day_that_was_forgotten_while_no_files_were_written_is_gone_too(
    desk: SyncSetup,
) -> None:
    fact = await desk.add("a secret", TEAM, MemoryKind.FACT)
    episode = await desk.add("a secret told", TEAM, MemoryKind.EPISODE)
    await desk.sync_service.sync_all()
    day = desk.path("memory/chats/the-team/2026-11-23.md")
    story = desk.home / "memory" / "episodes" / f"{episode.id}.md"
    assert day.exists()
    assert story.exists()
    for each in (fact, episode):
        await desk.writer.forget(each, LOCAL_EDITOR)

    desk.start()
    await desk.sync_service.sync_all()

    assert not day.exists()
    assert not story.exists()


async def test_a_folder_keeps_its_name_when_the_chat_is_called_otherwise(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.add("meets on Monday", TEAM)
    await desk.sync_service.sync_all()
    path = desk.path("memory/chats/the-team/MEMORY.md")

    async def renamed(_scope: object) -> str:
        return "Other"

    monkeypatch.setattr(desk, "name_of", renamed)
    desk.start()
    await desk.sync_service.sync_all()

    assert "Memory of the chat Other" in path.read_text()
    assert len(list(path.parent.parent.iterdir())) == 1


async def test_the_loops_show_what_is_told_of_and_read_what_is_saved(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()

    async def pause(_seconds: float) -> None:
        looked.set()
        await asyncio.sleep(0)

    async def until(text: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while text not in "".join(desk.shown() if (desk.home / "MEMORY.md").exists() else ()):
                looked.clear()
                await looked.wait()

    monkeypatch.setattr(desk, "pause", pause)
    desk.start()
    running = asyncio.create_task(desk.sync_service.run())

    await until("")
    await desk.add_manual("likes tea")
    await until("likes tea")
    desk.change("tea", "coffee")
    async with asyncio.timeout(WAIT_SECONDS):
        while await desk.texts() != ["likes coffee"]:
            looked.clear()
            await looked.wait()

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_store_that_is_away_is_waited_for(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.sync_service.sync_all()
    await desk.add_manual("likes tea")

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as outage:
        outage.setattr(desk.repo, "list_shown", away)
        with pytest.raises(StoreUnavailable):
            await desk.sync_service.write_changed([GLOBAL_SCOPE])

    await desk.sync_service.read_back()

    assert desk.shown() == ["likes tea"]


async def test_of_a_store_that_is_away_for_long_the_log_tells_once(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses, real = 0, desk.repo.list_shown

    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable

    async def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 1:
            monkeypatch.setattr(desk.repo, "list_shown", away)
            desk.change("<!-- shiftboss: end", "- likes tea\n<!-- shiftboss: end")
        if pauses == 20:
            monkeypatch.setattr(desk.repo, "list_shown", real)
        await asyncio.sleep(0)

    monkeypatch.setattr(desk, "pause", pause)
    desk.start()
    running = asyncio.create_task(desk.sync_service.run())
    async with asyncio.timeout(WAIT_SECONDS):
        while await desk.texts() != ["likes tea"]:
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert sum("memory files wait" in each.message for each in caplog.records) == 1


async def test_files_are_looked_at_less_often_until_one_changes(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        desk.clock += timedelta(seconds=seconds)
        await asyncio.sleep(0.01)

    async def until_paused(seconds: float) -> None:
        pauses.clear()
        await wait_until(lambda: seconds in pauses)

    monkeypatch.setattr(desk, "pause", pause)
    desk.start()
    running = asyncio.create_task(desk.sync_service.run())
    await until_paused(sync_service.IDLE_POLL_SECONDS)
    desk.change("<!-- shiftboss: end", "- likes tea\n<!-- shiftboss: end")
    await until_paused(sync_service.POLL_SECONDS)
    async with asyncio.timeout(WAIT_SECONDS):
        while await desk.texts() != ["likes tea"]:
            await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_goes_wrong_with_one_file_keeps_no_other_from_being_written(
    desk: SyncSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = desk.reconciler.reconcile

    async def fails(file: MemoryFile, *, keep_empty: bool) -> ReconcileResult:
        if file.path == "BOSS.md":
            raise RuntimeError
        return await real(file, keep_empty=keep_empty)

    async def no_language() -> Language:
        raise RuntimeError

    monkeypatch.setattr(desk.reconciler, "reconcile", fails)
    monkeypatch.setattr(desk.initial_import, "language", no_language)
    await desk.add_manual("likes tea")

    await desk.sync_service.sync_all()
    await desk.sync_service.read_back()

    assert desk.shown() == ["likes tea"]
    assert not (desk.home / "BOSS.md").exists()


async def test_owners_are_told_once_of_each_state_of_a_file(desk: SyncSetup) -> None:
    courier = RecordingCourier()

    owners = owner_cards(courier, [make_chat("home"), make_chat("office")])
    tell = OwnerNoticeSender(owners=owners)

    await tell("MEMORY.md", "held", "one state", n=3)
    await tell("MEMORY.md", "held", "one state", n=3)
    await tell("MEMORY.md", "held", "another", n=3)

    assert len(courier.sent) == 4, "two states, at home and at the office"
    assert "MEMORY.md" in courier.sent[0][1].title


@pytest.mark.parametrize("language", list(Language))
def test_every_notice_has_its_words(language: Language) -> None:
    words = catalog_for(language)
    for what in ("clash", "held", "torn", "kept", "brought"):
        assert words(f"mirror.notice.{what}", n=2, kept="x")
    for what in ("too_long", "link", "folder", "large", "binary", "unusable"):
        assert words(f"mirror.notice.{what}")
