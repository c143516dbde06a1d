"""Inline keyboards: what a button may carry."""

from __future__ import annotations

from typing import Any

from tests.emulators.telegram.forms import Form
from tests.emulators.telegram.refusals import bad_request
from tests.emulators.telegram.texts import is_empty

Keyboard = list[list[dict[str, Any]]]

MAX_BUTTONS = 100
MAX_DATA = 64
_PURPOSES = (
    "callback_data",
    "url",
    "switch_inline_query",
    "web_app",
    "copy_text",
    "login_url",
    "pay",
)


def read_keyboard(form: Form) -> Keyboard:
    """The inline keyboard of a call, checked; empty when there is none."""
    markup = form.data("reply_markup", "reply keyboard markup")
    if markup is None:
        return []
    if not isinstance(markup, dict):
        raise bad_request("object expected as reply markup")
    rows = markup.get("inline_keyboard", [])
    for row in rows:
        for button in row:
            _check_button(button)
    if sum(len(row) for row in rows) > MAX_BUTTONS:
        raise bad_request("reply markup is too long")
    return [row for row in rows if row]


def _check_button(button: dict[str, Any]) -> None:
    if is_empty(str(button.get("text", ""))):
        raise bad_request('can\'t parse inline keyboard button: Field "text" must be non-empty')
    if not any(purpose in button for purpose in _PURPOSES):
        raise bad_request(
            "can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"
        )
    data = button.get("callback_data")
    if data is not None and not 1 <= len(str(data).encode()) <= MAX_DATA:
        raise bad_request("BUTTON_DATA_INVALID")
    if "url" in button and not str(button["url"]).startswith(("http://", "https://", "tg://")):
        raise bad_request(
            f"inline keyboard button URL '{button['url']}' is invalid: Wrong HTTP URL"
        )
