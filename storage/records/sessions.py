"""Sessions with models, as people are shown them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """`key` says whose it is: `chat:…`, `task:…`, `helper:…`. `messages` are the rows of its
    transcript; `open` says that it may still go on."""

    id: str
    key: str
    backend: str
    model: str
    persona: str
    turns: int
    messages: int
    started_at: datetime
    last_used_at: datetime
    open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One row of a transcript, as the backend left it."""

    seq: int
    at: datetime
    content: Any
