"""`python -m benchmarks [name …] [--data DIR] [--vectors PYTHON]`: each measures a limit or a ratio
against a peer in one run. `DIR` has what cannot be shipped (`memory`), `PYTHON` models of meaning
(`memory_vectors`)."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module

ALL = {
    "start_up": "start_up.measure",
    "idle_memory": "idle_memory.measure",
    "reply_overhead": "reply_overhead.measure",
    "enqueue_to_start": "starts.enqueue_to_start",
    "urgent_start": "starts.urgent_start",
    "durable_steps": "durable_steps.measure",
    "workflow_nodes": "workflow_nodes.measure",
    "queue_depth": "queue_depth.measure",
    "waiting_thousand": "waiting_thousand.measure",
    "shared_session": "shared_session.measure",
    "compaction": "compaction.measure",
    "streamed_turn": "streamed_turn.measure",
    "live_chats": "live_chats.measure",
    "cli_start": "cli_start.measure",
    "sandbox": "sandbox.measure",
    "memory": "memory.measure",
    "memory_100k": "memory.measure_100k",
    "memory_vectors": "memory_vectors.measure",
    "chaos": "chaos.measure",
}

# Takes minutes: only when it is named.
LONG = {"chaos", "cli_start", "memory_100k", "memory_vectors"}
OPTIONS = {"--data": "MEMORY_DATA", "--vectors": "MEMORY_VECTORS"}


async def main(names: list[str]) -> None:
    for option, variable in OPTIONS.items():
        if option in names:
            at = names.index(option)
            os.environ[variable] = "".join(names[at + 1 : at + 2])
            names = names[:at] + names[at + 2 :]
    unknown = [name for name in names if name not in ALL]
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(ALL)}")
    for name in names or [each for each in ALL if each not in LONG]:
        print(f"== {name}")
        module, measure = ALL[name].split(".")
        # Only what is measured is loaded: the one before must not weigh on the next.
        for line in await getattr(import_module(f"benchmarks.{module}"), measure)():
            print(line)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
