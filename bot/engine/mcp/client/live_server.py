"""One MCP server that is kept running, checked, and started again after it died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.engine.llm.backend import RunNotice
from bot.engine.llm.tool_calls import ERROR_PREFIX
from bot.engine.mcp.client.elicitation import ElicitationDeclined, Elicitor, InputHandler
from bot.engine.mcp.client.server_config import McpError, McpScope
from storage.records.workers import McpServerState, McpServerStatus

if TYPE_CHECKING:
    from bot.engine.mcp.client.session import McpSession, ServerTool

log = logging.getLogger(__name__)

CHECK_AFTER_SECONDS = 60.0
"""A server that was not used for longer is checked before its next use."""

_FIRST_RETRY_SECONDS = 5.0
_MAX_RETRY_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimeouts:
    """In seconds."""

    start: float = 30.0
    call: float = 120.0
    check: float = 10.0


NoticeListener = Callable[[RunNotice], Awaitable[None]]
SessionOpener = Callable[
    [InputHandler], AbstractAsyncContextManager[tuple["McpSession", asyncio.Event]]
]


async def ignore_notice(notice: RunNotice) -> None:
    """A `NoticeListener` for runs that show nothing."""


class _CallInProgress:
    """A call, during which its server may ask for input. Time of questions does not count."""

    def __init__(self, elicitor: Elicitor | None, seconds: float) -> None:
        self.limit = asyncio.timeout(seconds)
        self.declined = ""
        self._elicitor = elicitor
        self._seconds = seconds
        self._questions: set[asyncio.Task[dict[str, Any]]] = set()

    async def answer(self, server: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._elicitor is None or len(self._questions) >= _MAX_QUESTIONS:
            self.declined = "nobody"
            return {"action": "decline"}
        question = asyncio.create_task(self._elicitor.answer(server, request))
        self._questions.add(question)
        self.limit.reschedule(None)
        try:
            await asyncio.wait((question,))
            return question.result()
        except ElicitationDeclined as error:
            self.declined = str(error)
            return {"action": "decline"}
        except asyncio.CancelledError:
            if question.cancelled():
                return {"action": "cancel"}
            raise
        finally:
            question.cancel()
            self._questions.discard(question)
            if not self._questions and not self.limit.expired():
                self.limit.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def end(self) -> None:
        for each in self._questions:
            each.cancel()


class LiveMcpServer:
    """A server of one scope, running or not. `users` are the runs that use it now.

    A task of its own opens and closes the session, because the SDK wants both in one task."""

    def __init__(
        self,
        name: str,
        scope: McpScope,
        config: object,
        open_session: SessionOpener,
        *,
        mask: Callable[[str], str],
        timeouts: ServerTimeouts,
        now: Callable[[], float],
    ) -> None:
        """`now` counts seconds; `mask` removes the server's secrets. A server with another `config`
        must be another object."""
        self.name = name
        self.scope = scope
        self.config = config
        self.users = 0
        self.tools: tuple[ServerTool, ...] = ()
        self._open_session = open_session
        self._mask = mask
        self._timeouts = timeouts
        self._now = now
        self._lock = asyncio.Lock()
        self._owner: asyncio.Task[None] | None = None
        self._session: McpSession | None = None
        self._settled = asyncio.Event()
        self._stop = asyncio.Event()
        self._calls: list[_CallInProgress] = []
        self._calls_since_start = 0
        self._last_used = now()
        self._last_error = ""
        self._has_died = False
        self._is_suspect = False
        self._failures = 0
        self._retry_at = 0.0
        self._restarts = 0
        self._restart_note = ""

    @property
    def is_running(self) -> bool:
        return self._owner is not None and not self._owner.done()

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last use; 0 while it is used."""
        return 0.0 if self.users else self._now() - self._last_used

    def touch(self) -> None:
        self._last_used = self._now()

    async def ensure_running(self, notify: NoticeListener = ignore_notice) -> None:
        """Start it, or check it if it was not used for long. Raises McpError."""
        async with self._lock:
            if self._session is not None and self._is_check_due():
                await self._check(self._session)
            if self._session is None:
                await self._start(notify)
            self.touch()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        notify: NoticeListener,
        elicitor: Elicitor | None = None,
    ) -> str:
        """Return the result, or an error text for the model. A call is never repeated. Without an
        `elicitor` nobody is asked what the server wants to know."""
        try:
            await self.ensure_running(notify)
        except McpError as error:
            return self._error_text(str(error))
        session = self._session
        if session is None:
            return self._error_text("it has ended")
        call = _CallInProgress(elicitor, self._timeouts.call)
        self._calls.append(call)
        self._calls_since_start += 1
        try:
            async with call.limit:
                text = await session.call_tool(tool, arguments)
        except TimeoutError:
            self._is_suspect = True
            self._last_error = f"no answer within {self._timeouts.call:g} s"
            return self._error_text(f"it gave {self._last_error}; {_UNSURE}")
        except McpError as error:
            if not error.ended:
                return self._error_text(str(error))
            self._retire(session, str(error))
            return self._error_text(f"{error}; {_UNSURE}")
        finally:
            self._calls.remove(call)
            call.end()
            self.touch()
            if call.declined:
                await notify(self._notice(f"input_{call.declined}"))
        self._failures = 0
        if not text.startswith(ERROR_PREFIX):
            note, self._restart_note = self._restart_note, ""
            text = f"{note}{text}"
        return f"{text}\n{_DECLINED}" if call.declined else text

    async def close(self, *, forgive: bool = False) -> None:
        """Stop it; the next use starts it again. `forgive` forgets earlier failures."""
        owner = self._owner
        if owner is not None and not owner.done():
            if self._settled.is_set():
                self._session = None
                self._stop.set()
            else:
                owner.cancel()
            await asyncio.wait((owner,))
        if forgive:
            self._failures, self._retry_at, self._last_error, self._has_died = 0, 0.0, "", False

    def describe(self) -> McpServerStatus:
        scope = self.scope
        return McpServerStatus(
            server=self.name,
            state=self._state,
            person_id=scope.person,
            chat_id=scope.chat,
            task_id=scope.task,
            persona=scope.persona,
            tools=tuple(each.name for each in self.tools),
            error=self._last_error,
            restarts=self._restarts,
        )

    @property
    def _state(self) -> McpServerState:
        if self._session is not None:
            return McpServerState.BUSY if self._calls else McpServerState.READY
        if self.is_running and not self._settled.is_set():
            return McpServerState.STARTING
        return McpServerState.FAILED if self._failures else McpServerState.STOPPED

    def _is_check_due(self) -> bool:
        """A busy server is not checked: many answer one request at a time."""
        idle = self._now() - self._last_used
        return not self._calls and (self._is_suspect or idle > CHECK_AFTER_SECONDS)

    async def _check(self, session: McpSession) -> None:
        """List the tools, which shows both its health and what it offers now."""
        self._is_suspect = False
        try:
            async with asyncio.timeout(self._timeouts.check):
                self.tools = await session.list_tools()
        except TimeoutError:
            self._retire(session, f"it did not answer a check within {self._timeouts.check:g} s")
        except McpError as error:
            self._retire(session, str(error))

    async def _start(self, notify: NoticeListener) -> None:
        if self._owner is not None and self._settled.is_set():
            await asyncio.wait((self._owner,))
            self._owner = None
        died = self._has_died
        if self._owner is None:
            wait = self._retry_at - self._now()
            if wait > 0:
                raise McpError(f"{self._last_error}; next try in {wait:.0f} s at the earliest")
            await notify(self._notice("starting", passing=True))
            self._settled.clear()
            self._stop.clear()
            self._owner = asyncio.create_task(self._own(), name=f"mcp server {self.name}")
        await self._settled.wait()
        if self._session is None:
            raise McpError(self._last_error or "it was stopped")
        self._has_died = False
        if died:
            self._restarts += 1
        await notify(self._notice("restarted") if died else self._notice("started", passing=True))

    def _notice(self, what: str, *, passing: bool = False) -> RunNotice:
        facts = {"server": self.name, "detail": self._last_error}
        return RunNotice(key=f"mcp.{what}", facts=facts, passing=passing)

    async def _own(self) -> None:
        """Hold the session open until it ends or is to be closed."""
        try:
            async with AsyncExitStack() as stack:
                opened = await self._open(stack)
                if opened is not None:
                    session, ended = opened
                    self._started(session)
                    await _wait_for_any(self._stop, ended)
                    if not self._stop.is_set():
                        self._retire(session, session.end_reason)
        except Exception as error:  # whatever the SDK meets in one server must not stop others
            log.exception("MCP server %s failed", self.name)
            self._record_failure(type(error).__name__)
            self._has_died |= self._session is not None
        finally:
            self._session = None
            self._settled.set()

    async def _open(self, stack: AsyncExitStack) -> tuple[McpSession, asyncio.Event] | None:
        """None if it could not be started. Inside the stack, which would wrap the errors."""
        try:
            async with asyncio.timeout(self._timeouts.start):
                session, ended = await stack.enter_async_context(self._open_session(self._answer))
                await session.initialize()
                self.tools = await session.list_tools()
        except TimeoutError:
            self._record_failure(f"it gave no answer within {self._timeouts.start:g} s")
        except (McpError, OSError) as error:
            self._record_failure(str(error))
        else:
            return session, ended
        return None

    async def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask whoever made the latest call; all runs of a scope are of the same person and chat."""
        if not self._calls:
            return {"action": "decline"}
        return await self._calls[-1].answer(self.name, request)

    def _started(self, session: McpSession) -> None:
        if self._calls_since_start:
            self._restart_note = _RESTARTED.format(server=self.name)
        self._calls_since_start = 0
        self._session = session
        self._settled.set()

    def _retire(self, session: McpSession, why: str) -> None:
        """Use this session no more; its owner closes it."""
        if self._session is session:
            self._session = None
            self._has_died = True
            self._record_failure(why)
            self._stop.set()

    def _record_failure(self, why: str) -> None:
        self._last_error = self._mask(why)
        self._failures += 1
        if self._failures > 1:
            wait = _FIRST_RETRY_SECONDS * 2 ** min(self._failures - 2, 10)
            self._retry_at = self._now() + min(wait, _MAX_RETRY_SECONDS)

    def _error_text(self, why: str) -> str:
        return f"{ERROR_PREFIX}the MCP server {self.name}: {why}"


_MAX_QUESTIONS = 1
"""At the same time, in one call."""

_DECLINED = (
    "[the server asked the person for input during this call; it was declined without asking,"
    " because it asked for a secret, for too much, or where nobody can be asked]"
)
_UNSURE = "the call may have taken effect and was not repeated"
_RESTARTED = (
    "[the MCP server {server} was started again since its last call:"
    " what it held in memory is gone]\n"
)


async def _wait_for_any(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(each.wait()) for each in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
