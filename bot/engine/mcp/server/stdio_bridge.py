"""Connects stdio to a Unix socket in this file's folder, or to a local port.

Runs standalone inside a coding CLI's sandbox, so it imports none of our modules; the token in its
environment authenticates it."""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

SOCKET_NAME, TOKEN_VARIABLE, PORT_VARIABLE = "socket", "SHIFTBOSS_MCP_TOKEN", "SHIFTBOSS_MCP_PORT"
_CHUNK = 65_536


def main() -> None:
    try:
        line = _connect()
        line.sendall(os.environ.get(TOKEN_VARIABLE, "").encode() + b"\n")
    except OSError as error:
        sys.stderr.write(f"shiftboss: the connection is closed ({error.strerror})\n")
        raise SystemExit(1) from None
    threading.Thread(target=_forward_input, args=(line,), daemon=True).start()
    with suppress(OSError):
        while data := line.recv(_CHUNK):
            _write_output(data)


def _connect() -> socket.socket:
    if port := os.environ.get(PORT_VARIABLE):
        return socket.create_connection(("127.0.0.1", int(port)))
    # The full path may exceed the maximum length of a socket address.
    os.chdir(Path(__file__).parent)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(SOCKET_NAME)
    return line


def _forward_input(line: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(0, _CHUNK):
            line.sendall(data)
        line.shutdown(socket.SHUT_WR)


def _write_output(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
