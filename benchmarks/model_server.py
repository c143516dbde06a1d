"""The emulated model APIs in a process of their own, so that their CPU is nobody else's."""

from __future__ import annotations

import asyncio
import sys

from tests.emulators.models.emulator import ModelEmulator
from tests.emulators.models.script import ReceivedRequest, ScriptedReply

WORDS = 200
_TEXT = " ".join(f"word{number}" for number in range(WORDS))


def _says(_asked: ReceivedRequest) -> ScriptedReply:
    return ScriptedReply(text=_TEXT)


async def serve() -> None:
    """Print the address and the key, then serve until standard input ends."""
    async with ModelEmulator() as models:
        models.replies(_says)
        print(models.url, models.key, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
