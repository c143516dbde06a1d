"""Checks what confines the commands of workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.engine.sandbox.spec import LimitEnforcement, Sandbox
from storage.records.autonomy import HealthFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxHealthCheck:
    """`is_root` tells whether the program runs as root."""

    name = "sandbox"

    detect: Callable[[], Awaitable[Sandbox]]
    is_root: bool

    async def find(self) -> Sequence[HealthFinding]:
        sandbox = await self.detect()
        found: list[HealthFinding] = []
        if not sandbox.kind.confines:
            found.append(HealthFinding(text="sandbox_none", points=15))
        if self.is_root and not sandbox.limits.drops_root:
            found.append(HealthFinding(text="commands_as_root", points=15))
        elif sandbox.limits.enforcement is LimitEnforcement.NONE:
            found.append(HealthFinding(text="limits_watched", points=5))
        return found
