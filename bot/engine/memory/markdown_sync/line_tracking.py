"""Tracks lines across saves: repeated saves by one editor, and lines moved between files."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.engine.memory.access import copy_source
from bot.engine.memory.markdown_sync.layout import MemoryFile
from storage.memory.markdown.merge import AddedLine, LineEdit, MergeResult
from storage.memory.markdown.page_format import MarkdownPage
from storage.memory.markdown.sync_store import SyncedEntryRepo
from storage.records.memory import EntryId, MemoryEntry, MemoryState

_MAX_SESSIONS = 20
"""Per file."""
_TYPING_WINDOW = timedelta(minutes=1)
"""Text removed within this time counts as a correction of the same editor's input."""
_MAX_COMPARED = 2_000
"""Pairs of lines; beyond this limit, lines are not matched."""


@dataclass(slots=True)
class _EditorSession:
    """Texts imported from this session, by entry."""

    at: datetime
    texts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class EditorSessionTracker:
    """Sessions by the write number that the file had when it was opened. Two editors with the same
    number are told apart by content: a continuing editor's file still contains its earlier lines,
    changed in one place at most."""

    _sessions_by_file: dict[str, OrderedDict[int, _EditorSession]] = field(default_factory=dict)

    def record(
        self, file: MemoryFile, disk: MarkdownPage, entry_id: str, text: str, at: datetime
    ) -> None:
        if not disk.write_number:
            return
        of_file = self._sessions_by_file.setdefault(file.path, OrderedDict())
        opening = of_file.setdefault(disk.write_number, _EditorSession(at))
        opening.texts[entry_id], opening.at = text, at
        while len(of_file) > _MAX_SESSIONS:
            of_file.popitem(last=False)

    def resolve(
        self,
        file: MemoryFile,
        disk: MarkdownPage,
        merge: MergeResult,
        by_id: Mapping[str, MemoryEntry],
        now: datetime,
    ) -> MergeResult:
        """Turn conflicts and additions into edits where the same editor has continued a line."""
        opening = self._sessions_by_file.get(file.path, OrderedDict[int, _EditorSession]()).get(
            disk.write_number
        )
        if opening is None or not (merge.conflicts or merge.added):
            return merge
        before = {
            name: text
            for name, text in opening.texts.items()
            if name in by_id and by_id[name].text == text
        }
        there = {line.id: line.text for line in disk.lines if line.id}
        said = {line.text for line in disk.lines}
        kept = {name for name, text in before.items() if text in said}
        soon = now - opening.at <= _TYPING_WINDOW

        on = [
            each
            for each in merge.conflicts
            if each.id in before and _is_continuation(before[each.id], each.text, soon=soon)
        ]
        free = {n: t for n, t in before.items() if n not in kept and n not in there}
        grown, added = _match_grown_lines(free, merge.added, soon=soon)
        others = before.keys() - {each.id for each in (*on, *grown)}
        if others and not others & kept:
            # No earlier line of this session is present: another editor opened the same version.
            return merge
        clashes = tuple(each for each in merge.conflicts if each not in on)
        return replace(merge, edits=(*merge.edits, *on, *grown), conflicts=clashes, added=added)


def _match_grown_lines(
    free: Mapping[str, str], added: Sequence[AddedLine], *, soon: bool
) -> tuple[list[LineEdit], tuple[AddedLine, ...]]:
    """Match lines added in the last save with their longer versions."""
    left = dict(free)
    edits, still_new = list[LineEdit](), list[AddedLine]()
    tries = iter(range(_MAX_COMPARED))
    for each in added:
        name = "" if each.id else next(_matching_ids(left, each.text, tries, soon=soon), "")
        if not name:
            still_new.append(each)
            continue
        edits.append(LineEdit(id=name, text=each.text, before=""))
        del left[name]
    return edits, tuple(still_new)


def _matching_ids(
    free: Mapping[str, str], text: str, tries: Iterator[int], *, soon: bool
) -> Iterator[str]:
    for (name, old), _ in zip(free.items(), tries, strict=False):
        if _is_continuation(old, text, soon=soon):
            yield name


def _is_continuation(old: str, new: str, *, soon: bool) -> bool:
    """Whether one text results from the other by one insertion, or `soon` after by one deletion."""
    if not old or not new or (len(new) < len(old) and not soon):
        return False
    short, long = sorted((old, new), key=len)
    start = _common_prefix_length(short, long)
    return start + _common_prefix_length(short[start:][::-1], long[start:][::-1]) >= len(short)


def _common_prefix_length(one: str, other: str) -> int:
    most = min(len(one), len(other))
    return bisect_left(range(1, most + 1), True, key=lambda n: one[:n] != other[:n])


MOVE_GRACE = timedelta(seconds=5)
"""How long a moved line may be missing before the other file is saved."""

_COPY_WINDOW = timedelta(minutes=10)
"""How long before its removal a copied line counts as moved; older copies are independent."""
_MAX_ARRIVALS = 2_000


@dataclass(slots=True, kw_only=True)
class MissingLineTracker:
    """Missing and arrived lines in this process. After a restart, missing lines are found in the
    files again and origins in the store."""

    repo: SyncedEntryRepo
    now: Callable[[], datetime]
    _missing_since: dict[str, dict[str, datetime]] = field(default_factory=dict)
    _open_files: dict[str, frozenset[str]] = field(default_factory=dict)
    _arrived: OrderedDict[str, tuple[EntryId, datetime]] = field(default_factory=OrderedDict)

    def begin_file(self, path: str, foreign_ids: Iterable[str]) -> None:
        """Mark a file with these foreign markers as being read."""
        self._open_files[path] = frozenset(foreign_ids)

    def end_file(self, path: str) -> None:
        self._open_files.pop(path, None)

    def clear_missing(self, path: str) -> None:
        self._missing_since.pop(path, None)

    def record_arrival(self, source_id: str, entry: MemoryEntry) -> None:
        """Record that a line with this marker became `entry`."""
        self._arrived[source_id] = entry.id, self.now()
        self._arrived.move_to_end(source_id)
        while len(self._arrived) > _MAX_ARRIVALS:
            self._arrived.popitem(last=False)

    async def find_moved(
        self, missing_entries: Iterable[MemoryEntry]
    ) -> Mapping[EntryId, MemoryEntry]:
        """Missing entries that were saved in another file, with their new entries."""
        missing = {each.id: each for each in missing_entries}
        if not missing:
            return {}
        since = self.now() - _COPY_WINDOW
        marked = await self.repo.find_by_sources({copy_source(each): each for each in missing})
        fresh = {each: to for each, to in marked.items() if to.created_at >= since}
        lately = {each: self._arrived[each] for each in missing if each in self._arrived}
        named = {each: to for each, (to, at) in lately.items() if at >= since}
        found = await self.repo.find_by_ids(named.values())
        fresh |= {each: found[to] for each, to in named.items() if to in found}
        return {
            each: to
            for each, to in fresh.items()
            if to.state is MemoryState.ACTIVE and to.id != each
        }

    def find_waiting(self, path: str, missing: Sequence[str]) -> Collection[str]:
        """Missing entries that are too recent, or present in a file that is being read."""
        now, before = self.now(), self._missing_since.get(path, {})
        self._missing_since[path] = since = {
            each: min(before.get(each, now), now) for each in missing
        }
        others = [each for other, each in self._open_files.items() if other != path]
        elsewhere = frozenset[str]().union(*others)
        waiting = {each for each in missing if each in elsewhere or now - since[each] < MOVE_GRACE}
        if not waiting:
            # The time of an entry missing later starts again.
            self.clear_missing(path)
        return waiting
