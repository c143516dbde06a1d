"""kill -9 at random moments, with several people at work and a platform that is tired. A seed
that breaks a promise is a seed to keep here; `python -m benchmarks chaos` tries hundreds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.channels import CHANNEL_NAMES, ChannelName
from tests.chaos.random_load import RandomLoad, run_random_load
from tests.thoroughness import THOROUGH, thorough_only


@thorough_only
@pytest.mark.parametrize("name", CHANNEL_NAMES if THOROUGH else CHANNEL_NAMES[:1])
async def test_after_kills_at_random_moments_everything_is_done_once_and_reported_once(
    tmp_path: Path, name: ChannelName
) -> None:
    load = RandomLoad(
        seed=random.randrange(1_000_000) if THOROUGH else 20_261_122, tasks=10, kills=3
    )

    told = await run_random_load(tmp_path / "home", load, name)

    assert told.violations == [], f"{load} on {name}"
