"""The address that other programs post to: `POST /hooks/TOKEN` starts a workflow.

The token in the path is the only right it needs; it is never logged."""

from __future__ import annotations

import asyncio
from typing import Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handlers.ports_autonomy import MAX_HOOK_BYTES

HOOKS_PATH = "/hooks"
_MAX_TOKEN = 100
_SECONDS = 10.0
_KEY_HEADERS = ("idempotency-key", "x-github-delivery", "x-gitlab-event-uuid", "webhook-id")
_HEADERS = {
    408: {"Connection": "close"},
    413: {"Connection": "close"},
    429: {"Retry-After": "60"},
}
_ERRORS = {
    400: "the body is not what its type says",
    404: "no such address",
    408: "the body came too slowly",
    413: f"at most {MAX_HOOK_BYTES} bytes",
    415: "only application/json, text/plain and application/x-www-form-urlencoded",
    422: "the workflow cannot start with this",
    429: "too many requests: try again in a minute",
}


class HookResult(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def task_id(self) -> str: ...
    @property
    def note(self) -> str: ...


class HookReceiver(Protocol):
    async def __call__(
        self, token: str, body: bytes, *, content_type: str, key: str
    ) -> HookResult: ...


def hook_route(receive: HookReceiver) -> Route:
    """The route. `key` is the id that the sender gives the request, if any: requests with the same
    key count once.
    """

    async def post(request: Request) -> Response:
        token = request.path_params["token"]
        if len(token) > _MAX_TOKEN:
            return _answer(404)
        try:
            async with asyncio.timeout(_SECONDS):
                body = await read_body(request, MAX_HOOK_BYTES)
        except TimeoutError:
            return _answer(408)
        except ClientDisconnect:
            return _answer(400)
        if body is None:
            return _answer(413)
        key = next((value for name in _KEY_HEADERS if (value := request.headers.get(name))), "")
        content_type = request.headers.get("content-type", "")
        result = await receive(token, body, content_type=content_type, key=key[:200])
        return _answer(result.status, task=result.task_id, note=result.note)

    return Route(f"{HOOKS_PATH}/{{token}}", post, methods=["POST"])


async def read_body(request: Request, most: int) -> bytes | None:
    """The body; None if it is larger than `most` bytes, in which case the rest is not read."""
    if int(request.headers.get("content-length") or 0) > most:
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


def _answer(status: int, *, task: str = "", note: str = "") -> Response:
    if task:
        return JSONResponse({"task": task}, status)
    return JSONResponse({"error": note or _ERRORS[status]}, status, _HEADERS.get(status))
