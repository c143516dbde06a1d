"""Defines the port of the heartbeat."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from storage.records.heartbeat import HeartbeatRun, HeartbeatStatus


class HeartbeatPort(Protocol):
    """Callers must be owners in private. Refusals are UserErrors."""

    async def status(self) -> HeartbeatStatus: ...

    async def switch(self, *, on: bool) -> HeartbeatStatus:
        """Raises UserError if a setting has switched it off."""

    async def run_now(self, *, at: datetime) -> bool:
        """Run once, whatever the hour; False if a run is in progress, after which another follows.
        `at` is when it was asked for, and the same whenever the request is repeated."""

    async def add(self, text: str) -> HeartbeatStatus:
        """Add an open line to HEARTBEAT.md. Raises UserError if the file cannot be changed."""

    async def log(self, limit: int) -> Sequence[HeartbeatRun]:
        """The newest runs first."""
