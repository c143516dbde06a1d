"""What people send along is fetched into the data directory before anybody looks at it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.transports.base import DeliveryError, RateLimited, Refused, TooLarge, Transport
from bot.transports.clock import Clock
from storage.records.messages import InboxRow, MessageIn, RemoteFile
from storage.records.people import Channel

log = logging.getLogger(__name__)

_TRIES = 3
_PAUSE = 2.0
_LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A file that could not be had; `too_large` tells why."""

    name: str
    too_large: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """`files` are relative to the data directory."""

    files: tuple[str, ...] = ()
    missing: tuple[Missing, ...] = ()


class Attachments:
    def __init__(
        self, *, transports: Mapping[Channel, Transport], home: Path, clock: Clock
    ) -> None:
        self._transports = transports
        self._home = home
        self._clock = clock

    async def fetch(self, rows: Sequence[InboxRow]) -> Fetched:
        """All that came with these rows, in order. What an earlier try left is done over."""
        fetched = Fetched()
        for row in rows:
            if isinstance(row.incoming, MessageIn):
                folder = self._home / "files" / "inbox" / str(row.id)
                fetched = await self._fetch_row(row.incoming, folder, fetched)
        return fetched

    async def _fetch_row(self, said: MessageIn, folder: Path, fetched: Fetched) -> Fetched:
        for number, file in enumerate(said.attachments):
            # Two files may have one name: each but the first has a folder of its own.
            into = folder / str(number + 1) if number else folder
            if not number:
                await asyncio.to_thread(_emptied, folder)
            await asyncio.to_thread(into.mkdir, parents=True, exist_ok=True)
            fetched = await self._fetch_file(said.place.channel, file, into, fetched)
        return fetched

    async def _fetch_file(
        self, channel: Channel, file: RemoteFile, into: Path, fetched: Fetched
    ) -> Fetched:
        try:
            path = await self._patiently(channel, file, into)
            inside = await asyncio.to_thread(_inside, path, into)
        except DeliveryError as error:
            log.warning("A file could not be fetched: %s", error)
            missing = Missing(name=file.name, too_large=isinstance(error, TooLarge))
            return replace(fetched, missing=(*fetched.missing, missing))
        if not inside:
            log.error("A file was fetched to where it does not belong: it is left alone")
            missing = Missing(name=file.name, too_large=False)
            return replace(fetched, missing=(*fetched.missing, missing))
        relative = path.relative_to(self._home).as_posix()
        return replace(fetched, files=(*fetched.files, relative))

    async def _patiently(self, channel: Channel, file: RemoteFile, into: Path) -> Path:
        for _ in range(_TRIES - 1):
            try:
                return await self._transports[channel].fetch(file, into)
            except (TooLarge, Refused):
                raise
            except RateLimited as error:
                await self._clock.sleep(min(error.retry_after, _LONGEST_PAUSE))
            except DeliveryError as error:
                log.info("A file is fetched again: %s", error)
                await self._clock.sleep(_PAUSE)
        return await self._transports[channel].fetch(file, into)


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve()) and path.is_relative_to(folder)
