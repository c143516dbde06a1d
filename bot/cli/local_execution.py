"""Executes shell commands and MCP messages: through the running Shiftboss, or in this process if
none is running."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener
from uuid import uuid4

from bot.app.lifecycle import StartFailure, home_unusable
from bot.app.running_program import RunningProgram, find_running_program
from bot.config.settings import Settings
from bot.engine.mcp.server import protocol
from storage.data_directory import DataDirectoryLock
from storage.errors import DataDirectoryInUse, DataDirectoryUnusable

_REQUEST_SECONDS = 120.0
_NOT_OUR_SERVER = frozenset({400, 401, 403, 404})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """Result of a command, as text and as JSON values if available. `running` is False if the
    command was executed in this process."""

    text: str
    good: bool
    data: Any = None
    running: bool = True


class ProgramUnreachable(Exception):
    """No Shiftboss answers at the address, or another one does. The text says how."""


class CommandRefused(Exception):
    """Shiftboss refused the request. The text is its answer."""


def send_command(
    running: RunningProgram, text: str, *, id: str = "", buttons: bool = True, quiet: bool = False
) -> CommandAnswer:
    """Send a message and wait for the answer. A repeated `id` is the same message. `quiet` hides it
    from the web chat."""
    body = json.dumps({"text": text, "id": id, "buttons": buttons, "quiet": quiet}).encode()
    told = post_json(running, "/api/say", body, language=_find_terminal_language())
    shown = "\n\n".join(str(card["text"]) for card in told["cards"])
    return CommandAnswer(text=shown, good=bool(told["good"]), data=told.get("data"))


def post_json(
    running: RunningProgram,
    path: str,
    body: bytes | None,
    *,
    wait_seconds: float = _REQUEST_SECONDS,
    method: str | None = None,
    language: Language | None = None,
) -> Any:
    """The answer as JSON, None if empty. Without a body it is a GET, unless a method is named.
    Without a language, texts are in that of the token's person. Raises ProgramUnreachable and
    CommandRefused."""
    headers = {"Authorization": f"Bearer {running.token}", "Content-Type": "application/json"}
    request = Request(  # noqa: S310 - the address is our own, written by the running program
        f"{running.url}{path}",
        data=body,
        headers=headers | ({"Accept-Language": language} if language else {}),
        method=method,
    )
    try:
        # Without the environment's proxy, since the address is local.
        with build_opener(ProxyHandler({})).open(request, timeout=wait_seconds) as response:
            said = response.read()
            return json.loads(said) if said else None
    except HTTPError as error:
        said = error.read().decode(errors="replace")[:500]
        if error.code in _NOT_OUR_SERVER:
            raise ProgramUnreachable(f"{running.url} answered {error.code}: {said}") from error
        raise CommandRefused(_read_refusal(error, said)) from error
    except TimeoutError as error:
        raise CommandRefused(
            f"it took longer than {wait_seconds:g} s; see `shiftboss task ls`"
        ) from error
    except (URLError, OSError, HTTPException, ValueError) as error:
        raise ProgramUnreachable(f"no answer from {running.url} ({error})") from error


def join_refusal(title: str, hint: str) -> str:
    """Both in one line. A title has no full stop, so it gets that of the hint's language."""
    return f"{title}。{hint}" if hint.endswith("。") else f"{title}. {hint}"


def _read_refusal(error: HTTPError, said: str) -> str:
    if error.headers.get_content_type() == "application/problem+json":
        with suppress(ValueError, KeyError):
            problem = json.loads(said)
            return join_refusal(problem["title"], problem["detail"])
    return f"it answered {error.code}: {said}"


if TYPE_CHECKING:
    from bot.app.container import Container
    from handlers.request import Reply
    from storage.records.messages import InboxRow
    from storage.records.people import Language

_STARTUP_SECONDS = 5.0
_HEALTH_SECONDS = 5.0
_COMMAND_SECONDS = 60.0
"""Time limit for another command holding the data directory."""
_RETRY_INTERVAL = 0.1


_T = TypeVar("_T")


_NOT_RUNNING = (
    "Shiftboss is not running, so this cannot be done. Start it with `shiftboss start`, then "
    "send this again"
)


def execute_command(settings: Settings, text: str, *, needs_program: bool = False) -> CommandAnswer:
    """Execute a command as the local owner; one that `needs_program` is refused without a running
    Shiftboss. Blocking. Raises StartFailure and CommandRefused."""
    message_id = uuid4().hex

    def there(running: RunningProgram) -> CommandAnswer:
        return send_command(running, text, id=message_id, buttons=False, quiet=True)

    def here() -> CommandAnswer:
        if needs_program:
            raise CommandRefused(_NOT_RUNNING)
        # What the doctor meets is in its answer.
        is_doctor = text.partition(" ")[0] == "/doctor"
        return run_here(settings, lambda: answer_command(settings, text), is_quiet=is_doctor)

    return run_remote_or_local(settings, there, here)


