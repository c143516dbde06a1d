"""Keeps the process of a coding CLI for the next step of the same task."""

from __future__ import annotations

import asyncio
import logging
from typing import Generic, Protocol, TypeVar

log = logging.getLogger(__name__)


class ProcessIdentity(Protocol):
    """All that a process was started with: another request may use it only if nothing differs.

    `kept_for` names the work that it belongs to, `session` is the CLI's own ID."""

    @property
    def kept_for(self) -> str: ...

    @property
    def session(self) -> str: ...


class KeepableSession(Protocol):
    """The session in a CLI's process. `is_reusable` is False while it works, after a failure and
    after the end of its process; `is_tidy` tells whether its work has left nothing running.

    `release` lets it do nothing until the next run."""

    @property
    def scope(self) -> ProcessIdentity: ...

    @property
    def is_reusable(self) -> bool: ...

    async def is_tidy(self) -> bool: ...

    def release(self) -> None: ...

    async def close(self) -> None: ...


_Session = TypeVar("_Session", bound=KeepableSession)


class IdleProcess(Generic[_Session]):
    """Keeps at most one process, because each takes hundreds of megabytes, for `seconds` (0: keeps
    none)."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._kept: _Session | None = None
        self._timer: asyncio.Task[None] | None = None

    async def keep(self, session: _Session) -> bool:
        """Keep the process instead of the one before; False if it is to be ended."""
        if not (self._seconds and session.scope.kept_for and session.is_reusable):
            return False
        if not await session.is_tidy():
            log.info("a coding CLI is not kept: it runs programs or takes much memory")
            return False
        async with self._lock:
            await self._end()
            session.release()
            self._kept = session
            self._timer = asyncio.create_task(self._expire(session), name="idle coding CLI")
        return True

    async def take(self, scope: ProcessIdentity) -> _Session | None:
        """Return the process that was started with the same; one that has the same session but
        differs otherwise is ended, because two must not work in one session."""
        async with self._lock:
            session = self._kept
            if session is None or session.scope.session != scope.session:
                return None
            if session.scope != scope or not session.is_reusable:
                log.info("the idle coding CLI is replaced")
                await self._end()
                return None
            self._forget()
            return session

    async def end(self, kept_for: str | None = None) -> None:
        """End the process, if it is kept for this; by default whatever it is kept for."""
        async with self._lock:
            if self._kept is not None and kept_for in {None, self._kept.scope.kept_for}:
                await self._end()

    async def _expire(self, session: _Session) -> None:
        await asyncio.sleep(self._seconds)
        async with self._lock:
            if self._kept is session:
                self._timer = None
                await self._end()

    async def _end(self) -> None:
        if (session := self._kept) is not None:
            self._forget()
            await session.close()

    def _forget(self) -> None:
        self._kept = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
