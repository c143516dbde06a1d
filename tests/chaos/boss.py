"""What the Boss does in a telling, on whatever channel, and how it has to end.

An act waits for what the store says, never for time: the story is the same however often the
program dies on the way."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.fronts import File, Front, Name
from tests.chaos.store import rows
from tests.emulators.models.script import Asked, Reply

_LOOK_EVERY = 0.02
_FLAGS = re.compile(r"^(?:--?\w+ \w+ )+")
# A press on a card that is only about to show that all is decided is of no use.
_A_PRESS = 5.0
_WAITING = "SELECT id FROM approvals WHERE state = 'waiting' AND (detail LIKE ? OR title LIKE ?)"
_TALKED = """
SELECT 1 FROM tool_calls c JOIN outbox o ON o."key" = 'talk:' || c.id
WHERE c.title || c.detail LIKE ? AND o.state = 'shown'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boss:
    """`front` is where the Boss sits; `home` is only looked into, never touched."""

    front: Front
    home: Path

    async def until(self, sql: str, *values: str) -> Any:
        """Wait for a row, and give its first value."""
        while not (found := rows(self.home, sql, *values)):
            await asyncio.sleep(_LOOK_EVERY)
        return found[0][0]

    async def runs(self, text: str, *, status: str = "") -> str:
        """Order a task; its id when it has that status, or exists."""
        await self.front.says(f"/run {text}")
        title = f"%{_FLAGS.sub('', text)}%"
        task_id = str(await self.until("SELECT id FROM tasks WHERE instruction LIKE ?", title))
        if status:
            await self.is_now(task_id, status)
        return task_id

    async def is_now(self, task_id: str, *statuses: str) -> str:
        known = ",".join(f"'{status}'" for status in statuses)
        sql = f"SELECT status FROM tasks WHERE id = ? AND status IN ({known})"
        return str(await self.until(sql, task_id))

    async def decides(self, word: str, task_id: str = "", *, about: str) -> None:
        """Press that button on whatever asks about this, until its task, or the talk that asks,
        has gone on to its end. A worker that was cut off may ask once more."""
        while self._goes_on(task_id, about):
            asked = rows(self.home, _WAITING, f"%{about}%", f"%{about}%")
            if asked:
                await self.front.presses(word, about=about)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_A_PRESS):
                        await self.until(
                            "SELECT 1 FROM approvals WHERE id = ? AND state <> 'waiting'", *asked[0]
                        )
            await asyncio.sleep(_LOOK_EVERY)

    def _goes_on(self, task_id: str, about: str) -> bool:
        if task_id:
            ended = "SELECT 1 FROM tasks WHERE id = ? AND status = 'completed'"
            return not rows(self.home, ended, task_id)
        return not rows(self.home, _TALKED, f"%{about}%")

    async def orders(self, text: str, *, file: File | None = None) -> None:
        """A command, and its answer is there."""
        await self.front.says(text, file=file)
        await self.until(
            "SELECT id FROM inbox WHERE state <> 'new' AND json_extract(incoming, '$.text') = ?"
            " AND (SELECT count(*) FROM inbox WHERE state = 'new') = 0",
            text,
        )

    async def has(self, sql: str, *values: str) -> bool:
        return bool(rows(self.home, sql, *values))

    async def rests(self) -> None:
        """Before it looks again."""
        await asyncio.sleep(_LOOK_EVERY)

    def waits(self, hours: float) -> None:
        """The clock goes by that many hours more than it would, from the beginning on."""
        new = clock_of(self.home).with_suffix(".new")
        new.write_text(str(hours))
        new.replace(clock_of(self.home))


def clock_of(home: Path) -> Path:
    """Where stands by how many hours the clock is ahead."""
    return home.with_suffix(".clock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """`ends` says for each task, by words of its instruction, in which states it may end;
    `files` which files there are in the end and what is in them, nothing for anything; `moves`
    are the transitions that the story is told for. `mind` is the model, which answers by nothing
    but what it is asked, so that it says the same however often it is asked again; without one
    the offline worker does all. `also` are transitions of other stories that lead to some of this
    one's if it dies there, and `unsure` the files that may be missing where somebody was told.

    With `remembered`, which says what is wrong with what is remembered in the end, it is a story
    of memory; `begun` makes the home ready before it begins, and `service` is there for all its
    lives: it gives settings."""

    name: str
    live: Callable[[Boss], Awaitable[None]]
    ends: Mapping[str, tuple[str, ...]]
    files: Mapping[str, str]
    moves: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    mind: Callable[[Asked], Reply] | None = None
    also: tuple[str, ...] = ()
    unsure: frozenset[str] = frozenset()
    remembered: Callable[[Path], Iterable[str]] | None = None
    begun: Callable[[Path], None] | None = None
    service: Callable[[], AbstractAsyncContextManager[Mapping[str, str]]] | None = None

    def moves_on(self, name: Name) -> tuple[str, ...]:
        return tuple(move for move in self.moves if ONLY_ON.get(move, name) == name)

    def deaths_on(self, name: Name) -> tuple[str, ...]:
        """All that it dies at."""
        return (*self.moves_on(name), *self.also)


ONLY_ON: Mapping[str, Name] = {"outbox.>shown": "telegram"}
"""Only there an answer is streamed before it is a message."""
