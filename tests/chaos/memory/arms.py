"""Where memory may die besides commits and platforms' calls: between the steps of exchanging a
file, and before and after what a model or a service for meanings is asked in silence."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tests.chaos.deadly import Fate

Around: TypeAlias = Callable[[str, Awaitable[Any]], Awaitable[Any]]

_BY_FOLDER = ("link", "rename", "unlink")


def arm_files(fate: Fate) -> None:
    """Everything that changes a folder by its handle, as the files of memories do, and what is
    written out for people."""
    from bot.app.exports import ExportFile
    from storage.memory.files import folder

    def deadly(owner: Any, name: str, label: str, *, only: Callable[..., bool]) -> None:
        real = getattr(owner, name)

        @wraps(real)
        def step(*args: Any, **kwargs: Any) -> Any:
            if not only(*args, **kwargs):
                return real(*args, **kwargs)
            names = fate.begin("file", label)
            fate.meet("before", names)
            done = real(*args, **kwargs)
            fate.meet("after", names)
            return done

        setattr(owner, name, step)

    for name in _BY_FOLDER:
        deadly(os, name, f"file.{name}", only=_by_folder)
    deadly(folder, "exchange", "file.exchange", only=_always)
    deadly(ExportFile, "add", "export.add", only=_always)
    deadly(ExportFile, "put", "export.put", only=_always)
    deadly(Path, "rename", "file.aside", only=_always)


def arm_thoughts(around: Around) -> None:
    """What is asked on behalf of memory, by what it is asked for."""
    from bot.engine.agent.chat.summarising import Summariser
    from bot.engine.agent.remembering.silent import SilentDesk
    from bot.engine.memory.meaning.embedder import Embedder

    asked, written, embedded = SilentDesk.ask, Summariser.write, Embedder.embed

    async def ask(self: SilentDesk, wish: Any) -> Any:
        return await around(f"notes.{wish.form.__name__.lower()}", asked(self, wish))

    async def write(self: Summariser, session: Any, system: str, prompt: str, most: int) -> str:
        return str(await around("summary", written(self, session, system, prompt, most)))

    async def embed(self: Embedder, texts: Sequence[str]) -> Any:
        return await around("embed", embedded(self, texts))

    SilentDesk.ask = ask  # type: ignore[method-assign]  # the point of this file
    Summariser.write = write  # type: ignore[method-assign]  # as above
    Embedder.embed = embed  # type: ignore[method-assign]  # as above


def make_time_fly(told_in: Path) -> None:
    """The clock goes by so many hours as the file says now, and memory is cared for at once."""
    from datetime import UTC, datetime, timedelta

    from bot.engine.memory import care
    from bot.transports import intake
    from bot.transports.clock import SystemClock
    from storage.mail.inbox import Inbox

    async def nothing(self: Inbox, *, now: datetime) -> int:
        return 0

    def now(self: SystemClock) -> datetime:
        hours = float(told_in.read_text()) if told_in.exists() else 0.0
        return datetime.now(UTC) + timedelta(hours=hours)

    SystemClock.now = now  # type: ignore[method-assign]  # as above
    care._HOUR = 0.3
    # The platforms' own clocks stay behind.
    intake.TOO_OLD = timedelta(days=10_000)
    # What was said is counted in the end.
    Inbox.prune = nothing  # type: ignore[method-assign]  # as above


def _always(*_args: Any, **_kwargs: Any) -> bool:
    return True


def _by_folder(*_args: Any, **kwargs: Any) -> bool:
    return "dir_fd" in kwargs or "src_dir_fd" in kwargs
