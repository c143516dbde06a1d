"""One file and the store are brought to say the same: what a person saved counts first, then the
file shows what is remembered."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bot.engine.memory.mirror.due import OVERLAP, Due
from bot.engine.memory.mirror.notices import Tells
from bot.engine.memory.mirror.pages import Pages
from bot.engine.memory.mirror.places import Place, Sort
from bot.engine.memory.mirror.taking import Outcome, Taken, Taking
from storage.memory.files import shelf as shelves
from storage.memory.files.bases import Base, Bases, hash_of
from storage.memory.files.folder import Folder, Found, Sign
from storage.memory.files.shelf import Shelf
from storage.memory.markdown.began import Began
from storage.memory.markdown.page import Layout, Page
from storage.memory.markdown.parse import parse
from storage.records.memory.entries import Entry

log = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=3)
"""For so long a file that is not whole may still be being saved."""

ASIDE = timedelta(seconds=2)
"""For so long an editor may still write into a file that has just been replaced."""

RETRY = timedelta(seconds=30)
"""After so long a file is written again for which there was no room."""

_PASSING = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
_TRIES = 5
_HIGHEST = 10**8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """`sign` is the file as it was last read or written; `again` says that it is to be looked at
    soon whether or not that changes."""

    sign: Sign | None = None
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replaced:
    body: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failed:
    """A file that could not be written, with the number that it was to have."""

    number: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What is in the file, whether that was saved by somebody, and what is missing in it that is
    not forgotten yet."""

    found: Found
    page: Page | None
    changed: bool
    gone: frozenset[str]


