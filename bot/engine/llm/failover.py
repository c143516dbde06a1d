"""Chains of backends: which errors pass work to the next backend, and how long a failed one is
skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    ContextTooLong,
    OutageKind,
    SelectedBackend,
)

DENIAL_SECONDS = 600.0
"""A refused key or an empty account needs a person to change it."""

OUTAGE_SECONDS = 60.0
MAX_COOLDOWN_SECONDS = 900.0
"""Upper bound for a service's `Retry-After`."""

_ACCOUNT_HINTS = frozenset({"backend.bad_key", "backend.no_credit"})
_NO_MODEL = "backend.no_model"
_MODEL_OUTAGES = frozenset({OutageKind.RATE_LIMITED, OutageKind.OVERLOADED})
"""Outages of one model; the service's other models may work."""


def fails_over(error: BackendError) -> bool:
    """Return True if another backend may succeed. A useless answer, a limit of the run and a
    spending cap are no reason for a failover."""
    return isinstance(error, BackendDenied | BackendUnavailable | ContextTooLong)


def is_about_account(error: BackendError) -> bool:
    """Return True if the service refused the account or the model's name, not the request."""
    return error.hint in _ACCOUNT_HINTS or error.hint == _NO_MODEL


@dataclass(frozen=True, slots=True)
class _Cooldown:
    problem: str
    until: float


class BackendCooldowns:
    """Backends and models that failed a short while ago, in this process.

    They are not used while another backend works; afterwards the first one is tried again. `clock`
    returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cooldowns: dict[tuple[str, str], _Cooldown] = {}

    def record_failure(self, backend: str, model: str, error: BackendError) -> None:
        """Skip the backend, or only this model of it, for a while if the error says that it is
        down."""
        match error:
            case BackendUnavailable(outage=outage, retry_after=wait):
                seconds = min(MAX_COOLDOWN_SECONDS, max(OUTAGE_SECONDS, wait or 0.0))
                is_model = outage in _MODEL_OUTAGES
            case BackendDenied() if is_about_account(error):
                seconds, is_model = DENIAL_SECONDS, error.hint == _NO_MODEL
            case _:
                return
        key = (backend, model if is_model else "")
        self._cooldowns[key] = _Cooldown(error.hint, self._clock() + seconds)

    def record_success(self, backend: str, model: str) -> None:
        self._cooldowns.pop((backend, model), None)
        self._cooldowns.pop((backend, ""), None)

    def problem_of(self, backend: str, model: str) -> str:
        """Return the text key of what is wrong with it; empty if nothing is known."""
        for key in ((backend, ""), (backend, model)):
            found = self._cooldowns.get(key)
            if found is not None and self._clock() < found.until:
                return found.problem
        return ""


class BackendSelector(Protocol):
    def select_backend(
        self,
        model: str,
        backend: str,
        fallbacks: Sequence[str] = (),
        *,
        keeps_history: bool = False,
    ) -> SelectedBackend:
        """Resolve a model and backend name; empty names select the default, and no `fallbacks` the
        configured ones. With `keeps_history`, only backends that can read the conversation are
        considered. Raises BackendDenied."""
        ...

    def select_next(
        self, failed: SelectedBackend, error: BackendError, *, keeps_history: bool = False
    ) -> SelectedBackend | None:
        """Return what follows in the chain after this error; None if nothing does."""
        ...

    def record_failure(self, failed: SelectedBackend, error: BackendError) -> None: ...

    def record_success(self, used: SelectedBackend) -> None: ...

    def shares_history(self, backend: str) -> bool:
        """Return True if a conversation can move between this backend and others like it."""
        ...
