"""What a CLI writes, line by line: garbage is passed over, floods end the run, order is kept."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from bot.engine.llm.acp.failures import Failed
from bot.engine.llm.acp.said.wishes import CANCELLED

log = logging.getLogger(__name__)

LINE = 16_000_000
"""The longest message: a picture or a large diff in one."""

_ALL = 500_000_000
_GARBAGE = 2_000
_METHOD_NOT_FOUND = -32601

Message: TypeAlias = Mapping[str, Any]


class Wire:
    """The library's transport. Updates and wishes are taken out here, in the order in which they
    came and no faster than they are dealt with; only answers to our own requests go on.

    `on_wish` answers a request for permission with the protocol's own outcome."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        on_update: Callable[[Message], Awaitable[None]],
        on_wish: Callable[[Message], Awaitable[Mapping[str, Any]]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_update = on_update
        self._on_wish = on_wish
        self._read = 0
        self._garbage = 0
        self._spoken = False
        self._given_up = False
        self._wishes: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self.fault: Failed | None = None

    @property
    def only_garbage(self) -> bool:
        """It has written, and none of it was a message."""
        return bool(self._garbage) and not self._spoken

    async def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=True).encode() + b"\n"
        async with self._sending:
            self._writer.write(line)
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        while True:
            line = await self._line()
            if line is None:
                return None
            message = _message(line)
            if message is None:
                if not self._passed_over(line):
                    return None
                continue
            self._spoken = True
            if (method := message.get("method")) is None:
                return message
            await self._theirs(str(method), message)

    async def settled(self, seconds: float) -> None:
        """Wait until every wish has its answer, for so long at most."""
        if self._wishes:
            await asyncio.wait(set(self._wishes), timeout=seconds)

    async def give_up(self) -> None:
        """The turn is cancelled: so is what was asked in it, as the protocol wants it said."""
        self._given_up = True
        for wish in self._wishes:
            wish.cancel()
        await asyncio.gather(*self._wishes, return_exceptions=True)

    async def close(self) -> None:
        for wish in self._wishes:
            wish.cancel()
        await asyncio.gather(*self._wishes, return_exceptions=True)
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _line(self) -> bytes | None:
        try:
            line = await self._reader.readline()
        except (ValueError, OSError):  # longer than the limit, or the pipe broke
            self.fault = Failed.FLOOD
            return None
        self._read += len(line)
        if self._read > _ALL:
            self.fault = Failed.FLOOD
            return None
        return line or None

    def _passed_over(self, line: bytes) -> bool:
        """Some programs greet, or warn, on stdout; one that only chatters is no agent."""
        self._garbage += bool(line.strip())
        if self._garbage > _GARBAGE:
            self.fault = Failed.GARBAGE
            return False
        return True

    async def _theirs(self, method: str, message: dict[str, Any]) -> None:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "session/update":
            update = params.get("update")
            if isinstance(update, dict):
                await self._on_update(update)
        elif "id" not in message:
            log.debug("a CLI's notification %s is none of ours", method[:80])
        elif method == "session/request_permission":
            task = asyncio.create_task(self._answered(message["id"], params))
            self._wishes.add(task)
            task.add_done_callback(self._wishes.discard)
        else:
            # Files and terminals are not offered: it has its own, held in by the sandbox.
            error = {"code": _METHOD_NOT_FOUND, "message": "Method not found"}
            await self._reply(message["id"], error=error)

    async def _answered(self, id: object, params: Message) -> None:
        try:
            result = await self._on_wish(params)
        except asyncio.CancelledError:
            if not self._given_up:
                raise
            result = CANCELLED
        await self._reply(id, result=dict(result))

    async def _reply(self, id: object, **outcome: object) -> None:
        with suppress(OSError):
            await self.send({"jsonrpc": "2.0", "id": id, **outcome})


def _message(line: bytes) -> dict[str, Any] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) and ("method" in parsed or "id" in parsed) else None
