"""`shiftboss` with a death foreseen: run as a file, it starts the real program, unchanged on
disk, and dies by SIGKILL at one exact point of its life.

DEADLY_POINTS are the points it may die at, the first that comes: `KIND:WHEN:N` is before or after
the N-th `commit`, platform `call`, `file` step or migration `statement` of this process, or the
N-th with a label: `recovery.recover` (the function that opened the transaction),
`checkpoint.StepEnded` (the event, where that is a task's checkpoint),
`task.pending>running` (a transition that the commit makes), `sendMessage` (what was called),
`file.rename` (a step of exchanging a file of memories). DEADLY_WITNESS is a file to which every
point passed is appended; it is written past all buffers, and so survives the death of the writer.
DEADLY_CLOCK is by how many hours the clock goes wrong; DEADLY_CLOCK_FILE says so at any time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

# Not from the folder of this file, but from the tree that it is part of.
sys.path[0] = str(Path(__file__).parents[2])

from tests.chaos.memory.crash_points import arm_files, arm_model_calls, follow_clock_file  # noqa: E402 - as above

_IGNORED_CALLS = (
    "getUpdates",
    "getMe",
    "deleteWebhook",
    "setMyCommands",
    "setChatMenuButton",
    "/bot/v3/info",
)
_MIN_PATH_PARTS = 3
_SKIPPED_FILES = ("contextlib.py", "crash_launcher.py")
# Wrappers around the door of the store: whose errand it is, their callers tell.
_WRITE_WRAPPERS = ("_commit", "_commit_answer")
_CHECKPOINT = "_commit_once"


class CrashSchedule:
    """Counts the points passed and dies at the one that is written."""

    def __init__(self, points: str, witness: str) -> None:
        self._points = set(points.split())
        self._witness = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._passed: Counter[str] = Counter()

    def announce(
        self, kind: str, label: str, moves: Sequence[tuple[str, str]] = ()
    ) -> Sequence[str]:
        """Something is about to happen; its names: by kind, by label, by what changes."""
        names = []
        for name in (kind, label, *dict.fromkeys(move for move, _ in moves)):
            self._passed[name] += 1
            names.append(f"{name}:{self._passed[name]}")
        self.record(f"{kind} {self._passed[kind]} {label}")
        return names

    def crash_if_due(self, when: str, names: Sequence[str]) -> None:
        points = (f"{which}:{when}:{n}" for which, _, n in (name.rpartition(":") for name in names))
        if died := [point for point in points if point in self._points]:
            # One death for everything that this commit changes.
            for point in died:
                self.record(f"died {point}")
            os.kill(os.getpid(), signal.SIGKILL)

    def record(self, line: str) -> None:
        os.write(self._witness, f"{line}\n".encode())


def arm_commits(fate: CrashSchedule) -> None:
    from sqlalchemy import text

    from storage.db import Database
    from tests.chaos.transitions import STATE_QUERY, diff_states, read_states

    written = Database.write
    look = text(STATE_QUERY)

    @asynccontextmanager
    async def write(self: Database) -> AsyncGenerator[Any, None]:
        label = _caller(sys._getframe())
        async with written(self) as transaction:
            before = read_states((await transaction.execute(look)).all())
            yield transaction
            moves = diff_states(before, read_states((await transaction.execute(look)).all()))
            names = fate.announce("commit", label, moves)
            fate.crash_if_due("before", names)
        for move, name in moves:
            fate.record(f"moved {move} {name}")
        fate.crash_if_due("after", names)

    Database.write = write  # type: ignore[method-assign]  # the point of this file


def arm_statements(fate: CrashSchedule) -> None:
    """Only the migration uses a synchronous connection of its own."""
    from sqlalchemy import Engine, event

    def before(connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not connection.dialect.is_async:
            fate.crash_if_due(
                "before", fate.announce("statement", " ".join(statement.split())[:60])
            )

    event.listen(Engine, "before_cursor_execute", before)


def arm_calls(fate: CrashSchedule) -> None:
    """Between the note that a letter is tried, the platform, and the note that it is shown."""

    async def around(label: str, work: Awaitable[Any]) -> Any:
        names = fate.announce("call", label)
        fate.crash_if_due("before", names)
        answer = await work
        fate.crash_if_due("after", names)
        return answer

    # Only what the program would load anyway: a telling starts it dozens of times.
    if os.environ.get("TELEGRAM_BOT_TOKEN"):
        _arm_telegram(around)
    elif os.environ.get("FEISHU_APP_ID"):
        _arm_feishu(around)
    else:
        _arm_web(around)
    if os.environ.get("ANTHROPIC_API_KEY"):
        _arm_model(around)
        arm_model_calls(around)


def _arm_telegram(around: Callable[[str, Awaitable[Any]], Awaitable[Any]]) -> None:
    from telegram.request import HTTPXRequest

    asked = HTTPXRequest.do_request

    async def do_request(self: HTTPXRequest, url: str, *args: Any, **kwargs: Any) -> Any:
        method = "file" if "/file/" in url else url.rpartition("/")[2]
        work = asked(self, url, *args, **kwargs)
        return await (work if method in _IGNORED_CALLS else around(method, work))

    HTTPXRequest.do_request = do_request  # type: ignore[method-assign]  # the point of this file


def _arm_feishu(around: Callable[[str, Awaitable[Any]], Awaitable[Any]]) -> None:
    from bot.transports.feishu.api import FeishuApi

    called = FeishuApi.call

    async def call(self: FeishuApi, method: str, path: str, **kwargs: Any) -> Any:
        parts = path.split("/")
        label = f"{method}/{parts[3]}" if len(parts) > _MIN_PATH_PARTS else path
        work = called(self, method, path, **kwargs)
        return await (work if label in _IGNORED_CALLS else around(label, work))

    FeishuApi.call = call  # type: ignore[method-assign]  # as above


def _arm_web(around: Callable[[str, Awaitable[Any]], Awaitable[Any]]) -> None:
    from bot.transports.web.transport import WebTransport

    delivered = WebTransport.deliver

    async def deliver(self: WebTransport, message: Any) -> Any:
        return await around("page", delivered(self, message))

    WebTransport.deliver = deliver  # type: ignore[method-assign]  # as above


def _arm_model(around: Callable[[str, Awaitable[Any]], Awaitable[Any]]) -> None:
    from httpx2 import AsyncClient

    sent = AsyncClient.send

    async def send(self: AsyncClient, *args: Any, **kwargs: Any) -> Any:
        return await around("model", sent(self, *args, **kwargs))

    AsyncClient.send = send  # type: ignore[method-assign]  # as above


def arm_steps(fate: CrashSchedule) -> None:
    """Nothing dies here; what the worker was really asked to do is written down."""
    from bot.engine.agent.model_gateway import ModelGateway

    asked = ModelGateway.call_model

    async def call_model(self: ModelGateway, request: Any, *args: Any, **kwargs: Any) -> Any:
        title = request.facts.get("step", {}).get("title", "")
        fate.record(f"asked {request.purpose} {request.account.task or '-'} {title}")
        return await asked(self, request, *args, **kwargs)

    ModelGateway.call_model = call_model  # type: ignore[method-assign]  # as above


def arm_arrivals(fate: CrashSchedule) -> None:
    """Nothing dies here either; which arrival is about to be handled is written down."""
    from storage.messages.inbox import InboxRepo

    begun = InboxRepo.count_attempt

    async def begin(self: InboxRepo, inbox_id: Any) -> int:
        fate.record(f"begins {inbox_id}")
        return await begun(self, inbox_id)

    InboxRepo.count_attempt = begin  # type: ignore[method-assign]  # as above


def shorten_delays() -> None:
    """No platform counts here: a telling shall take seconds, and be dense with points."""
    from bot.engine.workflow import error_policy
    from bot.transports import inbox
    from bot.transports.rate_limits import CHANNEL_LIMITS, ChannelLimits

    assert isinstance(CHANNEL_LIMITS, dict)
    for channel in CHANNEL_LIMITS:
        CHANNEL_LIMITS[channel] = ChannelLimits()
    error_policy._MAX_DELAY = 0.1
    # Lives are short here by design.
    inbox.MAX_RETRY_DELAY = 0.1


def set_clock(hours: float) -> None:
    """The machine's clock was wrong before, or is wrong now."""
    from datetime import UTC, datetime, timedelta

    from bot.transports.ports import SystemClock

    def now(self: SystemClock) -> datetime:
        return datetime.now(UTC) + timedelta(hours=hours)

    SystemClock.now = now  # type: ignore[method-assign]  # as above