def run_remote_or_local(
    settings: Settings, remote: Callable[[RunningProgram], _T], local: Callable[[], _T]
) -> _T:
    """Call `remote` if Shiftboss is running (it raises ProgramUnreachable if there is no answer),
    otherwise `local` while holding the data directory. Blocking. Raises StartFailure.

    If another command or a starting Shiftboss holds the directory, it is waited for.
    """
    if (front := _find_front(settings)) is not None:
        try:
            return remote(front)
        except ProgramUnreachable as error:
            # It may have begun with the command, so nothing else must do it too.
            raise StartFailure(str(error)) from error
    queue = _HomeWait()
    while True:
        try:
            home = DataDirectoryLock(settings.home, is_temporary=True)
        except DataDirectoryInUse as error:
            queue.note_busy(error)
            is_command = error.is_temporary
        except DataDirectoryUnusable as error:
            raise home_unusable(error) from error
        else:
            with home:
                return local()
        try:
            return remote(_find_holder_address(settings, is_command=is_command))
        except (ProgramUnreachable, StartFailure) as error:
            if queue.is_over:
                raise StartFailure(
                    f"another Shiftboss (process {queue.holder_pid}) holds {settings.home} and "
                    "takes no"
                    " commands: wait until it is done, or stop it and start `shiftboss run`"
                ) from error
        time.sleep(_RETRY_INTERVAL)


def _find_holder_address(settings: Settings, *, is_command: bool) -> RunningProgram:
    """While another command holds the directory, the stored address is of a program that has gone:
    who listens there now must not get the token."""
    if is_command:
        raise StartFailure(f"another command holds {settings.home}")
    return find_running_program(settings)


def _find_front(settings: Settings) -> RunningProgram | None:
    """A front that answers where the store is shared: it does not hold the data directory."""
    if not settings.shares_store:
        return None
    try:
        front = find_running_program(settings)
        post_json(front, "/healthz", None, wait_seconds=_HEALTH_SECONDS)
    except (ProgramUnreachable, CommandRefused, StartFailure):
        return None
    return front


class _HomeWait:
    """Limits the wait for the process that holds the data directory."""

    def __init__(self) -> None:
        self.holder_pid = ""
        self._deadline = 0.0

    def note_busy(self, busy: DataDirectoryInUse) -> None:
        if busy.pid != self.holder_pid:
            self.holder_pid = busy.pid
            self._deadline = time.monotonic() + (
                _COMMAND_SECONDS if busy.is_temporary else _STARTUP_SECONDS
            )

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline


def run_here(
    settings: Settings, work: Callable[[], Coroutine[Any, Any, _T]], *, is_quiet: bool = False
) -> _T:
    """For the holder of the data directory. Blocking. Logs warnings, or errors only where the
    answer tells what went wrong. Raises StartFailure."""
    from bot.app.preflight import explain_start_failures, prepare_home

    with explain_start_failures(settings):
        # Once per process, which may answer many messages.
        if settings.home not in _PREPARED_HOMES:
            is_quiet = is_quiet or settings.log_level == "ERROR"
            prepare_home(settings, "ERROR" if is_quiet else "WARNING")
            _PREPARED_HOMES.add(settings.home)
        return asyncio.run(work())


def _find_terminal_language() -> Language | None:
    """Counts until the person has one."""
    # Imported here so that a hook stays fast.
    from bot.cli.terminal_language import find_terminal_language

    return find_terminal_language(os.environ)


async def answer_command(settings: Settings, text: str) -> CommandAnswer:
    """Handle one message of the local owner, without channels and dispatcher. Its effects are
    stored for the next `shiftboss run`. The caller must hold the data directory and have called
    `prepare_home`."""
    # Imported only if no running Shiftboss can execute the command.
    from cards.render import text as plain

    if text == "/status":
        # Asked often, by scripts too; the whole engine takes a second of CPU to load.
        from bot.app.status import read_status

        card, data = await read_status(settings, _find_terminal_language())
        shown = plain.render(card, include_controls=False).text
        return CommandAnswer(text=shown, good=True, data=data, running=False)

    from bot.app.container import open_container

    async with open_container(settings) as core:
        reply = await _handle(core, text)
    shown = "" if reply.card is None else plain.render(reply.card, include_controls=False).text
    return CommandAnswer(text=shown, good=reply.good, data=reply.data, running=False)


async def _handle(core: Container, text: str) -> Reply:
    from handlers.request import Reply

    row = await _store_message(core, text)
    return Reply() if row is None else await core.router.handle(row, ())


