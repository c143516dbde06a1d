"""The table of the library's exceptions is complete, and no text of ours has a key in it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import exceptions as theirs

from bot.engine.llm.api.error_mapping import ERROR_TABLE, HINT_BY_ERROR, translate_error
from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    ContextTooLong,
    InvalidAnswer,
    OutageKind,
    RunLimitReached,
    TokenUsage,
)
from cards.catalog import catalog_for
from storage.records.people import Language
from tests.case_tables import all_cases

# Raised by tools and hooks for the library itself to catch: they never end a run.
INNER = {
    theirs.ModelRetry,
    theirs.ToolFailed,
    theirs.CallDeferred,
    theirs.ApprovalRequired,
    theirs.SkipModelRequest,
    theirs.RetryModelRequest,
    theirs.SkipToolValidation,
    theirs.SkipToolExecution,
    theirs.ToolRetryError,
    theirs.ToolFailedError,
    theirs.FallbackExceptionGroup,
}
# Told apart by their status or by where they came from, not by their class alone.
BY_FACTS = {
    theirs.AgentRunError,
    theirs.ModelAPIError,
    theirs.ModelHTTPError,
    theirs.ModelRequestRejectedError,
    theirs.ModelAuthenticationError,
    theirs.ModelNotFoundError,
}
SPENT = TokenUsage(requests=1, input_tokens=5)


def _library() -> Iterator[type[Exception]]:
    for name, one in inspect.getmembers(theirs, inspect.isclass):
        public = one.__module__ == theirs.__name__ and not name.startswith("_")
        if public and issubclass(one, Exception) and not issubclass(one, Warning):
            yield one


@all_cases("kind", sorted(set(_library()) - INNER - BY_FACTS, key=str))
def test_every_exception_that_can_end_a_run_is_in_the_table(kind: type[Exception]) -> None:
    assert any(issubclass(kind, known) for known, _ in ERROR_TABLE)


@pytest.mark.parametrize(
    ("status", "category", "kind"),
    [
        (400, theirs.ModelRequestRejectedError, BackendDenied),
        (400, theirs.ModelContextWindowExceededError, ContextTooLong),
        (401, theirs.ModelAuthenticationError, BackendDenied),
        (402, theirs.ModelQuotaExceededError, BackendDenied),
        (404, theirs.ModelNotFoundError, BackendDenied),
        (409, None, BackendUnavailable),
        (418, None, BackendDenied),
        (429, theirs.ModelRateLimitError, BackendUnavailable),
        (429, theirs.ModelQuotaExceededError, BackendDenied),
        (500, theirs.ModelServerError, BackendUnavailable),
        (529, theirs.ModelOverloadedError, BackendUnavailable),
        (599, None, BackendUnavailable),
    ],
)
def test_http_errors_by_category_and_status(
    status: int, category: Any, kind: type[BackendError]
) -> None:
    error = theirs.ModelHTTPError.for_category(
        category, status_code=status, model_name="m", headers={"retry-after": "3"}
    )

    ours = translate_error(error, SPENT, "")

    assert type(ours) is kind
    assert ours.usage == SPENT
    if isinstance(ours, BackendUnavailable):
        assert ours.retry_after == 3.0


@pytest.mark.parametrize(
    ("status", "category", "trouble"),
    [
        (429, theirs.ModelRateLimitError, OutageKind.RATE_LIMITED),
        (429, None, OutageKind.RATE_LIMITED),
        (529, theirs.ModelOverloadedError, OutageKind.OVERLOADED),
        (529, None, OutageKind.OVERLOADED),
        (500, theirs.ModelServerError, OutageKind.SERVER_ERROR),
        (502, theirs.ModelServerError, OutageKind.UNREACHABLE),
        (503, theirs.ModelUnavailableError, OutageKind.UNREACHABLE),
        (504, None, OutageKind.UNREACHABLE),
    ],
)
def test_what_keeps_a_service_away_is_told_apart(
    status: int, category: Any, trouble: OutageKind
) -> None:
    error = theirs.ModelHTTPError.for_category(category, status_code=status, model_name="m")

    ours = translate_error(error, SPENT, "")

    assert isinstance(ours, BackendUnavailable)
    assert ours.outage is trouble


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (theirs.ModelConnectionError("m", "reset"), BackendUnavailable),
        (theirs.ModelTimeoutError("m", "slow"), BackendUnavailable),
        (theirs.ModelRequestTimeout("m", 5), BackendUnavailable),
        (theirs.ModelAPIError("m", "odd event", in_stream=True), BackendUnavailable),
        (theirs.ModelAPIError("m", "Failed to decode response as JSON"), InvalidAnswer),
        (theirs.UnexpectedModelBehavior("odd"), InvalidAnswer),
        (theirs.ContentFilterError("no"), InvalidAnswer),
        (theirs.IncompleteToolCall("cut"), InvalidAnswer),
        (theirs.UsageLimitExceeded("turns"), RunLimitReached),
        (theirs.RunTimedOut("time"), RunLimitReached),
        (theirs.UserError("no vision"), BackendDenied),
        (KeyError("choices"), InvalidAnswer),
    ],
)
def test_other_errors_by_kind(error: Exception, kind: type[BackendError]) -> None:
    assert type(translate_error(error, SPENT, "")) is kind


@pytest.mark.parametrize("category", [theirs.ModelAuthenticationError, theirs.ModelServerError])
def test_a_key_that_is_quoted_back_is_masked(category: Any) -> None:
    body = {"error": {"message": "Incorrect API key provided: sk-secret-1"}}
    error = theirs.ModelHTTPError.for_category(category, status_code=500, model_name="m", body=body)

    assert "sk-secret-1" not in str(translate_error(error, SPENT, "sk-secret-1"))


def test_every_hint_is_in_both_catalogues() -> None:
    kinds = (BackendError, BackendDenied, BackendUnavailable, InvalidAnswer, RunLimitReached)

    for language in Language:
        assert all(catalog_for(language).has(kind.hint) for kind in kinds)
        assert all(catalog_for(language).has(hint) for _, hint in HINT_BY_ERROR)


def test_a_wrong_key_is_told_apart_from_a_wrong_name() -> None:
    def hint(status: int, category: Any) -> str:
        error = theirs.ModelHTTPError.for_category(category, status_code=status, model_name="m")
        return translate_error(error, SPENT, "").hint

    assert hint(401, theirs.ModelAuthenticationError) == "backend.bad_key"
    assert hint(404, theirs.ModelNotFoundError) == "backend.no_model"
    assert hint(429, theirs.ModelQuotaExceededError) == "backend.no_credit"
    assert hint(400, theirs.ModelRequestRejectedError) == "backend.denied"
