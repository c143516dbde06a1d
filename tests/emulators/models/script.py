"""Scripted answers of a model, and the requests it got, for all APIs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

_INJECTED = re.compile(r"<memory>.*?</memory>\s*|\s*\[now: [^\]\n]*\]", re.DOTALL)

ApiKind = Literal["anthropic", "openai", "responses", "gemini"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedCall:
    """A tool call. `raw` replaces the arguments' JSON, to be broken or cut."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    raw: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedFailure:
    """An error answer. `kind` is the provider's error type, chosen by status if empty."""

    status: int
    message: str = "scripted failure"
    kind: str = ""
    code: str | None = None
    retry_after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One answer of a model, or one of its ways not to give any.

    `stop`: `cut` ends at max_tokens, `refused` declines. `garbage` is sent instead of an answer,
    as it is. `pace` is the pause in seconds after each piece of a stream. `hold` stops after
    `hold_after` pieces until set (0: before anything is sent); with `keeps_alive` comments go on
    meanwhile.
    `drop_after` breaks the connection off after so many pieces; `fail_after` sends `failure` as
    an error event in the middle of a stream.
    """

    text: str = ""
    calls: Sequence[ScriptedCall] = ()
    stop: Literal["end", "cut", "refused"] = "end"
    failure: ScriptedFailure | None = None
    fail_after: int | None = None
    garbage: str | None = None
    hold: asyncio.Event | None = None
    hold_after: int = 0
    keeps_alive: bool = False
    pace: float = 0.0
    drop_after: int | None = None
    usage: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """A valid request, in neutral form. `results` are the tool results after the last words of
    the user, by tool name; `headers` are without the key. What the program remembers beside what
    the user says, and the time it tells, are no part of `user_texts`; all of it is in `body`."""

    api: ApiKind
    model: str
    system: str
    user_texts: tuple[str, ...]
    tool_results: tuple[tuple[str, str], ...]
    tools: Mapping[str, Mapping[str, Any]]
    must_call: str
    schema: Mapping[str, Any] | None
    stream: bool
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "user_texts", tuple(_INJECTED.sub("", each) for each in self.user_texts)
        )

    @property
    def last_text(self) -> str:
        """The user's last text."""
        return self.user_texts[-1] if self.user_texts else ""


class RequestRejected(Exception):
    """The request is not one the real API would take."""

    def __init__(
        self, status: int, message: str, *, kind: str = "invalid_request_error", **extra: Any
    ) -> None:
        self.status = status
        self.message = message
        self.kind = kind
        self.extra = extra
        super().__init__(message)


def stream_pieces(text: str, size: int = 12) -> list[str]:
    """The text as a model streams it: word by word, long ones broken."""
    words = [word for part in text.split(" ") for word in (part, " ")][:-1]
    return [word[at : at + size] for word in words for at in range(0, len(word), size) if word]


def estimate_tokens(value: object) -> int:
    """Roughly what a tokenizer would count; always the same for the same value."""
    return len(str(value)) // 4 + 1