async def _store_message(core: Container, text: str) -> InboxRow | None:
    """Stored as handled: the person sees the result and can repeat the command."""
    from bot.transports.sanitize import sanitize_incoming
    from bot.transports.web.ports import LOCAL_PLACE, LOCAL_SENDER
    from storage.records.messages import InboxState, IncomingMessage

    now = core.clock.now()
    incoming = sanitize_incoming(
        IncomingMessage(
            place=LOCAL_PLACE,
            sender=replace(LOCAL_SENDER, language=_find_terminal_language() or ""),
            message_id=uuid4().hex,
            text=text,
            addressed=True,
            sent_at=now,
            quiet=True,
        )
    )
    async with core.repositories.db.write() as tx:
        chat = await core.repositories.chats.get_or_create(tx, incoming.place, incoming.sender, now)
        return await core.repositories.inbox.accept(
            tx,
            incoming,
            dedupe=uuid4().hex,
            chat_id=chat.id,
            now=now,
            state=InboxState.HANDLED,
            outcome="shell",
            attempts=1,
        )


MCP_PATH = "/mcp"
_PREPARED_HOMES: set[Path] = set()


_LocalAnswer: TypeAlias = Callable[[Settings, Any, Sequence[str]], Coroutine[Any, Any, Any]]


def answer_message(settings: Settings, message: Any, scopes: Sequence[str]) -> Any:
    """Answer one JSON-RPC message. Never raises for client input. Blocking."""
    quick = protocol.answer_without_tools(message)
    if quick is not None:
        return quick
    return _answer_anywhere(settings, message, scopes, answer_mcp_message)


def _answer_anywhere(
    settings: Settings, message: Any, scopes: Sequence[str], answer_locally: _LocalAnswer
) -> Any:
    path = f"{MCP_PATH}?{urlencode([('scope', each) for each in scopes])}"
    body = protocol.serialize_message(message)

    def there(running: RunningProgram) -> Any:
        return post_json(running, path, body)

    def here() -> Any:
        return run_here(settings, lambda: answer_locally(settings, message, scopes))

    try:
        return run_remote_or_local(settings, there, here)
    except (StartFailure, ProgramUnreachable, CommandRefused) as failed:
        return protocol.error_message(message["id"], protocol.INTERNAL_ERROR, str(failed))


async def answer_mcp_message(settings: Settings, message: Any, scopes: Sequence[str]) -> Any:
    """The caller must hold the data directory and have called `prepare_home`."""
    from bot.app.container import open_container
    from bot.engine.mcp.server.memory_access import ForbiddenScope

    async with open_container(settings) as core:
        try:
            return await core.memory_server.answer(message, scopes)
        except ForbiddenScope as wrong:
            return protocol.error_message(message["id"], protocol.INVALID_PARAMS, str(wrong))


def answer_hook(settings: Settings, hook: str, text: str, scopes: Sequence[str]) -> str:
    """Text for a coding CLI; empty if there is nothing to say or no data yet."""
    if not settings.home.is_dir():
        return ""
    params = {"hook": hook, "text": text}
    message = {"jsonrpc": "2.0", "id": 1, "method": protocol.HOOK_METHOD, "params": params}
    told = _answer_anywhere(settings, message, scopes, _answer_hook_locally)
    return str(told.get("result", {}).get("text", ""))


async def _answer_hook_locally(settings: Settings, message: Any, scopes: Sequence[str]) -> Any:
    # Imported only if no running Shiftboss can answer.
    from bot.app.hook_memory import answer_hook as answer

    return await answer(settings, message, scopes)


_CHUNK_BYTES = 65_536


def serve_stdio(answer: Callable[[Any], Any], source: BinaryIO, sink: BinaryIO) -> None:
    """Serve until either stream is closed. Blocking."""
    try:
        while line := source.readline(protocol.MAX_MESSAGE_BYTES):
            told = _answer_line(answer, line, source)
            if told is not protocol.NO_ANSWER:
                sink.write(protocol.serialize_message(told) + b"\n")
                sink.flush()
    except (BrokenPipeError, ConnectionError):
        return  # the client has gone


def _answer_line(answer: Callable[[Any], Any], line: bytes, source: BinaryIO) -> Any:
    if len(line) == protocol.MAX_MESSAGE_BYTES and not line.endswith(b"\n"):
        while (rest := source.readline(_CHUNK_BYTES)) and not rest.endswith(b"\n"):
            pass
        return protocol.error_message(
            None,
            protocol.INVALID_REQUEST,
            f"no more than {protocol.MAX_MESSAGE_BYTES} bytes a message",
        )
    try:
        message = protocol.parse_message(line)
    except ValueError:
        return protocol.error_message(None, protocol.PARSE_ERROR, "not one JSON message a line")
    return message if message is protocol.NO_ANSWER else answer(message)
