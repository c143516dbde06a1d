"""Several imports at once, and whoever writes beside them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.app.terminal import bulk


async def test_imports_take_turns(tmp_path: Path) -> None:
    order: list[int] = []

    async def write(number: int) -> None:
        async with bulk._turn(tmp_path):
            order.append(number)
            for _ in range(5):
                await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*map(write, range(3)))

    assert sorted(order) == [0, 0, 1, 1, 2, 2]
    assert order[::2] == order[1::2]
