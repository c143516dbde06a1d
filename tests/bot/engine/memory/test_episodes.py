"""A conversation that has ended becomes an episode, found by cues and days in both languages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from bot.engine.memory.change_feed import MemoryChangeFeed
from bot.engine.memory.episodes import EpisodeFinder, EpisodeRecorder
from storage.key_value import KeyValueStore
from storage.memory.cells import ChatCellRepo
from storage.records.memory import MemoryEntry, MemoryKind, NewMemoryEntry
from storage.sessions import SessionRepo
from tests.bot.engine.memory.retrieval_builders import (
    GROUP_READER,
    MY_SCOPE,
    PRIVATE_READER,
    RetrievalSetup,
    build_retrieval,
)
from tests.engine_harness import CHAT, START
from tests.waiting import WAIT_SECONDS

BOAT = ("Let us paint the old boat green", "Which green for the boat?", "Dark green, we decided so")


@dataclass(kw_only=True)
class EpisodeSetup:
    it: RetrievalSetup
    keeper: EpisodeRecorder
    finder: EpisodeFinder
    said: list[MemoryEntry] = field(default_factory=list)

    async def talk(self, *said: str, every: float = 1.0) -> None:
        """One turn a minute, each with an answer."""
        for text in said:
            cell = await self.it.keep(
                f"{text}\n\nAs you say.",
                kind=MemoryKind.CELL,
                chat=CHAT.id,
                thread=f"chat:{CHAT.id}",
                sender="Boss",
                source=f"turn:{len(self.said)}",
                extra={"said": len(text)},
            )
            self.said.append(cell)
            self.it.world.clock.advance(minutes=every)

    async def episodes(self) -> list[MemoryEntry]:
        found = await self.it.entries.list((MY_SCOPE,), kinds=(MemoryKind.EPISODE,))
        return list(reversed(found))

    async def found(self, said: str) -> list[str]:
        return [each.text for each, _ in await self.finder.find_referenced(PRIVATE_READER, said)]


@asynccontextmanager
async def build_episodes(home: Path) -> AsyncGenerator[EpisodeSetup, None]:
    async with build_retrieval(home) as it:
        keeper = EpisodeRecorder(
            db=it.world.db,
            entries=it.entries,
            talks=ChatCellRepo(it.world.db),
            key_values=KeyValueStore(it.world.db),
            feed=MemoryChangeFeed(),
            now=it.world.clock,
            zone=UTC,
        )
        yield EpisodeSetup(
            it=it,
            keeper=keeper,
            finder=EpisodeFinder(entries=it.entries, now=it.world.clock, zone=UTC),
        )


async def test_five_minutes_of_silence_end_a_conversation(tmp_path: Path) -> None:
    async with build_episodes(tmp_path) as my:
        await my.talk(*BOAT)
        rest = await my.keeper.record_ended()
        too_early = await my.episodes()
        my.it.world.clock.advance(minutes=5)
        done = await my.keeper.record_ended()
        [episode] = await my.episodes()

        assert too_early == []
        assert rest is not None
        assert 200 < rest <= 300
        assert done is None
        assert "Let us paint the old boat green" in episode.text
        assert "→ Dark green, we decided so" in episode.text
        assert "boat" in episode.keywords
        assert episode.extra["participants"] == ["Boss"]
        assert list(episode.evidence) == [each.id for each in my.said]


async def test_a_word_of_farewell_ends_it_at_once_after_three_turns(tmp_path: Path) -> None:
    async with build_episodes(tmp_path) as my:
        await my.talk("Paint the boat", "Thanks for the boat")
        await my.keeper.record_ended()
        after_two = await my.episodes()
        await my.talk("And the sails?", "好的，先这样吧")
        await my.keeper.record_ended()

        assert after_two == []
        assert len(await my.episodes()) == 1


async def test_a_new_conversation_or_backend_and_a_task_end_it(tmp_path: Path) -> None:
    async with build_episodes(tmp_path) as my:
        await my.talk("Paint the old boat", "In dark green")
        async with my.it.world.db.write() as tx:
            await SessionRepo(my.it.world.db).start(
                tx, id="s9", key=f"chat:{CHAT.id}", backend="b", model="m", now=my.it.world.clock()
            )
        await my.talk("Repair the chimney", "With new bricks")
        await my.keeper.record_ended()
        anew = await my.episodes()
        await my.it.world.create_task("Buy the bricks for the chimney")
        await my.keeper.record_ended()
        task = await my.episodes()

        assert ["Paint" in each.text for each in anew] == [True]
        assert ["chimney" in each.text for each in task] == [False, True]


async def test_a_single_turn_is_no_conversation_and_twenty_are_one(tmp_path: Path) -> None:
    async with build_episodes(tmp_path) as my:
        await my.talk("Just one thing about anchors")
        my.it.world.clock.advance(hours=1)
        await my.talk(*(f"Thing number {n} about sails" for n in range(25)))
        await my.keeper.record_ended()
        my.it.world.clock.advance(hours=1)
        await my.keeper.record_ended()

        assert [each.extra["turns"] for each in await my.episodes()] == [20]


async def test_the_same_within_a_day_is_kept_once_and_after_a_restart_nothing_twice(
    tmp_path: Path,
) -> None:
    async with build_episodes(tmp_path) as my:
        for _ in range(2):
            await my.talk(*BOAT)
            my.it.world.clock.advance(hours=1)
        await my.keeper.record_ended()
        again = replace(my.keeper)
        await again.record_ended()
        my.it.world.clock.advance(hours=30)
        await my.talk(*BOAT)
        my.it.world.clock.advance(hours=1)
        await again.record_ended()

        assert len(await my.episodes()) == 2


@pytest.mark.parametrize(
    "said",
    [
        "As we discussed last time, which green?",
        "还记得上次说的船吗",
        "What did we talk about yesterday?",
        "昨天聊的是什么颜色",
        "Let us continue with the boat",
    ],
)
async def test_an_episode_is_found_by_cues_and_days(tmp_path: Path, said: str) -> None:
    async with build_episodes(tmp_path) as my:
        await my.talk(*BOAT)
        my.it.world.clock.advance(minutes=9)
        await my.keeper.record_ended()
        my.it.world.clock.advance(days=1)

        assert ["boat" in each for each in await my.found(said)] == [True]
        assert await my.finder.find_referenced(GROUP_READER, said) == []


async def test_a_day_picks_the_conversations_of_that_day(tmp_path: Path) -> None:
    async with build_episodes(tmp_path) as my:
        for topic in ("boat", "chimney", "garden"):
            await my.talk(f"Let us look at the {topic}", f"The {topic} needs work")
            my.it.world.clock.advance_to(my.it.world.clock.time + timedelta(days=1))
        await my.keeper.record_ended()

        yesterday = await my.found("What did we do yesterday?")
        before = await my.found("前天我们聊了什么")

        assert ["garden" in each for each in yesterday] == [True]
        assert ["chimney" in each for each in before] == [True]
        assert await my.found("The garden is nice") == []


async def test_what_is_forgotten_is_in_no_episode(tmp_path: Path) -> None:
    async with build_episodes(tmp_path) as my:
        await my.talk(*BOAT)
        my.it.world.clock.advance(minutes=9)
        await my.keeper.record_ended()
        async with my.it.world.db.write() as tx:
            await my.it.entries.forget(tx, my.said[0], now=my.it.world.clock())
        await my.keeper.record_ended()

        assert await my.episodes() == []


async def test_in_the_background_it_is_made_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    async with build_episodes(tmp_path) as my:
        listener = my.keeper.feed.subscribe()
        running = asyncio.create_task(my.keeper.run())
        await my.talk(*BOAT)
        my.keeper.feed.publish(MY_SCOPE)
        my.it.world.clock.advance(minutes=6)
        my.keeper.feed.publish(MY_SCOPE)
        async with asyncio.timeout(WAIT_SECONDS):
            while not await my.episodes():
                await listener.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

        assert (await my.episodes())[0].said_at > START


async def test_what_is_forgotten_while_an_episode_is_made_is_not_told_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with build_episodes(tmp_path) as my:
        await my.talk("The safe opens with a feather", *BOAT)
        my.it.world.clock.advance(minutes=5)
        is_known = my.keeper._is_recorded

        async def quicker(_keeper: EpisodeRecorder, new: NewMemoryEntry) -> bool:
            async with my.it.world.db.write() as tx:
                await my.it.entries.forget(tx, my.said[0], now=my.it.world.clock())
            return await is_known(new)

        monkeypatch.setattr(EpisodeRecorder, "_is_recorded", quicker)
        await my.keeper.record_ended()
        [episode] = await my.episodes()

        assert "feather" not in episode.text
        assert list(episode.evidence) == [each.id for each in my.said[1:]]
