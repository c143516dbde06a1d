"""What all coding CLIs share: where they live, what they get, and how many may live at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.engine.llm.acp.machine.health import Nodes
from bot.engine.llm.acp.machine.process import Launcher, plain_launcher, sweep, tag
from bot.engine.llm.base import Limits

log = logging.getLogger(__name__)

_USUAL = Limits().seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """`root` is the program's home, `around` the environment that is passed on by name; `patience`
    is how many seconds a live process waits for a person, `idle` how long it may say nothing, and
    `longest` how long a run may take where the caller does not say: they work longer than a model
    answers. `farewell` is how long a cancelled
    turn may take to end. `clock` counts seconds. `endings` are processes that are being ended."""

    root: Path
    around: Mapping[str, str]
    slots: asyncio.Semaphore
    new_id: Callable[[], str]
    patience: float = 900.0
    idle: float = 600.0
    longest: float = 3600.0
    farewell: float = 3.0
    clock: Callable[[], float] = time.monotonic
    launch: Launcher = plain_launcher
    nodes: Nodes = field(default_factory=Nodes)
    endings: set[asyncio.Task[None]] = field(default_factory=set)
    sweeping: asyncio.Lock = field(default_factory=asyncio.Lock)
    done: set[str] = field(default_factory=set)

    async def mark(self) -> str:
        """For a new process. The first one is given when all that was left over has ended."""
        async with self.sweeping:
            if "swept" not in self.done:
                left = await asyncio.to_thread(sweep, self.root)
                self.done.add("swept")
                if left:
                    log.warning("%d processes of coding CLIs were left over: ended", left)
        return f"{tag(self.root)}-{self.new_id()}"

    def seconds(self, limits: Limits) -> float:
        return self.longest if limits.seconds == _USUAL else limits.seconds