class Reconciler:
    """Made for one caller at a time of each file. A crash at any point leaves the store right and
    the file as it was or as it will be; started again, it comes to the same end."""

    def __init__(
        self,
        *,
        folder: Folder,
        bases: Bases,
        shelf: Shelf,
        pages: Pages,
        taking: Taking,
        tell: Tells,
        now: Callable[[], datetime],
    ) -> None:
        self._folder = folder
        self._bases = bases
        self._shelf = shelf
        self._pages = pages
        self._taking = taking
        self._tell = tell
        self._now = now
        self._torn: dict[str, tuple[Sign | None, datetime]] = {}
        self._replaced: dict[str, _Replaced] = {}
        self._failed: dict[str, _Failed] = {}

    async def settle(self, place: Place, *, empty: bool) -> Settled:
        """`empty` says whether there is to be a file if there is nothing in it."""
        for _ in range(_TRIES):
            settled = await self._once(place, empty)
            if settled is not None:
                return settled
        return Settled(again=True)

    async def untouched(self, due: Due, latest: Base | None) -> Sign | None:
        """The file as it is, where neither side has changed anything since it was `latest`
        written; None where that is not sure."""
        if due.ids is None or due.newest is None or latest is None:
            return None
        if (
            latest.began.gone
            or due.newest >= latest.at - OVERLAP
            or due.ids != latest.began.lines.keys()
        ):
            return None
        path = due.place.path
        found = await asyncio.to_thread(self._folder.read, path)
        old, new = await asyncio.to_thread(self._folder.beside, path)
        alone = old.sign is None and new.sign is None
        is_same = found.body is not None and latest.is_of(found.body)
        return found.sign if alone and is_same else None

    async def withdraw(self, path: str) -> None:
        """Take away a file that shows nothing any more, unless somebody has written in it."""
        found = await asyncio.to_thread(self._folder.read, path)
        latest = await self._bases.latest(path)
        ours = found.body is not None and latest is not None and latest.is_of(found.body)
        if found.sign is not None and ours:
            with suppress(OSError):
                await asyncio.to_thread(self._folder.remove, path, found.sign)
        if ours or found.sign is None:
            await self._bases.drop(path)

    async def _once(self, place: Place, empty: bool) -> Settled | None:
        """None where something has changed on the way."""
        latest = await self._bases.latest(place.path)
        aside, gone = await self._look_aside(place, latest)
        found = await asyncio.to_thread(self._folder.read, place.path)
        if found.trouble is not None:
            await self._tell(place.path, found.trouble.value, str(found.sign))
            return Settled(sign=found.sign, again=aside)
        disk, changed = None, False
        if found.body is None:
            self._taking.all_is_there(place)
        else:
            disk = await asyncio.to_thread(parse, found.body, place.sort.layout)
            changed = latest is None or not latest.is_of(found.body)
        if disk is not None and (changed or (latest is not None and latest.began.gone)):
            if self._may_be_half(place, disk, found):
                return Settled(sign=found.sign, again=True)
            taken = await self._take(place, disk, latest)
            gone |= taken.gone
            if taken.outcome is Outcome.STUCK:
                return Settled(sign=found.sign, again=bool(gone))
            if taken.outcome is Outcome.AGAIN:
                return None
        self._torn.pop(place.path, None)
        seen = _Seen(found=found, page=disk, changed=changed, gone=gone)
        return await self._show(place, seen, latest, empty=empty)

    async def _take(self, place: Place, disk: Page, latest: Base | None) -> Taken:
        base = None
        if latest is not None and disk.number == latest.number:
            base = latest.began
        elif disk.number:
            base = await self._bases.numbered(place.path, disk.number)
        return await self._taking.take(place, base, disk, await self._entries(place))

    async def _show(
        self, place: Place, seen: _Seen, latest: Base | None, *, empty: bool
    ) -> Settled | None:
        entries = await self._entries(place)
        found, disk = seen.found, seen.page
        if not entries and not empty:
            return await self._away(place, found)
        rivals = await self._shelf.rivals(place.scope)
        shown = [each for each in entries if each.id not in seen.gone]
        page = await asyncio.to_thread(self._pages.page, place, shown, rivals)
        if disk is not None and not seen.changed and page.shown == disk.shown:
            again = place.path in self._replaced or len(shown) < len(entries)
            return Settled(sign=found.sign, again=again)
        failed = self._failed.get(place.path)
        if failed is not None and timedelta() <= self._now() - failed.at < RETRY:
            return Settled(sign=found.sign, again=True)
        number = (
            failed.number
            if failed
            else max(latest.number if latest else 0, disk.number if disk else 0) % _HIGHEST + 1
        )
        page = replace(page, number=number, front="" if disk is None else disk.front)
        whole = page
        if len(shown) < len(entries):
            whole = await asyncio.to_thread(self._pages.page, place, entries, rivals)
        began = Began.at(whole, titled=place.sort.layout is Layout.BOOK)
        began = replace(began, gone=sorted(seen.gone & began.lines.keys()))
        if len(entries) >= shelves.MOST:
            page = replace(page, left_out=page.left_out + await self._left_out(place))
        body = await asyncio.to_thread(self._pages.body, place, page)
        base = Base(path=place.path, number=number, hash=hash_of(body), began=began, at=self._now())
        return await self._write(place, base, body, found)

    async def _write(self, place: Place, base: Base, body: str, found: Found) -> Settled | None:
        await self._bases.put(base)
        try:
            made = await asyncio.to_thread(self._folder.write, place.path, body, found.sign)
        except OSError as error:
            log.warning("%s cannot be written: %s", place.path, error)
            trouble = "link" if isinstance(error, NotADirectoryError) else "unusable"
            await self._tell(place.path, trouble, str(error.errno))
            passing = error.errno in _PASSING
            if passing:
                # Under the same number: what is known of older ones is not pushed out.
                self._failed[place.path] = _Failed(number=base.number, at=self._now())
            return Settled(sign=found.sign, again=passing)
        self._failed.pop(place.path, None)
        if made is None:
            return None
        if found.body is not None:
            self._replaced[place.path] = _Replaced(body=found.body, at=self._now())
        return Settled(sign=made, again=found.body is not None or bool(base.began.gone))

    async def _away(self, place: Place, found: Found) -> Settled | None:
        """A file with nothing in it any more."""
        if found.sign is None:
            return Settled()
        gone = await asyncio.to_thread(self._folder.remove, place.path, found.sign)
        return Settled() if gone else None

    async def _look_aside(self, place: Place, latest: Base | None) -> tuple[bool, frozenset[str]]:
        """Whether something still lies beside the file, and what is missing in it. What was saved
        into a file in the moment in which it was replaced, or lay there when the program died, is
        taken like any other."""
        gone = frozenset[str]()
        old, new = await asyncio.to_thread(self._folder.beside, place.path)
        if old.body is None and new.body is None:
            return False, gone
        replaced = self._replaced.get(place.path)
        since = None if replaced is None else self._now() - replaced.at
        # The clock may have been put back.
        fresh = since is not None and timedelta() <= since < ASIDE
        for body in (old.body, new.body):
            if body is None or await self._bases.is_known(place.path, body):
                continue
            if replaced is None or body != replaced.body:
                disk = await asyncio.to_thread(parse, body, place.sort.layout)
                # Half of it: it is still being written, or it is our own that was broken off.
                if not disk.complete:
                    continue
                taken = await self._take(place, disk, latest)
                gone |= taken.gone
                if taken.outcome is not Outcome.DONE:
                    return True, gone
        if fresh:
            return True, gone
        self._replaced.pop(place.path, None)
        await asyncio.to_thread(self._folder.drop_beside, place.path)
        return False, gone

    def _may_be_half(self, place: Place, disk: Page, found: Found) -> bool:
        if disk.complete and disk.number:
            return False
        sign, since = self._torn.get(place.path, (None, self._now()))
        if sign != found.sign or since > self._now():
            since = self._now()
        self._torn[place.path] = found.sign, since
        return self._now() - since < PATIENCE

    async def _left_out(self, place: Place) -> int:
        span = place.span(self._pages.zone) if place.sort is Sort.DAY else None
        since, before = span or (None, None)
        return await self._shelf.left_out(place.scope, place.kinds, since=since, before=before)

    async def _entries(self, place: Place) -> Sequence[Entry]:
        span = place.span(self._pages.zone) if place.sort is Sort.DAY else None
        return await self._shelf.shown(
            place.scope,
            place.kinds,
            since=span[0] if span else None,
            before=span[1] if span else None,
            only=place.entry,
        )
