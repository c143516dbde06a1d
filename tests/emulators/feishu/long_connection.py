"""The long connection: protobuf frames over WebSocket, pushes, acks and re-pushes."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import random
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.emulators.feishu.tenant import EmulatorClock, FeishuTenant

CONTROL, DATA = 0, 1
SERVICE_ID = 33554678
_BARE = ("lark_oapi", "lark_oapi.ws", "lark_oapi.ws.pb", "lark_oapi.ws.pb.google")


def _frame_class() -> Any:
    """Stand-ins for the parent packages live only while the module is imported, so that a
    later full import of the SDK is an ordinary one."""
    added = []
    for name in _BARE:
        if name in sys.modules:
            continue
        spec = find_spec(name)
        assert spec is not None
        module = ModuleType(name)
        module.__path__ = list(spec.submodule_search_locations or ())
        module.__spec__ = spec
        sys.modules[name] = module
        added.append(name)
    try:
        return importlib.import_module("lark_oapi.ws.pb.pbbp2_pb2").Frame
    finally:
        for name in added:
            del sys.modules[name]


Frame = _frame_class()


def encode(method: int, headers: dict[str, str], payload: bytes) -> bytes:
    frame = Frame()
    frame.SeqID = 0
    frame.LogID = 0
    frame.service = SERVICE_ID
    frame.method = method
    for key, value in headers.items():
        header = frame.headers.add()
        header.key = key
        header.value = value
    frame.payload = payload
    raw: bytes = frame.SerializeToString()
    return raw


def decode(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Method, headers and payload."""
    frame = Frame()
    frame.ParseFromString(raw)
    return frame.method, {header.key: header.value for header in frame.headers}, frame.payload


ACK_SECONDS = 3.0
MAX_CONNECTIONS = 50
RETRY_SCHEDULE = (15.0, 300.0, 3600.0, 21600.0)


@dataclass(slots=True, kw_only=True, eq=False)
class EventPush:
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
        """The `data` of a successful ack; None if it was empty."""
        data = self.acked.result().get("data")
        return json.loads(base64.b64decode(data)) if data else None


class LongConnection:
    def __init__(self, clock: EmulatorClock, world: FeishuTenant) -> None:
        self._clock = clock
        self._world = world
        self._server: Server | None = None
        self._pending: dict[str, EventPush] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._tickets: set[str] = set()
        self._random = random.Random(7)
        self.connections: list[ServerConnection] = []
        self.accepted = 0
        self.pings = 0
        self.pushes: list[EventPush] = []
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
        self.next_on: list[int] = []
        self.schedule: tuple[float, ...] = RETRY_SCHEDULE
        self.port = 0

    async def start(self) -> None:
        self._server = await serve(
            self._serve, "127.0.0.1", 0, process_request=self._check_handshake, ping_interval=None
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.drop_connections()
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

    def _check_handshake(self, connection: ServerConnection, request: Request) -> Response | None:
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
        self._world.notify_changed()
        try:
            async for raw in connection:
                if isinstance(raw, bytes):
                    await self._receive(connection, raw)
        except ConnectionClosed:
            pass
        finally:
            self.connections.remove(connection)
            self._world.notify_changed()

    async def _receive(self, connection: ServerConnection, raw: bytes) -> None:
        method, headers, payload = decode(raw)
        if method == CONTROL and headers.get("type") == "ping":
            self.pings += 1
            self._world.notify_changed()
            if self.answer_pings:
                config = json.dumps(self.config).encode()
                await connection.send(encode(CONTROL, {"type": "pong"}, config))
        elif method == DATA:
            self._handle_ack(headers, payload)

    def _handle_ack(self, headers: dict[str, str], payload: bytes) -> None:
        push = self._pending.get(headers.get("message_id", ""))
        answer = json.loads(payload)
        if push is None or push.reply is None or push.reply.done():
            return
        assert "biz_rt" in headers or answer["code"] != 200, "an ack carries biz_rt"
        push.codes.append(int(answer["code"]))
        push.reply.set_result(answer)

    # --- pushes -----------------------------------------------------------------------------

    def push(self, body: dict[str, Any], *, retry: bool = True) -> EventPush:
        """Deliver an event: now, and again by the schedule until it is acknowledged."""
        header = body["header"]
        push = EventPush(
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

    def redeliver(self, push: EventPush) -> EventPush:
        """The same event once more although it was acknowledged: at least once, not once."""
        return self.push(push.body)

    async def _deliver(self, push: EventPush) -> None:
        answer: dict[str, Any] | None = None
        for pause in (*self.schedule, None) if push.retry else (None,):
            answer = await self._try(push)
            if answer is not None and answer["code"] == 200:
                push.acked.set_result(answer)
                self._world.notify_changed()
                return
            if pause is not None:
                await self._wait_before_retry(push, pause)
        if not push.retry and not push.acked.done():
            push.acked.set_result(answer or {"code": 0})

    async def _wait_before_retry(self, push: EventPush, pause: float) -> None:
        due = self._clock.now() + pause
        push.waiting = True
        self._world.notify_changed()
        await self._clock.sleep_until(due)
        push.waiting = False

    async def _try(self, push: EventPush) -> dict[str, Any] | None:
        push.attempts += 1
        self._world.notify_changed()
        if not self.connections:
            return None
        push.reply = asyncio.get_running_loop().create_future()
        self._pending[push.message_id] = push
        try:
            await self._send(push)
            if not push.retry:
                # Who pressed says how long they wait: `callbacks.CALLBACK_SECONDS`.
                return await push.reply
            deadline = self._spawn(self._clock.sleep_until(self._clock.now() + ACK_SECONDS))
            await asyncio.wait((push.reply, deadline), return_when=asyncio.FIRST_COMPLETED)
            deadline.cancel()
            return push.reply.result() if push.reply.done() else None
        except ConnectionClosed:
            return None
        finally:
            self._pending.pop(push.message_id, None)

    async def _send(self, push: EventPush) -> None:
        # The platform chooses one of the app's connections; tests say which, if it matters.
        if self.next_on:
            connection = self.connections[self.next_on.pop(0)]
        else:
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

    async def drop_connections(self, *, abrupt: bool = False) -> None:
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
