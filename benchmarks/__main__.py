"""`python -m benchmarks [name …]`: each measures a limit or a ratio against a peer in one run."""

from __future__ import annotations

import asyncio
import sys

from benchmarks import idle_memory, kills, reply_overhead, start_up

ALL = {
    "start_up": start_up.measure,
    "idle_memory": idle_memory.measure,
    "reply_overhead": reply_overhead.measure,
    "kills": kills.measure,
}

# Takes minutes: only when it is named.
LONG = {"kills"}


async def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(ALL)}")
    for name in names or [each for each in ALL if each not in LONG]:
        print(f"== {name}")
        for line in await ALL[name]():
            print(line)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
