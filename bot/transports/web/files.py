"""Uploads and downloads of the web chat, confined to the `files` folder of the data directory."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bot.transports.files import MAX_DOWNLOAD_BYTES, sanitize_file_name
from bot.transports.ports import ChatUnreachable, FileTooLarge
from cards.model import Block, Card, FileBlock, ImageBlock
from storage.records.messages import AttachmentKind, RemoteFile
from storage.shared_files import FileShareError, OneFolder, SharedFiles

log = logging.getLogger(__name__)

MAX_FILE_BYTES = MAX_DOWNLOAD_BYTES
FILES_FOLDER = "files"
UPLOADS_FOLDER = "inbox"

_UPLOAD_ID = re.compile(r"[A-Za-z0-9-]{8,64}")
# Image types that cannot contain scripts, unlike SVG.
_INLINE_IMAGE_TYPES = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"}
)


class EmptyUpload(Exception): ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFile:
    """A file for the page; `inline` allows the browser to display it."""

    path: Path
    mime: str
    inline: bool


class WebFileStore:
    def __init__(self, home: Path, shared: SharedFiles | None = None) -> None:
        self._home = home
        self._root = home / FILES_FOLDER
        self._shared = shared or OneFolder()

    async def find(self, relative: str) -> ServedFile | None:
        """The file at this path below `files`, or None, also for links that lead outside."""
        await self._bring(f"{FILES_FOLDER}/{relative}")
        return await asyncio.to_thread(self._find, relative)

    async def save_upload(
        self, upload_id: str, name: str, chunks: AsyncIterator[bytes]
    ) -> RemoteFile:
        """Store an upload. Raises FileTooLarge, EmptyUpload and FileShareError, leaving no file
        behind."""
        folder = self._root / UPLOADS_FOLDER / upload_id
        await asyncio.to_thread(folder.mkdir, parents=True)
        draft = folder / ".part"
        try:
            with await asyncio.to_thread(draft.open, "wb") as file:
                await _write_chunks(chunks, file)
            target = folder / sanitize_file_name(name)
            await asyncio.to_thread(draft.replace, target)
            await self._shared.publish(target.relative_to(self._home).as_posix())
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        found = await self.get_upload(upload_id)
        assert found is not None
        return found

    async def get_upload(self, upload_id: str) -> RemoteFile | None:
        if not _UPLOAD_ID.fullmatch(upload_id):
            return None
        return await asyncio.to_thread(self._get_upload, upload_id)

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        await self._bring(file.reference.get("path", ""))
        return await asyncio.to_thread(self._fetch, file, into)

    async def _bring(self, path: str) -> None:
        """Fetch the file from the shared store of files, because another front may have it."""
        try:
            if path.startswith(f"{FILES_FOLDER}/"):
                await self._shared.ensure(path)
        except (FileShareError, OSError, ValueError) as error:
            log.warning("a file is not brought from the other fronts: %s", error)

    def _find(self, relative: str) -> ServedFile | None:
        path = self._resolve_inside(relative)
        if path is None:
            return None
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return ServedFile(path=path, mime=mime, inline=mime in _INLINE_IMAGE_TYPES)

    def _resolve_inside(self, relative: str) -> Path | None:
        try:
            path = (self._root / relative).resolve()
            known = path.is_relative_to(self._root.resolve()) and path.is_file()
        except (OSError, ValueError):
            return None
        return path if known else None

    def _get_upload(self, upload_id: str) -> RemoteFile | None:
        folder = self._root / UPLOADS_FOLDER / upload_id
        if not folder.is_dir():
            return None
        path = next((path for path in folder.iterdir() if path.name != ".part"), None)
        if path is None:
            return None
        mime = mimetypes.guess_type(path.name)[0] or ""
        return RemoteFile(
            kind=AttachmentKind.IMAGE if mime in _INLINE_IMAGE_TYPES else AttachmentKind.FILE,
            reference={"path": f"{FILES_FOLDER}/{UPLOADS_FOLDER}/{upload_id}/{path.name}"},
            name=path.name,
            mime=mime,
            size=path.stat().st_size,
        )

    def _fetch(self, file: RemoteFile, into: Path) -> Path:
        path = self._resolve_inside(file.reference.get("path", "").removeprefix(f"{FILES_FOLDER}/"))
        if path is None:
            raise ChatUnreachable(
                f"uploaded file {sanitize_file_name(file.name)} is no longer there"
            )
        if path.stat().st_size > MAX_FILE_BYTES:
            raise FileTooLarge(f"more than {MAX_FILE_BYTES} bytes")
        into.mkdir(parents=True, exist_ok=True)
        target = into / sanitize_file_name(path.name)
        if target.resolve() != path:
            shutil.copyfile(path, target)
        return target


def build_attachment_card(attachments: Sequence[RemoteFile]) -> Card:
    """A card that shows a person's attachments."""
    return Card(blocks=tuple(_attachment_block(file) for file in attachments))


def _attachment_block(file: RemoteFile) -> Block:
    path = file.reference.get("path", "")
    if file.kind is AttachmentKind.IMAGE:
        return ImageBlock(path=path, alt=file.name)
    return FileBlock(path=path, name=file.name, size=file.size)


async def _write_chunks(chunks: AsyncIterator[bytes], file: IO[bytes]) -> None:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > MAX_FILE_BYTES:
            raise FileTooLarge(f"more than {MAX_FILE_BYTES} bytes")
        await asyncio.to_thread(file.write, chunk)
    if not size:
        raise EmptyUpload
