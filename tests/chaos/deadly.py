"""`shiftboss` with a death foreseen: run as a file, it starts the real program, unchanged on
disk, and dies by SIGKILL at one exact point of its life.

DEADLY_POINTS are the points it may die at, the first that comes: `KIND:WHEN:N` is before or after
the N-th `commit`, platform `call`, `file` step or migration `statement` of this process, or the
N-th with a label: `boundary.settle` (the function that opened the transaction),
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

from tests.chaos.memory.arms import arm_files, arm_thoughts, make_time_fly  # noqa: E402 - as above

_UNCOUNTED = (
    "getUpdates",
    "getMe",
    "deleteWebhook",
    "setMyCommands",
    "setChatMenuButton",
    "/bot/v3/info",
)
_NAMED = 3
_PASSED_THROUGH = ("contextlib.py", "deadly.py")
# Wrappers around the door of the store: whose errand it is, their callers tell.
_DOORS = ("_write",)


class Fate:
    """Counts the points passed and dies at the one that is written."""

    def __init__(self, points: str, witness: str) -> None:
        self._points = set(points.split())
        self._witness = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._passed: Counter[str] = Counter()

    def begin(self, kind: str, label: str, moves: Sequence[tuple[str, str]] = ()) -> Sequence[str]:
        """Something is about to happen; its names: by kind, by label, by what changes."""
        names = []
        for name in (kind, label, *dict.fromkeys(move for move, _ in moves)):
            self._passed[name] += 1
            names.append(f"{name}:{self._passed[name]}")
        self.note(f"{kind} {self._passed[kind]} {label}")
        return names

    def meet(self, when: str, names: Sequence[str]) -> None:
        points = (f"{which}:{when}:{n}" for which, _, n in (name.rpartition(":") for name in names))
        if died := [point for point in points if point in self._points]:
            # One death for everything that this commit changes.
            for point in died:
                self.note(f"died {point}")
            os.kill(os.getpid(), signal.SIGKILL)

    def note(self, line: str) -> None:
        os.write(self._witness, f"{line}\n".encode())


def arm_commits(fate: Fate) -> None:
    from sqlalchemy import text

    from storage.db import Database
    from tests.chaos.moves import SEEN, between, things

    written = Database.write
    look = text(SEEN)

    @asynccontextmanager
    async def write(self: Database) -> AsyncGenerator[Any, None]:
        label = _caller(sys._getframe())
        async with written(self) as transaction:
            before = things((await transaction.execute(look)).all())
            yield transaction
            moves = between(before, things((await transaction.execute(look)).all()))
            names = fate.begin("commit", label, moves)
            fate.meet("before", names)
        for move, name in moves:
            fate.note(f"moved {move} {name}")
        fate.meet("after", names)

    Database.write = write  # type: ignore[method-assign]  # the point of this file


def arm_statements(fate: Fate) -> None:
    """Only the migration uses a synchronous connection of its own."""
    from sqlalchemy import Engine, event

    def before(connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if connection.dialect.driver == "pysqlite":
            fate.meet("before", fate.begin("statement", " ".join(statement.split())[:60]))

    event.listen(Engine, "before_cursor_execute", before)


def arm_calls(fate: Fate) -> None:
    """Between the note that a letter is tried, the platform, and the note that it is shown."""

    async def around(label: str, work: Awaitable[Any]) -> Any:
        names = fate.begin("call", label)
        fate.meet("before", names)
        answer = await work
        fate.meet("after", names)
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
        arm_thoughts(around)


def _arm_telegram(around: Callable[[str, Awaitable[Any]], Awaitable[Any]]) -> None:
    from telegram.request import HTTPXRequest

    asked = HTTPXRequest.do_request

    async def do_request(self: HTTPXRequest, url: str, *args: Any, **kwargs: Any) -> Any:
        method = "file" if "/file/" in url else url.rpartition("/")[2]
        work = asked(self, url, *args, **kwargs)
        return await (work if method in _UNCOUNTED else around(method, work))

    HTTPXRequest.do_request = do_request  # type: ignore[method-assign]  # the point of this file


def _arm_feishu(around: Callable[[str, Awaitable[Any]], Awaitable[Any]]) -> None:
    from bot.transports.feishu.api import FeishuApi

    called = FeishuApi.call

    async def call(self: FeishuApi, method: str, path: str, **kwargs: Any) -> Any:
        parts = path.split("/")
        label = f"{method}/{parts[3]}" if len(parts) > _NAMED else path
        work = called(self, method, path, **kwargs)
        return await (work if label in _UNCOUNTED else around(label, work))

    FeishuApi.call = call  # type: ignore[method-assign]  # as above


def _arm_web(around: Callable[[str, Awaitable[Any]], Awaitable[Any]]) -> None:
    from bot.transports.web.transport import WebTransport

    delivered = WebTransport.deliver

    async def deliver(self: WebTransport, letter: Any) -> Any:
        return await around("page", delivered(self, letter))

    WebTransport.deliver = deliver  # type: ignore[method-assign]  # as above


def _arm_model(around: Callable[[str, Awaitable[Any]], Awaitable[Any]]) -> None:
    from httpx2 import AsyncClient

    sent = AsyncClient.send

    async def send(self: AsyncClient, *args: Any, **kwargs: Any) -> Any:
        return await around("model", sent(self, *args, **kwargs))

    AsyncClient.send = send  # type: ignore[method-assign]  # as above


def arm_steps(fate: Fate) -> None:
    """Nothing dies here; what the worker was really asked to do is written down."""
    from bot.engine.agent.desk import Desk

    asked = Desk.ask

    async def ask(self: Desk, ask: Any, *args: Any, **kwargs: Any) -> Any:
        title = ask.facts.get("step", {}).get("title", "")
        fate.note(f"asked {ask.purpose} {ask.account.task or '-'} {title}")
        return await asked(self, ask, *args, **kwargs)

    Desk.ask = ask  # type: ignore[method-assign]  # as above


def arm_arrivals(fate: Fate) -> None:
    """Nothing dies here either; which arrival is about to be handled is written down."""
    from storage.mail.inbox import Inbox

    begun = Inbox.begin

    async def begin(self: Inbox, inbox_id: Any) -> int:
        fate.note(f"begins {inbox_id}")
        return await begun(self, inbox_id)

    Inbox.begin = begin  # type: ignore[method-assign]  # as above


def make_haste() -> None:
    """No platform counts here: a telling shall take seconds, and be dense with points."""
    from bot.engine.workflow import verdict
    from bot.transports.pacing import PACES, ChannelPace

    assert isinstance(PACES, dict)
    for channel in PACES:
        PACES[channel] = ChannelPace()
    verdict._MOST_DELAY = 0.1


def set_clock(hours: float) -> None:
    """The machine's clock was wrong before, or is wrong now."""
    from datetime import UTC, datetime, timedelta

    from bot.transports.clock import SystemClock

    def now(self: SystemClock) -> datetime:
        return datetime.now(UTC) + timedelta(hours=hours)

    SystemClock.now = now  # type: ignore[method-assign]  # as above


def _caller(frame: FrameType | None) -> str:
    """`file.function` of whoever opened the transaction."""
    while frame is not None and (
        frame.f_code.co_filename.endswith(_PASSED_THROUGH) or frame.f_code.co_name in _DOORS
    ):
        frame = frame.f_back
    if frame is None:
        return "?"
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"


def main() -> None:
    fate = Fate(os.environ.get("DEADLY_POINTS", ""), os.environ["DEADLY_WITNESS"])
    fate.note("a life")
    arm_statements(fate)
    arm_commits(fate)
    arm_calls(fate)
    arm_steps(fate)
    arm_arrivals(fate)
    arm_files(fate)
    make_haste()
    if hours := os.environ.get("DEADLY_CLOCK"):
        set_clock(float(hours))
    if told_in := os.environ.get("DEADLY_CLOCK_FILE"):
        make_time_fly(Path(told_in))
    from bot.__main__ import main as shiftboss

    shiftboss()


if __name__ == "__main__":
    main()
