"""What was said in a session, part by part, and the summaries that stand for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Speaker(StrEnum):
    """Who a part of a message is from: CALL is a tool called, TOOL what it gave."""

    USER = "user"
    ASSISTANT = "assistant"
    CALL = "call"
    TOOL = "tool"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The words of one part of a message. `tokens` is how long all of it is, also where `text` is
    only the beginning and the end of it."""

    message: int
    ordinal: int
    role: Speaker
    text: str
    tokens: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A message without its words."""

    message: int
    roles: frozenset[Speaker]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Of messages at depth 0, of summaries beyond. `descendants` and `descendant_tokens` are all
    summaries below it; `source_tokens` all messages below it. `model` is empty where no model has
    written it."""

    id: str
    session_id: str
    depth: int
    content: str
    tokens: int
    earliest_at: datetime
    latest_at: datetime
    descendants: int
    descendant_tokens: int
    source_tokens: int
    model: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A summary that a model sees in the place of its messages, the last of which is `through`."""

    ordinal: int
    summary: Summary
    through: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One part of what was said, and in which session. `key` says whose session it is."""

    session_id: str
    key: str
    message: int
    role: Speaker
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """A session that is to be made shorter. `payload` says why."""

    id: int
    session_id: str
    tries: int
    forced: bool
