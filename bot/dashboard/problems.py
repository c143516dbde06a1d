"""How errors are answered: status codes, and texts in the language of whoever asks."""

from __future__ import annotations

from handlers.errors import ActionForbidden, BackendFailure, UserError
from storage import errors

_STATUS_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.TooManyAttempts, 429),
    (errors.NotFound, 404),
    (errors.AmbiguousId, 409),
    (errors.WrongState, 409),
    (errors.ConcurrentUpdate, 409),
    (errors.LostLease, 409),
    (errors.NotAllowed, 403),
    (ActionForbidden, 403),
    (UserError, 422),
    (BackendFailure, 502),
    (errors.StoreUnavailable, 503),
)


def status_of(error: Exception) -> int:
    return next((code for kind, code in _STATUS_CODES if isinstance(error, kind)), 500)
