"""The Boss's actions in a story, on any channel, and its required end.

An action waits for a state of the store, never for time: the story is the same however often the
program dies on the way."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.channels import ChannelClient, ChannelName, File
from tests.chaos.inspection import rows
from tests.emulators.models.script import ReceivedRequest, ScriptedReply

_POLL_SECONDS = 0.02
_FLAGS = re.compile(r"^(?:--?\w+ \w+ )+")
# A press on a card that is only about to show that all is decided is of no use.
_PRESS_TIMEOUT = 5.0
_OPEN_APPROVALS = (
    "SELECT id FROM approvals WHERE state = 'waiting' AND (detail LIKE ? OR title LIKE ?)"
)
_ANSWERED_TALK = """
SELECT 1 FROM tool_calls c JOIN outbox o ON o."key" = 'talk:' || c.id
WHERE c.title || c.detail LIKE ? AND o.state = 'shown'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedUser:
    """`front` is where the Boss sits; `home` is only looked into, never touched."""

    channel: ChannelClient
    home: Path

    async def wait_for_row(self, sql: str, *values: str) -> Any:
        """Wait for a row, and give its first value."""
        while not (found := rows(self.home, sql, *values)):
            await asyncio.sleep(_POLL_SECONDS)
        return found[0][0]

    async def start_task(self, text: str, *, status: str = "") -> str:
        """Order a task; its id when it has that status, or exists."""
        await self.channel.send_message(f"/run {text}")
        title = f"%{_FLAGS.sub('', text)}%"
        task_id = str(
            await self.wait_for_row("SELECT id FROM tasks WHERE instruction LIKE ?", title)
        )
        if status:
            await self.wait_for_status(task_id, status)
        return task_id

    async def wait_for_status(self, task_id: str, *statuses: str) -> str:
        known = ",".join(f"'{status}'" for status in statuses)
        sql = f"SELECT status FROM tasks WHERE id = ? AND status IN ({known})"
        return str(await self.wait_for_row(sql, task_id))

    async def decide(self, word: str, task_id: str = "", *, about: str) -> None:
        """Press that button on whatever asks about this, until its task, or the talk that asks,
        has gone on to its end. A worker that was cut off may ask once more."""
        while self._is_open(task_id, about):
            asked = rows(self.home, _OPEN_APPROVALS, f"%{about}%", f"%{about}%")
            if asked:
                await self.channel.press(word, about=about)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PRESS_TIMEOUT):
                        await self.wait_for_row(
                            "SELECT 1 FROM approvals WHERE id = ? AND state <> 'waiting'", *asked[0]
                        )
            await asyncio.sleep(_POLL_SECONDS)

    def _is_open(self, task_id: str, about: str) -> bool:
        if task_id:
            ended = "SELECT 1 FROM tasks WHERE id = ? AND status = 'completed'"
            return not rows(self.home, ended, task_id)
        return not rows(self.home, _ANSWERED_TALK, f"%{about}%")

    async def send_command(self, text: str, *, file: File | None = None) -> None:
        """A command, and its answer is there."""
        await self.channel.send_message(text, file=file)
        await self.wait_for_row(
            "SELECT id FROM inbox WHERE state <> 'new' AND json_extract(incoming, '$.text') = ?"
            " AND (SELECT count(*) FROM inbox WHERE state = 'new') = 0",
            text,
        )

    async def has_row(self, sql: str, *values: str) -> bool:
        return bool(rows(self.home, sql, *values))

    async def pause_briefly(self) -> None:
        """Before it looks again."""
        await asyncio.sleep(_POLL_SECONDS)

    def advance_clock(self, hours: float) -> None:
        """The clock goes by that many hours more than it would, from the beginning on."""
        new = clock_file(self.home).with_suffix(".new")
        new.write_text(str(hours))
        new.replace(clock_file(self.home))


def clock_file(home: Path) -> Path:
    """Where stands by how many hours the clock is ahead."""
    return home.with_suffix(".clock")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashStory:
    """`ends` says for each task, by words of its instruction, in which states it may end;
    `files` which files there are in the end and what is in them, nothing for anything; `moves`
    are the transitions that the story is told for. `mind` is the model, which answers by nothing
    but what it is asked, so that it says the same however often it is asked again; without one
    the offline worker does all. `also` are transitions of other stories that lead to some of this
    one's if it dies there, and `unsure` the files that may be missing where somebody was told.
    With `every_call_is_billed` no reply of the model fails, and each is paid for once.

    With `remembered`, which says what is wrong with what is remembered in the end, it is a story
    of memory; `begun` makes the home ready before it begins, and `service` is there for all its
    lives: it gives settings. Stories of memory may move the clock, others only with
    `moves_clock`."""

    name: str
    act: Callable[[ScriptedUser], Awaitable[None]]
    final_statuses: Mapping[str, tuple[str, ...]]
    files: Mapping[str, str]
    transitions: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    model: Callable[[ReceivedRequest], ScriptedReply] | None = None
    extra_transitions: tuple[str, ...] = ()
    optional_files: frozenset[str] = frozenset()
    every_call_is_billed: bool = False
    check_memory: Callable[[Path], Iterable[str]] | None = None
    prepare: Callable[[Path], None] | None = None
    service: Callable[[], AbstractAsyncContextManager[Mapping[str, str]]] | None = None
    moves_clock: bool = False

    def transitions_on(self, name: ChannelName) -> tuple[str, ...]:
        return tuple(move for move in self.transitions if ONLY_ON.get(move, name) == name)

    def crash_points_on(self, name: ChannelName) -> tuple[str, ...]:
        """All that it dies at."""
        return (*self.transitions_on(name), *self.extra_transitions)


ONLY_ON: Mapping[str, ChannelName] = {"outbox.>shown": "telegram"}
"""Only there an answer is streamed before it is a message."""
