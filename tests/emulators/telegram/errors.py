"""The Bot API's error texts, word for word."""

from __future__ import annotations

from collections.abc import Mapping

NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same"
    " as a current content and reply markup of the message"
)
QUERY_TOO_OLD = "query is too old and response timeout expired or query ID is invalid"
CONFLICTING_POLLER = (
    "Conflict: terminated by other getUpdates request;"
    " make sure that only one bot instance is running"
)
WEBHOOK_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active;"
    " use deleteWebhook to delete the webhook first"
)


class TelegramApiError(Exception):
    """An answer with `ok: false`; `parameters` are the response parameters."""

    def __init__(
        self, code: int, description: str, parameters: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = dict(parameters or {})

    def as_json(self) -> dict[str, object]:
        answer: dict[str, object] = {
            "ok": False,
            "error_code": self.code,
            "description": self.description,
        }
        if self.parameters:
            answer["parameters"] = self.parameters
        return answer


def bad_request(text: str, parameters: Mapping[str, int] | None = None) -> TelegramApiError:
    return TelegramApiError(400, f"Bad Request: {text}", parameters)


def forbidden(text: str) -> TelegramApiError:
    return TelegramApiError(403, f"Forbidden: {text}")


def unparsable(text: str) -> TelegramApiError:
    return bad_request(f"can't parse entities: {text}")


def too_many_requests(seconds: int) -> TelegramApiError:
    return TelegramApiError(
        429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds}
    )
