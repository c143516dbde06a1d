"""What stands in a button's value beside its token: the press event names neither the kind of
chat nor the thread."""

from __future__ import annotations

from typing import Any

from cards.render.feishu.controls import SUBMIT
from storage.records.people import Chat, ChatKind

_TOKEN = 64


def mark_for(chat: Chat) -> dict[str, str]:
    mark = {"k": "p" if chat.kind is ChatKind.PRIVATE else "g"}
    return {**mark, "h": chat.thread} if chat.thread else mark


def token_of(value: Any, name: str = "") -> str:
    """The opaque token, or as much of what came instead as a refusal needs. `name` is that of
    the button, which stands in for the value of a form."""
    found = value.get("t", "") if isinstance(value, dict) else ""
    if not found and name.startswith(SUBMIT):
        found = name.removeprefix(SUBMIT).partition("~")[0]
    return found[:_TOKEN] if isinstance(found, str) else ""


def kind_of(value: Any) -> ChatKind:
    private = isinstance(value, dict) and value.get("k") == "p"
    return ChatKind.PRIVATE if private else ChatKind.GROUP


def thread_of(value: Any) -> str:
    found = value.get("h", "") if isinstance(value, dict) else ""
    return found if isinstance(found, str) else ""
