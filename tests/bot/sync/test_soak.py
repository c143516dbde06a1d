"""Both sides end equal, whatever is edited where, and wherever the process dies."""

from __future__ import annotations

import os
import random

from tests.bot.sync.soak import Soak
from tests.bot.sync.world import SyncWorld

_EDITS = int(os.environ.get("SOAK_EDITS", "60"))


async def test_random_edits_and_deaths_end_equal_on_both_sides(world: SyncWorld) -> None:
    soak = Soak(world, random.Random(int(os.environ.get("SOAK_SEED", "7"))))

    await soak.run(_EDITS)

    assert await soak.differences() == []
    assert soak.killed > 0
