"""A tiny MCP server over HTTP, hand-written, with the manners it is given."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from tests.emulators.mcp_server import TOOLS

SESSION = "session-1"


@dataclass
class McpHttpServer:
    """`heard` are all requests: their method, headers and message. `manners`: `events` answers in
    streams, `moved` sends away, `closed` refuses, `silent` says nothing, `flood` never stops,
    `packed` packs, `endless` streams for ever in calls, `dirty` makes no sense, `telling`
    complains with what it was sent, `private` wants people to sign in. `grants` are the requests
    for tokens. With `client`, an ID and a secret, it registers none itself. Calls need the right
    `call_scope`, if it is not among those `granted`. One that `greets_everybody` wants a token for
    anything but a greeting. `revoked` are the tokens given back."""

    behaviour: str = ""
    port: int = 0
    token_seconds: int = 3600
    client: tuple[str, str] | None = None
    call_scope: str = ""
    reads_client_descriptions: bool = False
    greets_everybody: bool = False
    granted: str = ""
    grants: list[dict[str, str]] = field(default_factory=list)
    revoked: list[dict[str, str]] = field(default_factory=list)
    requests: list[tuple[str, Mapping[str, str], Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def sign_in_page(self, path: str, headers: Mapping[str, str], message: Any) -> bytes:
        """What an authorization server and a server that wants a token say; empty for the token
        that was given last."""
        if self.behaviour != "private":
            return b""
        here = f"http://127.0.0.1:{self.port}"
        match path.partition("?")[0]:
            case "/.well-known/oauth-protected-resource":
                told: Any = {"resource": self.url, "authorization_servers": [f"{here}/tenant"]}
            case "/.well-known/oauth-authorization-server/tenant":
                told = {
                    "issuer": f"{here}/tenant",
                    "authorization_endpoint": f"{here}/tenant/authorize",
                    "token_endpoint": f"{here}/tenant/token",
                    "revocation_endpoint": f"{here}/tenant/revoke",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                }
                if self.reads_client_descriptions:
                    told["client_id_metadata_document_supported"] = True
                if self.client is None:
                    told["registration_endpoint"] = f"{here}/tenant/register"
            case "/tenant/revoke":
                self.revoked.append(message)
                told = {}
            case "/tenant/register" if self.client is None:
                told = {**message, "client_id": "client-1"}
            case "/tenant/token":
                self.grants.append(message)
                if message.get("code") == "wrong" or not self._knows(headers):
                    return reply(b'{"error": "invalid_grant"}', status="400 Bad Request")
                told = {
                    "access_token": f"access-{len(self.grants)}",
                    "refresh_token": "refresh-1",
                    "token_type": "Bearer",
                    "expires_in": self.token_seconds,
                    **({"scope": self.granted} if self.granted else {}),
                }
            case "/mcp":
                method = message.get("method", "") if isinstance(message, dict) else ""
                if self.greets_everybody and method in {"initialize", "notifications/initialized"}:
                    return b""
                is_call = method == "tools/call"
                if is_call and self.call_scope not in {"", *self.granted.split()}:
                    more = 'WWW-Authenticate: Bearer error="insufficient_scope", '
                    more += f'scope="{self.call_scope}"\r\n'
                    return reply(b"no", status="403 Forbidden", more=more)
                if headers.get("authorization") == f"Bearer access-{len(self.grants)}":
                    return b""
                where = f'resource_metadata="{here}/.well-known/oauth-protected-resource"'
                more = f"WWW-Authenticate: Bearer {where}\r\n"
                return reply(b"no", status="401 Unauthorized", more=more)
            case _:
                return reply(b"{}", status="404 Not Found")
        return reply(json.dumps(told).encode())

    def _knows(self, headers: Mapping[str, str]) -> bool:
        if self.client is None:
            return True
        given = base64.b64encode(":".join(self.client).encode()).decode()
        return headers.get("authorization") == f"Basic {given}"

    def answer(self, headers: Mapping[str, str], message: Any) -> bytes:
        if not message or "id" not in message:
            return reply(b"", status="202 Accepted")
        told = {"jsonrpc": "2.0", "id": message["id"], **self._result(headers, message)}
        match self.behaviour:
            case "moved":
                return reply(b"", status="307 Moved", more="Location: http://169.254.169.254/\r\n")
            case "closed":
                return reply(b"no", status="401 Unauthorized")
            case "packed":
                return reply(b"\x1f\x8b", more="Content-Encoding: gzip\r\n")
            case "dirty":
                return reply(b"<html>")
            case "flood":
                return reply(b"[" + b"1," * 5_000_000 + b"1]")
            case "events":
                ping = {"jsonrpc": "2.0", "id": message["id"], "method": "ping"}
                pieces = "".join(
                    f"event: message\r\ndata: {json.dumps(each)}\r\n\r\n"
                    for each in ({"jsonrpc": "2.0", "method": "notifications/x"}, ping, told)
                )
                return reply(f": hello\r\n\r\n{pieces}".encode(), kind="text/event-stream")
        return reply(json.dumps(told).encode(), more=f"Mcp-Session-Id: {SESSION}\r\n")

    def _result(self, headers: Mapping[str, str], message: Any) -> dict[str, Any]:
        if self.behaviour == "telling":
            text = f"I do not know {headers['authorization']}"
            return {"error": {"code": -32600, "message": text}}
        match message["method"]:
            case "initialize":
                about = {"name": "tiny", "version": "1"}
                hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                return {"result": {**hello, "serverInfo": about}}
            case "tools/list":
                return {"result": {"tools": TOOLS[:2]}}
        name, arguments = message["params"]["name"], message["params"]["arguments"]
        text = f"you said {arguments.get('text')} as {headers.get('authorization')}"
        return {"result": {"content": [{"type": "text", "text": text}], "isError": name == "fail"}}


def reply(
    body: bytes, *, status: str = "200 OK", kind: str = "application/json", more: str = ""
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n{more}\r\n".encode() + body


async def stream_for_ever(writer: asyncio.StreamWriter) -> None:
    """Send events until the client has had enough."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    event = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 99_999}}
    while True:
        writer.write(f"data: {json.dumps(event)}\n\n".encode())
        await writer.drain()


@asynccontextmanager
async def mcp_http_server(manners: str = "") -> AsyncIterator[McpHttpServer]:
    site = McpHttpServer(behaviour=manners)
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            is_form = "urlencoded" in headers.get("content-type", "")
            message = dict(parse_qsl(body.decode())) if is_form else json.loads(body or b"null")
            site.requests.append((first.split()[0], headers, message))
            path = first.split()[1]
            if site.behaviour == "private" and (
                special := site.sign_in_page(path, headers, message)
            ):
                writer.write(special)
                await writer.drain()
            elif site.behaviour == "silent":
                await over.wait()
            elif site.behaviour == "endless" and message and message["method"] == "tools/call":
                await stream_for_ever(writer)
            else:
                writer.write(site.answer(headers, message))
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1")
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        over.set()
        server.close()
        await server.wait_closed()
