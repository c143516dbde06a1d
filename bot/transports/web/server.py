"""uvicorn inside our own event loop: signals stay ours, and stopping is quick and clean."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from bot.transports.web.errors import CannotListen, PortInUse

_CLOSE_WITHIN = 2
_LARGEST_FRAME = 4 * 1024 * 1024


def listen(host: str, port: int) -> socket.socket:
    """A listening socket: whoever connects from now on is served once the server runs.
    PortInUse or CannotListen if it cannot be had."""
    name = "127.0.0.1" if host == "localhost" else host
    sock = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((name, port))
        sock.listen(128)
    except OSError as problem:
        sock.close()
        if problem.errno == errno.EADDRINUSE:
            raise PortInUse(host=host, port=port) from problem
        reason = problem.strerror or str(problem)
        raise CannotListen(host=host, port=port, reason=reason) from problem
    sock.setblocking(False)
    return sock


class Embedded(uvicorn.Server):
    """Serves until `stop` is set. uvicorn's own would take SIGTERM from the program, raise it
    again after closing, and wake ten times a second to look whether it should end."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                # The other implementation stands on a deprecated part of `websockets`.
                ws="websockets-sansio",
                ws_max_size=_LARGEST_FRAME,
                timeout_graceful_shutdown=_CLOSE_WITHIN,
            )
        )
        self.stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stop.wait()


async def serve(app: ASGIApp, sock: socket.socket) -> None:
    """Serve until cancelled, then close what is open. The socket is closed with it."""
    server = Embedded(app)
    serving = asyncio.create_task(server.serve(sockets=[sock]), name="web-server")
    try:
        await asyncio.shield(serving)
    finally:
        server.stop.set()
        await serving
