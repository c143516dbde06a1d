"""The long connection: protobuf frames over WebSocket, pushes, acks and re-pushes."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.emulators.feishu.clock import Clock
from tests.emulators.feishu.frames import CONTROL, DATA, SERVICE_ID, decode, encode
from tests.emulators.feishu.world import World

ACK_SECONDS = 3.0
MAX_CONNECTIONS = 50
SCHEDULE = (15.0, 300.0, 3600.0, 21600.0)


@dataclass(slots=True, kw_only=True, eq=False)
class Push:
    """One event on its way to the app; `acked` holds the app's answer once it comes, and
    `waiting` says that the next try is due some time later."""

    message_id: str
    event_id: str
    event_type: str
    body: dict[str, Any]
    retry: bool
    acked: asyncio.Future[dict[str, Any]]
    attempts: int = 0
    codes: list[int] = field(default_factory=list)
    reply: asyncio.Future[dict[str, Any]] | None = None
    waiting: bool = False

    @property
    def answer(self) -> Any:
        """What the app put into `data` of a good ack; None when there was nothing."""
        data = self.acked.result().get("data")
        return json.loads(base64.b64decode(data)) if data else None


class LongConnection:
    def __init__(self, clock: Clock, world: World) -> None:
        self._clock = clock
        self._world = world
        self._server: Server | None = None
        self._pending: dict[str, Push] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tickets: set[str] = set()
        self._random = random.Random(7)
        self.connections: list[ServerConnection] = []
        self.accepted = 0
        self.pings = 0
        self.pushes: list[Push] = []
        self.config = {
            "ReconnectCount": -1,
            "ReconnectInterval": 120,
            "ReconnectNonce": 30,
            "PingInterval": 120,
        }
        self.discovery_codes: list[int] = []
        self.handshake_refusals: list[dict[str, str]] = []
        self.answer_pings = True
        self.split_into = 1
        self.schedule: tuple[float, ...] = SCHEDULE
        self.port = 0

    async def start(self) -> None:
        self._server = await serve(
            self._serve, "127.0.0.1", 0, process_request=self._gate, ping_interval=None
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.drop()
        self._server.close()
        await self._server.wait_closed()

    # --- discovery and handshake ------------------------------------------------------------

    def discover(self, *, authorized: bool) -> dict[str, Any]:
        if self.discovery_codes:
            code = self.discovery_codes.pop(0)
            return {"code": code, "msg": f"refused with {code}"}
        if not authorized:
            return {"code": 514, "msg": "app_id or app_secret is invalid"}
        if len(self.connections) >= MAX_CONNECTIONS:
            return {"code": 1000040350, "msg": "the number of connections exceeded the limit"}
        ticket = self._world.new_id("tk")
        self._tickets.add(ticket)
        query = f"device_id={self._world.new_id('7', 18)}&service_id={SERVICE_ID}&ticket={ticket}"
        url = f"ws://127.0.0.1:{self.port}/ws/v2?{query}"
        return {"code": 0, "msg": "", "data": {"URL": url, "ClientConfig": self.config}}

    def _gate(self, connection: ServerConnection, request: Request) -> Response | None:
        ticket = request.path.rpartition("ticket=")[2]
        if self.handshake_refusals:
            refusal = self.handshake_refusals.pop(0)
        elif ticket not in self._tickets:
            refusal = {"handshake-status": "403", "handshake-msg": "ticket is invalid"}
        else:
            self._tickets.discard(ticket)
            return None
        response = connection.respond(400, "refused\n")
        for key, value in refusal.items():
            response.headers[key] = value
        return response

    async def _serve(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        self.accepted += 1
        self._world.ring()
        try:
            async for raw in connection:
                if isinstance(raw, bytes):
                    await self._receive(connection, raw)
        except ConnectionClosed:
            pass
        finally:
            self.connections.remove(connection)
            self._world.ring()

    async def _receive(self, connection: ServerConnection, raw: bytes) -> None:
        method, headers, payload = decode(raw)
        if method == CONTROL and headers.get("type") == "ping":
            self.pings += 1
            self._world.ring()
            if self.answer_pings:
                config = json.dumps(self.config).encode()
                await connection.send(encode(CONTROL, {"type": "pong"}, config))
        elif method == DATA:
            self._acked(headers, payload)

    def _acked(self, headers: dict[str, str], payload: bytes) -> None:
        push = self._pending.get(headers.get("message_id", ""))
        answer = json.loads(payload)
        if push is None or push.reply is None or push.reply.done():
            return
        assert "biz_rt" in headers or answer["code"] != 200, "an ack carries biz_rt"
        push.codes.append(int(answer["code"]))
        push.reply.set_result(answer)

    # --- pushes -----------------------------------------------------------------------------

    def push(self, body: dict[str, Any], *, retry: bool = True) -> Push:
        """Deliver an event: now, and again by the schedule until it is acknowledged."""
        header = body["header"]
        push = Push(
            message_id=self._world.new_id("push-"),
            event_id=header["event_id"],
            event_type=header["event_type"],
            body=body,
            retry=retry,
            acked=asyncio.get_running_loop().create_future(),
        )
        self.pushes.append(push)
        self._spawn(self._deliver(push))
        return push

    def redeliver(self, push: Push) -> Push:
        """The same event once more although it was acknowledged: at least once, not once."""
        return self.push(push.body)

    async def _deliver(self, push: Push) -> None:
        answer: dict[str, Any] | None = None
        for pause in (*self.schedule, None) if push.retry else (None,):
            answer = await self._try(push)
            if answer is not None and answer["code"] == 200:
                push.acked.set_result(answer)
                self._world.ring()
                return
            if pause is not None:
                await self._rest(push, pause)
        if not push.retry and not push.acked.done():
            push.acked.set_result(answer or {"code": 0})

    async def _rest(self, push: Push, pause: float) -> None:
        due = self._clock.now() + pause
        push.waiting = True
        self._world.ring()
        await self._clock.sleep_until(due)
        push.waiting = False

    async def _try(self, push: Push) -> dict[str, Any] | None:
        push.attempts += 1
        self._world.ring()
        if not self.connections:
            return None
        push.reply = asyncio.get_running_loop().create_future()
        self._pending[push.message_id] = push
        try:
            await self._send(push)
            deadline = self._spawn(self._clock.sleep_until(self._clock.now() + ACK_SECONDS))
            await asyncio.wait((push.reply, deadline), return_when=asyncio.FIRST_COMPLETED)
            deadline.cancel()
            return push.reply.result() if push.reply.done() else None
        except ConnectionClosed:
            return None
        finally:
            self._pending.pop(push.message_id, None)

    async def _send(self, push: Push) -> None:
        connection = self._random.choice(self.connections)
        payload = json.dumps(push.body, ensure_ascii=False).encode()
        size = -(-len(payload) // self.split_into)
        parts = [payload[start : start + size] for start in range(0, len(payload), size)]
        for number, part in enumerate(parts):
            headers = {
                "type": "event",
                "message_id": push.message_id,
                "trace_id": f"trace-{push.message_id}",
                "sum": str(len(parts)),
                "seq": str(number),
            }
            await connection.send(encode(DATA, headers, part))

    async def send_raw(self, data: bytes | str) -> None:
        """Any bytes at all, to every connection."""
        for connection in tuple(self.connections):
            await connection.send(data)

    async def drop(self, *, abrupt: bool = False) -> None:
        for connection in tuple(self.connections):
            if abrupt:
                connection.transport.abort()
            else:
                await connection.close()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
