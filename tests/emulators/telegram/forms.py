"""Request bodies as clients send them: form fields, multipart files, or JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request

from tests.emulators.telegram.refusals import ApiError, bad_request

MAX_UPLOAD = 50 * 1024 * 1024
_MAX_FIELD = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    name: str
    content: bytes = field(repr=False)
    mime: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The parameters of one call, still as the text they arrived as."""

    values: dict[str, str]
    uploads: dict[str, Upload] = field(default_factory=dict)

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


async def read_form(request: Request) -> Form:
    """Read any body the Bot API takes; query parameters count too."""
    kind = request.headers.get("content-type", "")
    values = dict(request.query_params)
    if kind.startswith("application/json"):
        loaded = json.loads(await request.body() or b"{}")
        values |= {k: v if isinstance(v, str) else json.dumps(v) for k, v in loaded.items()}
        return Form(values=values)
    if kind.startswith("application/x-www-form-urlencoded"):
        _check_utf8(await request.body())
    uploads: dict[str, Upload] = {}
    async with request.form(max_part_size=_MAX_FIELD) as form:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                uploads[name] = await _upload(value)
            else:
                values[name] = value
    return Form(values=values, uploads=uploads)


async def _upload(part: UploadFile) -> Upload:
    content = await part.read()
    if len(content) > MAX_UPLOAD:
        raise ApiError(413, "Request Entity Too Large")
    mime = part.content_type or "application/octet-stream"
    return Upload(name=part.filename or "file", content=content, mime=mime)


def _check_utf8(body: bytes) -> None:
    from urllib.parse import unquote_to_bytes  # only this check needs the raw bytes

    try:
        unquote_to_bytes(body).decode()
    except UnicodeDecodeError:
        raise bad_request("strings must be encoded in UTF-8") from None
