"""Why something is not remembered."""

from __future__ import annotations

from enum import StrEnum

from storage.errors import StorageError


class WhyNotKept(StrEnum):
    """Nothing is left to keep, it is too long, or its state does not allow this."""

    EMPTY = "empty"
    TOO_LONG = "too_long"
    NO_CANDIDATE = "no_candidate"


class NotKept(StorageError):
    """What was to be remembered was not, and nothing was changed."""

    def __init__(self, why: WhyNotKept) -> None:
        self.why = why
        super().__init__(f"not remembered: {why}")
