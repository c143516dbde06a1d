"""Some of a job's own tools, lent to the coding CLI that does it, for as long as it runs.

The tools are bound to who the job is for, so the CLI can look up what that job may and nothing
else. It reaches them through a socket in a folder that only its own sandbox sees (or a port of this
machine where such sockets are closed to it), with a word that is in the environment of the process
it starts for it, and is worth nothing after the run.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import shutil
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from bot.engine.agent.mcp.serving import bridge, rpc
from bot.engine.agent.mcp.serving.answering import answer
from bot.engine.llm.base import McpServer, Tool

log = logging.getLogger(__name__)

LENT = (
    "memory_search", "memory_get", "history_grep", "history_describe", "history_expand",
)  # fmt: skip
"""Those that only look, at what is remembered."""

_MOST_LINES = 8
_PATIENCE = 10.0
_WORD = 200
_LONGEST_ADDRESS = 100
_SYSTEM = (Path("/usr"), Path("/usr/local"))


class Lender:
    """`root` is a folder of ours; whatever is in it at the first use was left over. `new_word`
    makes what nobody can guess."""

    def __init__(self, root: Path, new_word: Callable[[], str]) -> None:
        self._root = root
        self._new_word = new_word
        self._swept = False
        self._sweeping = asyncio.Lock()

    @asynccontextmanager
    async def lent(
        self, tools: Sequence[Tool], *, by_port: bool = False
    ) -> AsyncGenerator[McpServer | None, None]:
        """None where there is nothing to lend, or no way to it: a run goes on without. `by_port`
        is for sandboxes that let no sockets of files be used."""
        mine = [tool for tool in tools if tool.name in LENT]
        if not mine:
            yield None
            return
        word, folder = self._new_word(), self._root / self._new_word()[:16]
        try:
            async with self._sweeping:
                await asyncio.to_thread(self._sweep)
            sock = await asyncio.to_thread(_laid_out, folder, by_port)
        except OSError as error:
            log.warning("a coding CLI gets no memory: %s", error)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            yield None
            return
        visitors = _Visitors(word, mine)
        listen = asyncio.start_server if by_port else asyncio.start_unix_server
        server = await listen(visitors.meet, sock=sock, limit=rpc.LONGEST)
        env = {bridge.PORT: str(sock.getsockname()[1])} if by_port else {}
        try:
            yield _server(folder, word, env)
        finally:
            server.close()
            await visitors.leave()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _sweep(self) -> None:
        if not self._swept:
            shutil.rmtree(self._root, ignore_errors=True)
            self._swept = True


class _Visitors:
    """Everybody who comes to one socket."""

    def __init__(self, word: str, tools: Sequence[Tool]) -> None:
        self._word = word.encode()
        self._tools = tools
        self._there: set[asyncio.Task[None]] = set()

    def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._there) >= _MOST_LINES:
            writer.close()
            return
        visit = asyncio.create_task(self._served(reader, writer), name="mcp-lent")
        self._there.add(visit)
        visit.add_done_callback(self._there.discard)

    async def leave(self) -> None:
        there = tuple(self._there)
        for each in there:
            each.cancel()
        await asyncio.gather(*there, return_exceptions=True)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await self._is_known(reader):
                await self._answered(reader, writer)
        except OSError:
            pass  # it went away
        except Exception:
            # A tool of ours is broken: that run goes on, and so does the program.
            log.exception("an answer to a coding CLI failed")
        finally:
            writer.close()

    async def _is_known(self, reader: asyncio.StreamReader) -> bool:
        with suppress(TimeoutError, ValueError):
            async with asyncio.timeout(_PATIENCE):
                said = await reader.readline()
            return hmac.compare_digest(said[:_WORD].rstrip(b"\n"), self._word)
        return False

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (told := await self._next(reader)) is not None:
            if told is not rpc.NONE:
                writer.write(await asyncio.to_thread(rpc.written, told) + b"\n")
                await writer.drain()

    async def _next(self, reader: asyncio.StreamReader) -> Any:
        """The answer to the next message; None at the end."""
        try:
            line = await reader.readline()
            message = rpc.parsed(line)
        except ValueError:
            # Too long, or no JSON: what follows may be understood again.
            return rpc.error(None, rpc.PARSE_ERROR, "not one JSON message a line")
        if not line:
            return None
        return rpc.NONE if message is rpc.NONE else await answer(self._tools, message)


def _server(folder: Path, word: str, env: Mapping[str, str]) -> McpServer:
    # Not the virtual environment's: only what belongs to the language itself is needed.
    python = Path(sys.executable).resolve()
    needed = [Path(sys.base_prefix)] if Path(sys.base_prefix) not in _SYSTEM else []
    return McpServer(
        name=rpc.NAME,
        command=(str(python), "-I", "-S", str(folder / "bridge.py")),
        env={bridge.VARIABLE: word, **env},
        secrets=(word,),
        places=(folder, *needed),
    )


def _laid_out(folder: Path, by_port: bool) -> socket.socket:
    folder.mkdir(mode=0o700, parents=True)
    shutil.copyfile(bridge.__file__, folder / "bridge.py")
    family = socket.AF_INET if by_port else socket.AF_UNIX
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if by_port:
            sock.bind(("127.0.0.1", 0))
        else:
            _bound(sock, folder)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _bound(sock: socket.socket, folder: Path) -> None:
    address = folder / bridge.SOCKET
    if len(os.fsencode(address)) <= _LONGEST_ADDRESS:
        sock.bind(str(address))
        return
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sock.bind(f"/proc/self/fd/{held}/{bridge.SOCKET}")
    finally:
        os.close(held)
