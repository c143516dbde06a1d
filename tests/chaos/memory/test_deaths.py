"""kill -9 of the real program while it writes memory. Here a few deaths on the way of one story,
and with SHIFTBOSS_THOROUGH=1 storms; `test_every_transition` dies at the rest of them, and
`python -m benchmarks chaos` at each place of the program."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.fronts import NAMES, Name
from tests.chaos.memory.load import MemoryLoad, storm_of_memory
from tests.chaos.memory.stories import STORIES
from tests.chaos.telling import fresh_home, tell
from tests.thorough import long

# Six lives: slow where much else runs.
pytestmark = pytest.mark.timeout(400)


async def test_what_is_written_by_hand_is_there_once_over_deaths(tmp_path: Path) -> None:
    """In the middle of exchanging a file, and between what an order does and its answer."""
    story = next(each for each in STORIES if each.name == "by hand")
    points = (
        "file.exchange:after:1",
        "service.edit:after:1",
        "memory.active>gone:after:1",
        "tomb.there>gone:before:1",
    )
    told = await tell(tmp_path / "home", story, "web", points)

    assert told.wrong == []
    assert set(told.died) >= set(points)


@long
@pytest.mark.parametrize("name", NAMES)
async def test_whenever_it_is_killed_nothing_told_is_lost_and_nothing_forgotten_comes_back(
    tmp_path: Path, name: Name
) -> None:
    load = MemoryLoad(seed=random.randrange(1_000_000), acts=16, kills=5)
    template = await fresh_home(tmp_path / "template", name)

    told = await storm_of_memory(tmp_path / "home", load, name, template=template)

    assert told.wrong == [], f"{load} on {name}"
