"""Joins a process's standard input and output to a socket beside this file, or to
a port of this machine.

It runs by itself, within whatever a coding CLI is held in: nothing of ours is imported, and what
it may ask for is known to the other side by the word it has in its environment.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

SOCKET, VARIABLE, PORT = "socket", "SHIFTBOSS_MCP_TOKEN", "SHIFTBOSS_MCP_PORT"
_CHUNK = 65_536


def main() -> None:
    try:
        line = _connected()
        line.sendall(os.environ.get(VARIABLE, "").encode() + b"\n")
    except OSError as error:
        sys.stderr.write(f"shiftboss: nobody is there any more ({error.strerror})\n")
        raise SystemExit(1) from None
    threading.Thread(target=_sent, args=(line,), daemon=True).start()
    with suppress(OSError):
        while data := line.recv(_CHUNK):
            _shown(data)


def _connected() -> socket.socket:
    if port := os.environ.get(PORT):
        return socket.create_connection(("127.0.0.1", int(port)))
    # The whole path may be longer than the address of a socket can be.
    os.chdir(Path(__file__).parent)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.connect(SOCKET)
    return line


def _sent(line: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(0, _CHUNK):
            line.sendall(data)
        line.shutdown(socket.SHUT_WR)


def _shown(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
