"""What the platform's refusals mean, as a table, and what a delivery makes of them."""

from __future__ import annotations

import re
from enum import StrEnum

from bot.transports.base import (
    Ambiguous,
    DeliveryError,
    RateLimited,
    Refused,
    TooLarge,
    Unavailable,
    Unreachable,
)

_INNER = re.compile(r"ErrCode:\s*(\d+)")
_CARD_CODES = range(200200, 201000)
HTTP_TOO_MANY = 429
_HTTP_SERVER = 500
_QUOTA_PAUSE = 3600.0


class Kind(StrEnum):
    """What to do about a code: see the member's use in `translate` and in the callers."""

    TOKEN = "token"  # noqa: S105 - a kind of error
    CREDENTIALS = "credentials"
    RATE = "rate"
    CHANNEL_RATE = "channel_rate"
    QUOTA = "quota"
    SCOPE = "scope"
    CLOSED = "closed"
    GONE = "gone"
    NO_TOPICS = "no_topics"
    NO_EDIT = "no_edit"
    CARD = "card"
    LARGE_FILE = "large_file"
    BAD_FILE = "bad_file"
    INTERACTING = "interacting"
    SEQUENCE = "sequence"
    STREAM_CLOSED = "stream_closed"
    SERVER = "server"
    OTHER = "other"


KINDS: dict[int, Kind] = {
    **dict.fromkeys((99991661, 99991663, 99991664, 99991665, 99991668, 99991671), Kind.TOKEN),
    **dict.fromkeys((10003, 10014, 1000040344, 514), Kind.CREDENTIALS),
    230020: Kind.RATE,
    11232: Kind.CHANNEL_RATE,
    99991400: Kind.CHANNEL_RATE,
    99991403: Kind.QUOTA,
    **dict.fromkeys((99991672, 99991679, 230027), Kind.SCOPE),
    **dict.fromkeys((230002, 230006, 230013, 230034, 230035, 230053), Kind.CLOSED),
    **dict.fromkeys((232006, 232009, 232010), Kind.CLOSED),
    **dict.fromkeys((230011, 230110, 230031, 231003, 300313, 200750), Kind.GONE),
    230071: Kind.NO_TOPICS,
    **dict.fromkeys((230054, 230072, 230075), Kind.NO_EDIT),
    **dict.fromkeys((230025, 230099, 11310, 100290), Kind.CARD),
    **dict.fromkeys((300301, 300302, 300305, 300315), Kind.CARD),
    **dict.fromkeys((234006, 234037), Kind.LARGE_FILE),
    **dict.fromkeys((234001, 234003, 234010, 234011, 234043, 230055), Kind.BAD_FILE),
    200810: Kind.INTERACTING,
    300317: Kind.SEQUENCE,
    **dict.fromkeys((200850, 300309), Kind.STREAM_CLOSED),
}


class FeishuError(Exception):
    """The platform said no. The text carries code and log id, never what was sent."""

    def __init__(
        self, code: int, msg: str, *, status: int = 200, retry_after: float = 0.0, log_id: str = ""
    ) -> None:
        self.code = code
        self.msg = msg
        self.status = status
        self.retry_after = retry_after
        super().__init__(f"{code} (HTTP {status}, log {log_id or '-'}): {msg[:300]}")

    @property
    def inner(self) -> int:
        """The code that the message names inside, where there is one."""
        found = _INNER.search(self.msg)
        return int(found.group(1)) if found else self.code

    @property
    def kind(self) -> Kind:
        if self.code in KINDS:
            return KINDS[self.code]
        if self.status == HTTP_TOO_MANY:
            return Kind.CHANNEL_RATE
        if self.code in _CARD_CODES:
            return Kind.CARD
        return Kind.SERVER if self.status >= _HTTP_SERVER else Kind.OTHER


class Broken(Exception):
    """No answer. `sent` says that the request may have arrived."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        self.sent = sent
        super().__init__(reason)


def translate(  # noqa: PLR0911 - one answer for each kind
    error: FeishuError | Broken, *, repeatable: bool = False
) -> DeliveryError:
    """The delivery error for one of ours. `repeatable`: doing it again shows nothing twice."""
    if isinstance(error, Broken):
        return Ambiguous(str(error)) if error.sent and not repeatable else Unavailable(str(error))
    match error.kind:
        case Kind.RATE:
            return RateLimited(error.retry_after or 0.5)
        case Kind.CHANNEL_RATE:
            return RateLimited(error.retry_after or 1.0, whole_channel=True)
        case Kind.QUOTA:
            return RateLimited(_QUOTA_PAUSE, whole_channel=True)
        case Kind.INTERACTING:
            return RateLimited(1.0)
        case Kind.CLOSED:
            return Unreachable(str(error))
        case Kind.LARGE_FILE:
            return TooLarge(str(error))
        case Kind.TOKEN | Kind.CREDENTIALS | Kind.SCOPE | Kind.SERVER | Kind.SEQUENCE:
            return Unavailable(str(error))
        case _:
            return Refused(str(error))
