"""Which models a compatible service has, by asking it."""

from __future__ import annotations

import httpx2

from bot.engine.llm.base import BackendDenied, BackendUnavailable, BadAnswer

_SERVER_ERROR = 500
_DENIED = 400
_TOO_MANY = 429


async def first_model(http: httpx2.AsyncClient, base_url: str, key: str) -> str:
    """The first model that `GET /models` lists. Raises BackendError."""
    headers = {"authorization": f"Bearer {key}"}
    try:
        response = await http.get(f"{base_url.rstrip('/')}/models", headers=headers)
    except httpx2.HTTPError as error:
        raise BackendUnavailable(f"no list of models: {type(error).__name__}") from None
    status = response.status_code
    if status >= _SERVER_ERROR or status == _TOO_MANY:
        raise BackendUnavailable(f"no list of models: status {status}")
    if status >= _DENIED:
        raise BackendDenied(f"no list of models: status {status}; set SHIFTBOSS_MODEL")
    try:
        return str(response.json()["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadAnswer("the list of models cannot be read; set SHIFTBOSS_MODEL") from error
