"""HTTP endpoint of the MCP server, protected by the web chat's token."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.engine.mcp.server import protocol
from bot.engine.mcp.server.memory_server import ForbiddenScope, McpMemoryServer
from bot.transports.web.access import has_bearer_token
from storage.errors import StorageError

log = logging.getLogger(__name__)

MCP_PATH = "/mcp"
_UNAUTHORIZED = 401


class _HttpRefusal(Exception):
    def __init__(self, status: int, text: str, code: int = protocol.INVALID_REQUEST) -> None:
        self.status = status
        self.code = code
        super().__init__(text)


class McpHttpEndpoint:
    """Stateless: each posted message is answered as JSON. `get_key` is called for each request,
    since the token is known only after the web chat has started."""

    def __init__(self, serving: McpMemoryServer) -> None:
        self._server = serving
        self.get_key: Callable[[], str] = str

    @property
    def route(self) -> Route:
        return Route(MCP_PATH, self.post, methods=["POST"])

    async def post(self, request: Request) -> Response:
        """Requires the token; a cookie is not sufficient, so web pages have no access."""
        try:
            told = await self._answer(request)
        except ClientDisconnect:
            return Response(status_code=499)
        except _HttpRefusal as refused:
            headers = {"www-authenticate": "Bearer"} if refused.status == _UNAUTHORIZED else {}
            said = protocol.error_message(None, refused.code, str(refused))
            return JSONResponse(said, status_code=refused.status, headers=headers)
        return Response(status_code=202) if told is protocol.NO_ANSWER else JSONResponse(told)

    async def _answer(self, request: Request) -> Any:
        key = self.get_key()
        if not key or not has_bearer_token(request, key):
            raise _HttpRefusal(_UNAUTHORIZED, "the token is missing: Authorization: Bearer …")
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise _HttpRefusal(415, "send application/json")
        try:
            message = protocol.parse_message(await _read_body(request))
        except ValueError as error:
            raise _HttpRefusal(400, "this is no JSON", protocol.PARSE_ERROR) from error
        if message is protocol.NO_ANSWER:
            raise _HttpRefusal(400, "this is no JSON", protocol.PARSE_ERROR)
        try:
            return await self._server.answer(message, request.query_params.getlist("scope"))
        except ForbiddenScope as wrong:
            raise _HttpRefusal(422, str(wrong), protocol.INVALID_PARAMS) from wrong
        except StorageError as error:
            log.warning("an external agent got no answer: %s", error)
            text = "memory cannot be read or written now"
            raise _HttpRefusal(503, text, protocol.INTERNAL_ERROR) from error


async def _read_body(request: Request) -> bytes:
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > protocol.MAX_MESSAGE_BYTES:
            raise _HttpRefusal(413, f"no more than {protocol.MAX_MESSAGE_BYTES} bytes a message")
    return bytes(found)
