"""Where memory may die besides commits and platforms' calls: between the steps of exchanging a
file, and before and after what a model or a service for meanings is asked in silence."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tests.chaos.crash_launcher import CrashSchedule

Around: TypeAlias = Callable[[str, Awaitable[Any]], Awaitable[Any]]

_BY_FOLDER = ("link", "rename", "unlink")


def arm_files(fate: CrashSchedule) -> None:
    """Everything that changes a folder by its handle, as the files of memories do, and what is
    written out for people."""
    from storage.data_directory import ExportFile
    from storage.memory.markdown import folder

    def deadly(owner: Any, name: str, label: str, *, only: Callable[..., bool]) -> None:
        real = getattr(owner, name)

        @wraps(real)
        def step(*args: Any, **kwargs: Any) -> Any:
            if not only(*args, **kwargs):
                return real(*args, **kwargs)
            names = fate.announce("file", label)
            fate.crash_if_due("before", names)
            done = real(*args, **kwargs)
            fate.crash_if_due("after", names)
            return done

        setattr(owner, name, step)

    for name in _BY_FOLDER:
        deadly(os, name, f"file.{name}", only=_by_folder)
    deadly(folder, "exchange_files", "file.exchange", only=_always)
    deadly(ExportFile, "append_lines", "export.append_lines", only=_always)
    deadly(ExportFile, "commit", "export.commit", only=_always)
    deadly(Path, "rename", "file.aside", only=_always)


def arm_model_calls(around: Around) -> None:
    """The model calls of memory, by purpose."""
    from bot.engine.agent.background_calls import BackgroundModelCalls, SessionSummarizer
    from bot.engine.memory.embeddings import EmbeddingClient

    asked, written, embedded = (
        BackgroundModelCalls.ask,
        SessionSummarizer.write,
        EmbeddingClient.embed,
    )

    async def ask(self: BackgroundModelCalls, query: Any) -> Any:
        return await around(f"notes.{query.answer_type.__name__.lower()}", asked(self, query))

    async def write(
        self: SessionSummarizer, session: Any, system: str, prompt: str, max_tokens: int
    ) -> str:
        return str(await around("summary", written(self, session, system, prompt, max_tokens)))

    async def embed(self: EmbeddingClient, texts: Sequence[str]) -> Any:
        return await around("embed", embedded(self, texts))

    BackgroundModelCalls.ask = ask  # type: ignore[method-assign]  # the point of this file
    SessionSummarizer.write = write  # type: ignore[method-assign]  # as above
    EmbeddingClient.embed = embed  # type: ignore[method-assign]  # as above


def follow_clock_file(told_in: Path) -> None:
    """The clock goes by so many hours as the file says now, and memory is cared for at once."""
    from datetime import UTC, datetime, timedelta

    from bot.engine.memory import maintenance
    from bot.transports import inbox
    from bot.transports.ports import SystemClock
    from storage.messages.inbox import INBOX_RETENTION, InboxRepo

    async def nothing(self: InboxRepo, *, now: datetime, keep: timedelta = INBOX_RETENTION) -> int:
        return 0

    def now(self: SystemClock) -> datetime:
        hours = float(told_in.read_text()) if told_in.exists() else 0.0
        return datetime.now(UTC) + timedelta(hours=hours)

    SystemClock.now = now  # type: ignore[method-assign]  # as above
    maintenance._HOUR_SECONDS = 0.3
    # The platforms' own clocks stay behind.
    inbox.MAX_MESSAGE_AGE = timedelta(days=10_000)
    # What was said is counted in the end.
    InboxRepo.prune = nothing  # type: ignore[method-assign]  # as above


def _always(*_args: Any, **_kwargs: Any) -> bool:
    return True


def _by_folder(*_args: Any, **kwargs: Any) -> bool:
    return "dir_fd" in kwargs or "src_dir_fd" in kwargs
