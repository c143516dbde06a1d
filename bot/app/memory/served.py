"""The way to the MCP server over HTTP, behind the web chat's key."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.app.memory.serving import BadScope, Serving
from bot.engine.agent.mcp.serving import rpc
from bot.transports.web.gate import is_bearer
from storage.errors import StorageError

log = logging.getLogger(__name__)

PATH = "/mcp"
_UNKNOWN = 401


class _Refused(Exception):
    def __init__(self, status: int, text: str, code: int = rpc.INVALID) -> None:
        self.status = status
        self.code = code
        super().__init__(text)


class McpPage:
    """Each message is posted by itself and answered as JSON: no session, no stream. `key` is asked
    for at each request: it is known once the web chat has started."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self.key: Callable[[], str] = str

    @property
    def route(self) -> Route:
        return Route(PATH, self.post, methods=["POST"])

    async def post(self, request: Request) -> Response:
        """A cookie is not enough: no page may ask, only programs that know the token."""
        try:
            told = await self._told(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except _Refused as refused:
            headers = {"www-authenticate": "Bearer"} if refused.status == _UNKNOWN else {}
            said = rpc.error(None, refused.code, str(refused))
            return JSONResponse(said, status_code=refused.status, headers=headers)
        return Response(status_code=202) if told is rpc.NONE else JSONResponse(told)

    async def _told(self, request: Request) -> Any:
        key = self.key()
        if not key or not is_bearer(request, key):
            raise _Refused(_UNKNOWN, "the token is missing: Authorization: Bearer …")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _Refused(415, "send application/json")
        try:
            message = rpc.parsed(await _body(request))
        except ValueError as error:
            raise _Refused(400, "this is no JSON", rpc.PARSE_ERROR) from error
        if message is rpc.NONE:
            raise _Refused(400, "this is no JSON", rpc.PARSE_ERROR)
        try:
            return await self._serving.answer(message, request.query_params.getlist("scope"))
        except BadScope as wrong:
            raise _Refused(422, str(wrong), rpc.BAD_PARAMS) from wrong
        except StorageError as error:
            log.warning("an agent outside got no answer: %s", error)
            text = "what is remembered cannot be read or written now"
            raise _Refused(503, text, rpc.BROKEN) from error


async def _body(request: Request) -> bytes:
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > rpc.LONGEST:
            raise _Refused(413, f"no more than {rpc.LONGEST} bytes a message")
    return bytes(found)
