"""When a conversation is over by itself, and the next message begins a new one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from storage.sessions import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Resets:
    """After that long without a word, so many turns, or beyond so many tokens; 0 means never."""

    idle: timedelta = timedelta(minutes=60)
    turns: int = 0
    tokens: int = 0

    def ended(self, session: Session, now: datetime) -> bool:
        idle = bool(self.idle) and now - session.last_used_at > self.idle
        turns = bool(self.turns) and session.turns >= self.turns
        return idle or turns or (bool(self.tokens) and session.tokens > self.tokens)
