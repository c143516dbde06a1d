"""Request bodies as clients send them: form fields, multipart files, or JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request

from tests.emulators.telegram.errors import TelegramApiError, bad_request
from tests.emulators.telegram.texts import is_empty

MAX_UPLOAD = 50 * 1024 * 1024
_MAX_FIELD = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    name: str
    content: bytes = field(repr=False)
    mime: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForm:
    """The parameters of one call, still as the text they arrived as."""

    values: dict[str, str]
    uploads: dict[str, UploadedFile] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def integer(self, name: str, default: int = 0) -> int:
        raw = self.values.get(name, "")
        if not raw:
            return default
        try:
            return int(raw)
        except ValueError:
            raise bad_request(f"{name} must be an integer") from None

    def flag(self, name: str) -> bool:
        return self.values.get(name, "").lower() in {"true", "1", "yes"}

    def data(self, name: str, what: str) -> Any:
        """The JSON value of a field, or None when the field is absent."""
        raw = self.values.get(name, "")
        if not raw:
            return None
        try:
            return json.loads(raw)
        except ValueError:
            raise bad_request(f"can't parse {what} JSON object") from None


async def read_form(request: Request) -> RequestForm:
    """Read any body the Bot API takes; query parameters count too."""
    kind = request.headers.get("content-type", "")
    values = dict(request.query_params)
    if kind.startswith("application/json"):
        loaded = json.loads(await request.body() or b"{}")
        values |= {k: v if isinstance(v, str) else json.dumps(v) for k, v in loaded.items()}
        return RequestForm(values=values)
    if kind.startswith("application/x-www-form-urlencoded"):
        _check_utf8(await request.body())
    uploads: dict[str, UploadedFile] = {}
    async with request.form(max_part_size=_MAX_FIELD) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                uploads[name] = await _upload(value)
            else:
                values[name] = value
    return RequestForm(values=values, uploads=uploads)


async def _upload(part: UploadFile) -> UploadedFile:
    content = await part.read()
    if len(content) > MAX_UPLOAD:
        raise TelegramApiError(413, "Request Entity Too Large")
    mime = part.content_type or "application/octet-stream"
    return UploadedFile(name=part.filename or "file", content=content, mime=mime)


def _check_utf8(body: bytes) -> None:
    from urllib.parse import unquote_to_bytes  # only this check needs the raw bytes

    try:
        unquote_to_bytes(body).decode()
    except UnicodeDecodeError:
        raise bad_request("strings must be encoded in UTF-8") from None


InlineKeyboard = list[list[dict[str, Any]]]

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


def read_keyboard(form: RequestForm) -> InlineKeyboard:
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
