"""kill -9 of the real program while it writes memory. Here a few deaths on the way of one story,
and with SHIFTBOSS_THOROUGH=1 storms; `test_every_transition` dies at the rest of them, and
`python -m benchmarks chaos` at each place of the program."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.channels import CHANNEL_NAMES, ChannelName
from tests.chaos.memory.random_load import MemoryLoad, run_memory_load
from tests.chaos.memory.stories import STORIES
from tests.chaos.story_run import run_story, started_home
from tests.thoroughness import thorough_only


async def test_manual_memories_exist_once_across_crashes(tmp_path: Path) -> None:
    """In the middle of exchanging a file, and between what an order does and its answer."""
    story = next(each for each in STORIES if each.name == "by hand")
    points = (
        "file.exchange:after:1",
        "writer.edit:after:1",
        "memory.active>gone:after:1",
        "tomb.there>gone:before:1",
    )
    told = await run_story(tmp_path / "home", story, "web", points)

    assert told.violations == []
    assert set(told.died) >= set(points)


@thorough_only
@pytest.mark.parametrize("name", CHANNEL_NAMES)
async def test_after_kills_at_random_moments_no_memory_is_lost_and_no_deleted_one_returns(
    tmp_path: Path, name: ChannelName
) -> None:
    load = MemoryLoad(seed=random.randrange(1_000_000), acts=16, kills=5)
    template = await started_home(tmp_path / "template", name)

    told = await run_memory_load(tmp_path / "home", load, name, template=template)

    assert told.violations == [], f"{load} on {name}"
