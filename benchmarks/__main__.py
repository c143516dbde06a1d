"""`python -m benchmarks [name …]`: each measures a limit or a ratio against a peer in one run."""

from __future__ import annotations

import asyncio
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
    "streamed_turn": "streamed_turn.measure",
    "live_chats": "live_chats.measure",
    "cli_start": "cli_start.measure",
    "sandbox": "sandbox.measure",
    "chaos": "chaos.measure",
}

# Takes minutes: only when it is named.
LONG = {"chaos", "cli_start"}


async def main(names: list[str]) -> None:
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
