"""Files in and out of the web chat, confined to the data directory's `files` folder."""

from __future__ import annotations

import asyncio
import mimetypes
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bot.transports.base import TooLarge, Unreachable
from cards.model import Block, Card, File, Image
from storage.records.messages import AttachmentKind, RemoteFile

LARGEST = 20 * 1024 * 1024
FOLDER = "files"
INBOX = "inbox"

_LONGEST_NAME = 120
_UPLOAD_ID = re.compile(r"[A-Za-z0-9-]{8,64}")
_UNFIT = re.compile(r'[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069/\\:*?"<>|]')
# Pictures a browser shows and cannot be made to run anything; SVG can.
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"})


class EmptyFile(Exception):
    """Nothing was uploaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A file that may be sent to the page. `inline` says the browser may show it."""

    path: Path
    mime: str
    inline: bool


class FileStore:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._root = home / FOLDER

    async def find(self, relative: str) -> Served | None:
        """The file at that path below `files`, or None: also for links that lead outside."""
        return await asyncio.to_thread(self._find, relative)

    async def keep(self, upload_id: str, name: str, chunks: AsyncIterator[bytes]) -> RemoteFile:
        """Store an upload. TooLarge past the limit, EmptyFile without content; then nothing is
        left behind."""
        folder = self._root / INBOX / upload_id
        await asyncio.to_thread(folder.mkdir, parents=True)
        draft = folder / ".part"
        try:
            with await asyncio.to_thread(draft.open, "wb") as file:
                await _pour(chunks, file)
            await asyncio.to_thread(draft.replace, folder / safe_name(name))
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        found = await self.uploaded(upload_id)
        assert found is not None
        return found

    async def uploaded(self, upload_id: str) -> RemoteFile | None:
        """What was kept under that id, or None."""
        if not _UPLOAD_ID.fullmatch(upload_id):
            return None
        return await asyncio.to_thread(self._uploaded, upload_id)

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        return await asyncio.to_thread(self._fetch, file, into)

    def _find(self, relative: str) -> Served | None:
        path = self._inside(relative)
        if path is None:
            return None
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return Served(path=path, mime=mime, inline=mime in _PICTURES)

    def _inside(self, relative: str) -> Path | None:
        try:
            path = (self._root / relative).resolve()
            known = path.is_relative_to(self._root.resolve()) and path.is_file()
        except (OSError, ValueError):
            return None
        return path if known else None

    def _uploaded(self, upload_id: str) -> RemoteFile | None:
        folder = self._root / INBOX / upload_id
        if not folder.is_dir():
            return None
        path = next((path for path in folder.iterdir() if path.name != ".part"), None)
        if path is None:
            return None
        mime = mimetypes.guess_type(path.name)[0] or ""
        return RemoteFile(
            kind=AttachmentKind.IMAGE if mime in _PICTURES else AttachmentKind.FILE,
            reference={"path": f"{FOLDER}/{INBOX}/{upload_id}/{path.name}"},
            name=path.name,
            mime=mime,
            size=path.stat().st_size,
        )

    def _fetch(self, file: RemoteFile, into: Path) -> Path:
        path = self._inside(file.reference.get("path", "").removeprefix(f"{FOLDER}/"))
        if path is None:
            raise Unreachable(f"uploaded file {safe_name(file.name)} is no longer there")
        if path.stat().st_size > LARGEST:
            raise TooLarge(f"more than {LARGEST} bytes")
        into.mkdir(parents=True, exist_ok=True)
        target = into / safe_name(path.name)
        if target.resolve() != path:
            shutil.copyfile(path, target)
        return target


def safe_name(name: str) -> str:
    """A plain file name: no folders, no disguises, not hidden, not too long."""
    whole = name.encode("utf-8", "replace").decode("utf-8").replace("\\", "/").rpartition("/")[2]
    plain = " ".join(_UNFIT.sub("", whole).split()).lstrip(".") or "file"
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix.encode()) > _LONGEST_NAME // 4:
        return _cut(plain, _LONGEST_NAME)
    return f"{_cut(stem, _LONGEST_NAME - len(suffix.encode()) - 1)}.{suffix}"


def attachment_card(attached: Sequence[RemoteFile]) -> Card:
    """What a person attached, as a card to render."""
    return Card(blocks=tuple(_block(file) for file in attached))


def _block(file: RemoteFile) -> Block:
    path = file.reference.get("path", "")
    if file.kind is AttachmentKind.IMAGE:
        return Image(path=path, alt=file.name)
    return File(path=path, name=file.name, size=file.size)


async def _pour(chunks: AsyncIterator[bytes], file: IO[bytes]) -> None:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > LARGEST:
            raise TooLarge(f"more than {LARGEST} bytes")
        await asyncio.to_thread(file.write, chunk)
    if not size:
        raise EmptyFile


def _cut(text: str, size: int) -> str:
    """At most `size` bytes, which is what file systems count."""
    return text.encode()[:size].decode("utf-8", "ignore").rstrip(" .") or "file"
