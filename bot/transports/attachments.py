"""Downloads attachments of incoming messages into the data directory before the messages are
handled."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.transports.clock import Clock
from bot.transports.ports import (
    ContentRefused,
    DeliveryError,
    DeliveryRateLimited,
    FileTooLarge,
    Transport,
)
from storage.records.messages import InboxRow, IncomingMessage, RemoteFile
from storage.records.people import Channel

log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 3
_RETRY_DELAY = 2.0
_MAX_RETRY_DELAY = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFile:
    """A file that could not be downloaded, or is `too_large`."""

    name: str
    too_large: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedFiles:
    """`files` are paths relative to the data directory."""

    files: tuple[str, ...] = ()
    missing: tuple[MissingFile, ...] = ()


@dataclass(kw_only=True, eq=False)
class AttachmentFetcher:
    transports: Mapping[Channel, Transport]
    home: Path
    clock: Clock

    async def fetch(self, rows: Sequence[InboxRow]) -> FetchedFiles:
        """Download all files of these rows, in order, replacing those of an earlier try."""
        fetched = FetchedFiles()
        for row in rows:
            if isinstance(row.incoming, IncomingMessage):
                folder = self.home / "files" / "inbox" / str(row.id)
                fetched = await self._fetch_row(row.incoming, folder, fetched)
        return fetched

    async def _fetch_row(
        self, message: IncomingMessage, folder: Path, fetched: FetchedFiles
    ) -> FetchedFiles:
        for number, file in enumerate(message.attachments):
            # Files of the same name go to separate folders.
            into = folder / str(number + 1) if number else folder
            if not number:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            await asyncio.to_thread(into.mkdir, parents=True, exist_ok=True)
            fetched = await self._fetch_file(message.place.channel, file, into, fetched)
        return fetched

    async def _fetch_file(
        self, channel: Channel, file: RemoteFile, into: Path, fetched: FetchedFiles
    ) -> FetchedFiles:
        try:
            path = await self._fetch_with_retries(channel, file, into)
            if not await asyncio.to_thread(_is_inside, path, into):
                raise ContentRefused("it was written to where it does not belong")
        except DeliveryError as error:
            log.warning("A file could not be fetched: %s", error)
            missing = MissingFile(name=file.name, too_large=isinstance(error, FileTooLarge))
            return replace(fetched, missing=(*fetched.missing, missing))
        relative = path.relative_to(self.home).as_posix()
        return replace(fetched, files=(*fetched.files, relative))

    async def _fetch_with_retries(self, channel: Channel, file: RemoteFile, into: Path) -> Path:
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return await self.transports[channel].fetch(file, into)
            except (FileTooLarge, ContentRefused):
                raise
            except DeliveryRateLimited as error:
                await self.clock.sleep(min(error.retry_after, _MAX_RETRY_DELAY))
            except DeliveryError as error:
                log.info("Fetching a file again: %s", error)
                await self.clock.sleep(_RETRY_DELAY)
        return await self.transports[channel].fetch(file, into)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve()) and path.is_relative_to(folder)
