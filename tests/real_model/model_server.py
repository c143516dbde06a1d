"""A real small model on loopback, and a program that has no other."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

MODEL_FILE = os.environ.get("SHIFTBOSS_REAL_MODEL", "")
"""A GGUF file. Nothing is ever downloaded."""

_PYTHON = os.environ.get("SHIFTBOSS_REAL_MODEL_PYTHON", sys.executable)
"""The one that has xllamacpp."""

_SERVE = Path(__file__).with_name("serve.py")
_LOAD_SECONDS = 120.0


@asynccontextmanager
async def serve_model(log: Path) -> AsyncGenerator[str, None]:
    """Its base URL, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as noise:
        process = await asyncio.create_subprocess_exec(
            _PYTHON, _SERVE, MODEL_FILE, str(port), stdout=asyncio.subprocess.PIPE, stderr=noise
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_LOAD_SECONDS):
            while (line := await process.stdout.readline()) and line != b"ready\n":
                pass
        assert process.returncode is None, log.read_text(errors="replace")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
