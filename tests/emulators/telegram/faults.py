"""Misbehaviour on demand: what a test can make the emulated service do wrong."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.emulators.telegram.errors import TelegramApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitFault:
    """429 now and for `retry_after` seconds in the same chat; calls meanwhile are violations."""

    retry_after: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerErrorFault:
    code: int = 502
    description: str = "Bad Gateway"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalFault:
    """Any refusal, for answers the emulator would not come to by itself."""

    error: TelegramApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class DropBeforeFault:
    """The connection breaks before anything happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropAfterFault:
    """The connection breaks after the call took effect: the client cannot know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageFault:
    """An answer that is no JSON, as a proxy in between would give."""

    body: bytes = b"<html>504 Gateway Time-out</html>"
    code: int = 504


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldFault:
    """The answer waits until the test calls `release`; the call has already taken effect."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self.gate.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowFault:
    """The answer comes `seconds` after the call took effect."""

    seconds: float


TelegramFault: TypeAlias = (
    RateLimitFault
    | ServerErrorFault
    | RefusalFault
    | DropBeforeFault
    | DropAfterFault
    | GarbageFault
    | HoldFault
    | SlowFault
)


class FaultPlans:
    """Which misbehaviour waits for which method; `*` matches every method but getUpdates."""

    def __init__(self) -> None:
        self._plans: list[tuple[str, TelegramFault]] = []

    def add(self, method: str, mischief: TelegramFault, times: int) -> None:
        self._plans += [(method, mischief)] * times

    def clear(self) -> None:
        self._plans.clear()

    def take(self, method: str) -> TelegramFault | None:
        for position, (name, mischief) in enumerate(self._plans):
            if name == method or (name == "*" and method != "getUpdates"):
                del self._plans[position]
                return mischief
        return None


class FloodBans:
    """Flood bans per chat, and who ignores them."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self.violations = 0

    def start(self, chat: str, until: float) -> None:
        self._until[chat] = until

    def remaining(self, chat: str, now: float) -> float:
        left = self._until.get(chat, 0.0) - now
        if left > 0:
            self.violations += 1
        return left
