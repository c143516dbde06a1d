"""Files exchanged with platforms: limits, safe names, access to the data directory, and downloads
of attachments."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bot.transports.ports import (
    Clock,
    ContentRefused,
    DeliveryError,
    DeliveryRateLimited,
    FileTooLarge,
    PlatformUnavailable,
    Transport,
)
from storage.records.messages import InboxRow, IncomingMessage, RemoteFile
from storage.records.people import Channel
from storage.shared_files import FileShareError, SharedFiles

log = logging.getLogger(__name__)

MAX_DOWNLOAD_BYTES = 20 * 1024 * 1024

_MAX_NAME_BYTES = 120
_FORBIDDEN_CHARACTERS = re.compile(
    r"""[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff/\\:*?"<>|`$;&'{}~]"""
)
"""Control and invisible characters, those of file systems, and those that a shell acts on: workers
write names into commands."""


class FileUnsendable(Exception):
    """The file is missing, empty or outside the data directory."""


def read_file(home: Path, path: str, limit: int) -> bytes:
    """Read a file of the data directory. Raises FileUnsendable, or FileTooLarge above `limit`
    bytes."""
    root = home.resolve()
    try:
        target = (root / path).resolve()
        if not target.is_relative_to(root):
            raise FileUnsendable("outside the data directory")
        size = target.stat().st_size
        if not target.is_file():
            raise FileUnsendable("not a file")
        if size > limit:
            raise FileTooLarge(f"larger than {limit // 1024 // 1024} MB")
        data = target.read_bytes()
    except (OSError, ValueError) as error:
        raise FileUnsendable("cannot be read") from error
    if not data:
        raise FileUnsendable("empty")
    return data


def write_new_file(folder: Path, name: str, data: bytes) -> Path:
    """Write a file under a safe, unused name."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = Path(sanitize_file_name(name))
    number = 1
    while True:
        ending = "" if number == 1 else f"-{number}"
        target = folder / f"{wanted.stem}{ending}{wanted.suffix}"
        try:
            with target.open("xb") as out:
                out.write(data)
        except FileExistsError:
            number += 1
        else:
            return target


def sanitize_file_name(name: str) -> str:
    """A visible, undisguised name without folders, of limited length."""
    whole = name.encode("utf-8", "replace").decode("utf-8").replace("\\", "/").rpartition("/")[2]
    plain = " ".join(_FORBIDDEN_CHARACTERS.sub("", whole).split()).lstrip(".-") or "file"
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix.encode()) > _MAX_NAME_BYTES // 4:
        return _truncate_bytes(plain, _MAX_NAME_BYTES)
    return f"{_truncate_bytes(stem, _MAX_NAME_BYTES - len(suffix.encode()) - 1)}.{suffix}"


def _truncate_bytes(text: str, size: int) -> str:
    """Cut to `size` bytes, the unit of file system limits."""
    return text.encode()[:size].decode("utf-8", "ignore").rstrip(" .") or "file"


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
    """Downloads attachments into the data directory before their messages are handled."""

    transports: Mapping[Channel, Transport]
    home: Path
    clock: Clock
    files: SharedFiles

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
            await self._publish(path.relative_to(self.home).as_posix())
        except DeliveryError as error:
            log.warning("A file could not be fetched: %s", error)
            missing = MissingFile(name=file.name, too_large=isinstance(error, FileTooLarge))
            return replace(fetched, missing=(*fetched.missing, missing))
        relative = path.relative_to(self.home).as_posix()
        return replace(fetched, files=(*fetched.files, relative))

    async def _publish(self, path: str) -> None:
        """Publish the file to the store of files, so that whoever runs the task has it. Raises
        PlatformUnavailable.
        """
        try:
            await self.files.publish(path)
        except FileShareError as error:
            raise PlatformUnavailable(str(error)) from error

    async def _fetch_with_retries(self, channel: Channel, file: RemoteFile, into: Path) -> Path:
        for _ in range(_MAX_ATTEMPTS - 1):
            try:
                return await self._get_transport(channel).fetch(file, into)
            except (FileTooLarge, ContentRefused):
                raise
            except DeliveryRateLimited as error:
                await self.clock.sleep(min(error.retry_after, _MAX_RETRY_DELAY))
            except DeliveryError as error:
                log.info("Fetching a file again: %s", error)
                await self.clock.sleep(_RETRY_DELAY)
        return await self._get_transport(channel).fetch(file, into)

    def _get_transport(self, channel: Channel) -> Transport:
        transport = self.transports.get(channel)
        if transport is None:
            raise PlatformUnavailable(f"{channel} is not connected")
        return transport


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve()) and path.is_relative_to(folder)
