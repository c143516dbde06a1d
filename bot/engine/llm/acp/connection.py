"""Exchanges JSON-RPC messages with a CLI, tolerating garbage, limiting floods and redacting
secrets."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from acp.connection import Connection
from acp.exceptions import RequestError

from bot.engine.llm.acp.permission_requests import CANCELLED
from bot.engine.llm.acp.process import AcpFailure

REDACTION_MARK = "••••"


class SecretRedactor:
    def __init__(self, secrets: Sequence[str]) -> None:
        self.secrets = tuple(sorted(secrets, key=len, reverse=True))

    def redact_text(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, REDACTION_MARK)
        return text

    def redact_json(self, data: Any) -> Any:
        """Redact strings and keys of a JSON value."""
        if not self.secrets:
            return data
        match data:
            case str():
                return self.redact_text(data)
            case list():
                return [self.redact_json(each) for each in data]
            case dict():
                return {
                    self.redact_text(str(key)): self.redact_json(value)
                    for key, value in data.items()
                }
            case _:
                return data


log = logging.getLogger(__name__)

MAX_LINE_BYTES = 16_000_000
"""Maximum size of a message, such as a picture or a large diff."""

_MAX_TOTAL_BYTES = 500_000_000
_MAX_GARBAGE_LINES = 2_000
_METHOD_NOT_FOUND = -32601

AcpMessage: TypeAlias = Mapping[str, Any]


class AcpTransport:
    """The library's transport, which passes on only responses to our requests.

    Updates and permission requests are handled here in order, with back-pressure; `listen` must
    be called before the first request."""

    _on_update: Callable[[AcpMessage], Awaitable[None]]
    _on_permission_request: Callable[[AcpMessage], Awaitable[Mapping[str, Any]]]

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._bytes_read = 0
        self._garbage_lines = 0
        self._has_message = False
        self._cancelled = False
        self._requests: set[asyncio.Task[None]] = set()
        self._send_lock = asyncio.Lock()
        self.failure: AcpFailure | None = None

    def listen(
        self,
        on_update: Callable[[AcpMessage], Awaitable[None]],
        on_permission_request: Callable[[AcpMessage], Awaitable[Mapping[str, Any]]],
    ) -> None:
        """Let these handle all that comes from now on; the limits of a run begin anew.
        `on_permission_request` returns the protocol's outcome."""
        self._on_update = on_update
        self._on_permission_request = on_permission_request
        self._bytes_read = self._garbage_lines = 0

    @property
    def is_quiet(self) -> bool:
        """True if nothing has failed and no permission request is open."""
        return self.failure is None and not self._requests

    @property
    def only_garbage(self) -> bool:
        """True if the CLI has written lines, but no messages."""
        return bool(self._garbage_lines) and not self._has_message

    async def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        async with self._send_lock:
            self._writer.write(line)
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        while True:
            line = await self._line()
            if line is None:
                return None
            message = _parse_message(line)
            if message is None:
                if not self._tolerate_garbage(line):
                    return None
                continue
            self._has_message = True
            if (method := message.get("method")) is None:
                return message
            await self._handle_incoming(str(method), message)

    async def wait_for_replies(self, seconds: float) -> None:
        """Wait up to `seconds` until all permission requests are answered."""
        if self._requests:
            await asyncio.wait(set(self._requests), timeout=seconds)

    async def cancel_requests(self) -> None:
        """Answer open permission requests as cancelled, as the protocol requires after cancelling a
        turn."""
        self._cancelled = True
        await self._stop_requests()

    async def close(self) -> None:
        await self._stop_requests()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _stop_requests(self) -> None:
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    async def _line(self) -> bytes | None:
        try:
            line = await self._reader.readline()
        except (ValueError, OSError):  # line too long, or broken pipe
            self.failure = AcpFailure.FLOOD
            return None
        self._bytes_read += len(line)
        if self._bytes_read > _MAX_TOTAL_BYTES:
            self.failure = AcpFailure.FLOOD
            return None
        return line or None

    def _tolerate_garbage(self, line: bytes) -> bool:
        """Skip greetings and warnings on stdout; fail after too many lines."""
        self._garbage_lines += bool(line.strip())
        if self._garbage_lines > _MAX_GARBAGE_LINES:
            self.failure = AcpFailure.GARBAGE
            return False
        return True

    async def _handle_incoming(self, method: str, message: dict[str, Any]) -> None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "session/update":
            update = params.get("update")
            if isinstance(update, dict):
                await self._on_update(update)
        elif "id" not in message:
            log.debug("a coding CLI sent an unknown notification: %s", method[:80])
        elif method == "session/request_permission":
            task = asyncio.create_task(self._answer_request(message["id"], params))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
        else:
            # We offer no files or terminals: the CLI has its own, restricted by the sandbox.
            error = {"code": _METHOD_NOT_FOUND, "message": "Method not found"}
            await self._reply(message["id"], error=error)

    async def _answer_request(self, id: object, params: AcpMessage) -> None:
        try:
            result = await self._on_permission_request(params)
        except asyncio.CancelledError:
            if not self._cancelled:
                raise
            result = CANCELLED
        await self._reply(id, result=dict(result))

    async def _reply(self, id: object, **outcome: object) -> None:
        with suppress(OSError):
            await self.send({"jsonrpc": "2.0", "id": id, **outcome})


def _parse_message(line: bytes) -> dict[str, Any] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) and ("method" in parsed or "id" in parsed) else None


class AcpRequestRefused(Exception):
    """The CLI answered a request with an error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


class AcpConnectionClosed(Exception):
    """The connection ended before the response."""

    def __init__(self, failure: AcpFailure | None) -> None:
        """`failure` is None if the process ended."""
        self.failure = failure
        super().__init__(str(failure or "the process ended"))


class AcpConnection:
    def __init__(self, transport: AcpTransport, redactor: SecretRedactor) -> None:
        self._transport = transport
        self._redactor = redactor
        self._connection = Connection(_reject_request, transport)

    async def request(
        self, method: str, params: Mapping[str, Any], *, seconds: float | None = None
    ) -> Mapping[str, Any]:
        """Raises AcpRequestRefused and AcpConnectionClosed."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self._connection.send_request(method, dict(params))
        except RequestError as error:
            hidden = self._redactor.redact_text(str(error))[:500]
            raise AcpRequestRefused(
                error.code, hidden, self._redactor.redact_json(error.data)
            ) from None
        except TimeoutError:
            silent = AcpFailure.GARBAGE if self._transport.only_garbage else AcpFailure.SILENT
            raise AcpConnectionClosed(self._transport.failure or silent) from None
        except OSError:  # includes ConnectionError
            raise AcpConnectionClosed(self._transport.failure) from None
        return answer if isinstance(answer, dict) else {}

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Does nothing if the connection is closed."""
        with suppress(OSError):
            await self._connection.send_notification(method, dict(params))

    async def aclose(self) -> None:
        await self._connection.close()


async def _reject_request(method: str, params: Any, is_notification: bool) -> Any:  # noqa: ARG001 - the library's signature
    """The transport handles all requests itself."""
    raise RequestError.method_not_found(method)
