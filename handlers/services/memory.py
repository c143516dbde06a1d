"""What people need to see and change what is remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from storage.records.memory.entries import Entry
from storage.records.memory.shown import (
    Behind,
    Brought,
    CleanReport,
    EntryPage,
    ExportedEntries,
    FoundEntry,
    MemoryStats,
    ShownEntry,
    Wanted,
)
from storage.records.people import Chat, Person
from storage.records.tasks import Task

Tell: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Called while something takes long: how many are done, of how many."""


class MemoryRefused(Exception):
    """Nothing was changed. `reason` is one of `unknown`, `ambiguous`, `not_yours`, `changed`,
    `empty`, `too_long`, `unknown_scope`, `unreadable`, `wrong_state`, `unknown_chapter`,
    `forgotten`; `detail` what it was about."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason} {detail}".strip())


class MemoryBook(Protocol):
    """Each sees and changes what they may see in this chat: never what is another's, and in a
    group nobody's own. All of it raises MemoryRefused. `entry_id` may be the beginning of one."""

    async def list(
        self, who: Person, chat: Chat, wanted: Wanted, *, scope: str = "", page: int = 1
    ) -> EntryPage:
        """Twenty at a time, the newest first."""
        ...

    async def search(
        self, who: Person, chat: Chat, query: str, *, limit: int = 10
    ) -> Sequence[FoundEntry]: ...

    async def show(self, who: Person, chat: Chat, entry_id: str) -> ShownEntry: ...

    async def add(
        self, who: Person, chat: Chat, text: str, *, scope: str = "", source: str = ""
    ) -> Entry:
        """`scope` is a name of one, or `me`, `chat`, `project`, `global`; empty for where this chat
        keeps its memories. `source` makes the same message add it once."""
        ...

    async def edit(
        self, who: Person, chat: Chat, entry_id: str, text: str, *, revision: int = 0
    ) -> Entry:
        """0 edits whatever it is now."""
        ...

    async def forget(
        self, who: Person, chat: Chat, entry_id: str, *, source: str = "", revision: int = 0
    ) -> Entry:
        """For good; 0 whatever it is now. It is given back as it was, to say what is gone. Where
        the order of this `source` was carried out before: refused as `forgotten`."""
        ...

    async def pin(self, who: Person, chat: Chat, entry_id: str, *, pinned: bool) -> Entry: ...

    async def move(self, who: Person, chat: Chat, entry_id: str, scope: str) -> Entry: ...

    async def decide(
        self, who: Person, chat: Chat, entry_id: str, *, keep: bool, wording: str = ""
    ) -> Entry:
        """A candidate is kept for good, or dropped; only as it was shown (`offers.wording`)."""
        ...

    async def why(self, who: Person, chat: Chat, *, session: str = "", turn: int = 0) -> Behind:
        """What stood before the model at this chat's last answer, or at that one."""
        ...

    async def why_task(self, who: Person, chat: Chat, task: Task) -> Behind:
        """The same in a task's steps. Whether they may see the task was checked."""
        ...

    async def helped(self, who: Person, chat: Chat, *, session: str = "", turn: int = 0) -> Behind:
        """What they see of what was looked for helped that answer, the last one if none is named.
        Said twice, it is said once."""
        ...

    async def handbook(self, who: Person, chat: Chat) -> Sequence[Entry]:
        """The chapters of BOSS.md, in order."""
        ...

    async def write_chapter(self, who: Person, chat: Chat, chapter: str, text: str) -> Entry:
        """Rewrite one of them, named by its title or by what its key says."""
        ...

    async def stats(self, who: Person, chat: Chat) -> MemoryStats: ...

    async def clean(self, who: Person, chat: Chat, *, dry: bool, source: str = "") -> CleanReport:
        """Of this, an import and a restore the answer tells what they did in all, also where the
        order of this `source` was cut off before and is handled again."""
        ...

    async def export(self, who: Person, chat: Chat) -> ExportedEntries:
        """All that they may see, one JSON object a line."""
        ...

    async def bring(
        self,
        who: Person,
        chat: Chat,
        path: str,
        *,
        scope: str = "",
        tell: Tell | None = None,
        source: str = "",
    ) -> Brought:
        """What `export` wrote, or rows of text; `path` is a file that was sent along."""
        ...

    async def restore(self, who: Person, chat: Chat, path: str, *, source: str = "") -> Brought:
        """Put back what a backup holds and what is not there, everybody's: for an owner in
        private. `path` is within the data directory."""
        ...
