"""Defines transcript parts and conversation summaries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class TranscriptRole(StrEnum):
    """The source of a message part: CALL is a tool call, TOOL its result."""

    USER = "user"
    ASSISTANT = "assistant"
    CALL = "call"
    TOOL = "tool"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart:
    """The text of one part of a message. `tokens` is its full length even if `text` is only its
    start and end."""

    message: int
    ordinal: int
    role: TranscriptRole
    text: str
    tokens: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSize:
    """A message without its text."""

    message: int
    roles: frozenset[TranscriptRole]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """A summary of messages at depth 0, of other summaries above.

    `descendants` and `descendant_tokens` count all summaries below it, `source_tokens` all messages
    below it. `model` is empty if no model wrote it.
    """

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
class ContextSummary:
    """A summary in the model's context. It replaces the messages up to `through`."""

    ordinal: int
    summary: ConversationSummary
    through: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMatch:
    """A matching part of a session. `key` identifies the session's owner."""

    session_id: str
    key: str
    message: int
    role: TranscriptRole
    text: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionJob:
    id: int
    session_id: str
    attempts: int
    is_forced: bool