def _caller(frame: FrameType | None) -> str:
    """`file.function` of whoever opened the transaction; `file.Event` of a task's checkpoint, whose
    one function stores every kind of event."""
    while frame is not None and (
        frame.f_code.co_filename.endswith(_SKIPPED_FILES) or frame.f_code.co_name in _WRITE_WRAPPERS
    ):
        frame = frame.f_back
    if frame is None:
        return "?"
    event = frame.f_locals.get("event") if frame.f_code.co_name == _CHECKPOINT else None
    name = frame.f_code.co_name if event is None else type(event).__name__
    return f"{Path(frame.f_code.co_filename).stem}.{name}"


def main() -> None:
    fate = CrashSchedule(os.environ.get("DEADLY_POINTS", ""), os.environ["DEADLY_WITNESS"])
    fate.record("a life")
    arm_statements(fate)
    arm_commits(fate)
    arm_calls(fate)
    arm_steps(fate)
    arm_arrivals(fate)
    arm_files(fate)
    shorten_delays()
    if hours := os.environ.get("DEADLY_CLOCK"):
        set_clock(float(hours))
    if told_in := os.environ.get("DEADLY_CLOCK_FILE"):
        follow_clock_file(Path(told_in))
    from bot.__main__ import main as shiftboss

    shiftboss()


if __name__ == "__main__":
    main()
