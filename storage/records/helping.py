"""Where a helper is, as the cards of its task show it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

HELPERS_WORK = "helpers.waits"
"""Why a task waits whose own steps are done: a key of the catalogue."""


class HelperStatus(StrEnum):
    """ACCEPTED waits for its turn; DONE and FAILED have a result, or the reason."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self in {HelperStatus.DONE, HelperStatus.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperLine:
    label: str
    status: HelperStatus
