"""Misbehaviour on demand: what a test can make the emulated service do wrong."""

from __future__ import annotations

import asyncio
from collections import deque
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

    def take(self, method: str) -> TelegramFault | None:
        for position, (name, mischief) in enumerate(self._plans):
            if name == method or (name == "*" and method != "getUpdates"):
                del self._plans[position]
                return mischief
        return None


class FloodLimits:
    """The service's limits, once `enforced`: in any minute twenty messages and edits in one group,
    in any second thirty in all. Those of an album count each. `refused` counts the calls beyond."""

    def __init__(self) -> None:
        self.enforced = False
        self.refused = 0
        self._all: deque[float] = deque()
        self._groups: dict[str, deque[float]] = {}

    def check(self, method: str, chat: str, messages: int, now: float) -> float:
        """Seconds to wait, 0 if the call is within the limits; only then it counts."""
        if not self.enforced or not method.lower().startswith(_COUNTED_METHODS):
            return 0.0
        meters = [(self._all, 30, 1.0)]
        if chat.startswith("-"):
            meters.append((self._groups.setdefault(chat, deque()), 20, 60.0))
        for times, most, seconds in meters:
            while times and times[0] + seconds <= now:
                times.popleft()
            if len(times) + messages > most:
                self.refused += 1
                return times[0] + seconds - now if times else seconds
        for times, _, _ in meters:
            times.extend([now] * messages)
        return 0.0


# Previews and typing indicators are no messages.
_COUNTED_METHODS = ("sendmessage", "sendphoto", "senddocument", "sendmediagroup", "editmessage")


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
