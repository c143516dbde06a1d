"""Records of what a person does not want remembered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ConsentRequest(StrEnum):
    """The part of a talk that is forbidden: this message, the one before, the next, all of the
    chat, or whatever is said about a topic."""

    THIS = "this"
    BEFORE = "before"
    NEXT = "next"
    CHAT = "chat"
    TOPIC = "topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentWish:
    """`says_more`: the message also says something else, which is to be answered. One that is not
    `is_sure` may be a wish: what it may mean is not kept until the person has decided."""

    wanted: ConsentRequest
    says_more: bool
    is_sure: bool = True
