"""kill -9 at random moments, with several people at work and a platform that is tired. A seed
that breaks a promise is a seed to keep here; `python -m benchmarks chaos` tries hundreds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.fronts import NAMES, Name
from tests.chaos.load import Load, storm
from tests.thorough import THOROUGH, long


@long
@pytest.mark.parametrize("name", NAMES if THOROUGH else NAMES[:1])
async def test_whenever_it_is_killed_all_is_done_once_and_said_once(
    tmp_path: Path, name: Name
) -> None:
    load = Load(seed=random.randrange(1_000_000) if THOROUGH else 20_261_122, tasks=10, kills=3)

    told = await storm(tmp_path / "home", load, name)

    assert told.wrong == [], f"{load} on {name}"
