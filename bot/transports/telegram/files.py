"""Files on their way out and in, kept inside their folders and under Telegram's limits."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path

from telegram import Bot
from telegram.error import TelegramError

from bot.transports.base import TooLarge
from bot.transports.telegram.errors import translate
from storage.records.messages import RemoteFile

MAX_UPLOAD = 50 * 1024 * 1024
MAX_PHOTO = 10 * 1024 * 1024
MAX_DOWNLOAD = 20 * 1024 * 1024

_UNSAFE = re.compile(r"[^\w.\-+ ()\[\]]+")
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    name: str
    content: bytes = field(repr=False)

    @property
    def fits_photo(self) -> bool:
        return len(self.content) <= MAX_PHOTO


class FileMissing(Exception):
    """There is no such file inside the data directory, or it is empty."""


async def load(home: Path, path: str, name: str = "") -> Upload:
    """A file of the data directory. Raises FileMissing, or TooLarge beyond the upload limit."""
    return await asyncio.to_thread(_load, home, path, name)


async def download(bot: Bot, file: RemoteFile, into: Path) -> Path:
    """Fetch what a person sent; DeliveryError only."""
    if file.size > MAX_DOWNLOAD:
        raise TooLarge(f"{file.size} bytes")
    try:
        remote = await bot.get_file(file.reference["file_id"])
        content = bytes(await remote.download_as_bytearray())
    except TelegramError as error:
        raise translate(error, repeatable=True) from error
    if len(content) > MAX_DOWNLOAD:
        raise TooLarge(f"{len(content)} bytes")
    target = into / safe_name(file.name)
    await asyncio.to_thread(_save, target, content)
    return target


def safe_name(name: str) -> str:
    """A name that stays in its folder on any file system."""
    flat = _UNSAFE.sub("_", name.replace("\\", "/").rpartition("/")[2]).strip(" .")
    stem, dot, suffix = flat.rpartition(".")
    if not dot:
        return flat[:_LONGEST_NAME] or "file"
    return f"{stem[: _LONGEST_NAME - len(suffix[:10]) - 1]}.{suffix[:10]}"


def _load(home: Path, path: str, name: str) -> Upload:
    root = home.resolve()
    full = (root / path).resolve()
    if not full.is_relative_to(root) or not full.is_file():
        raise FileMissing(path)
    size = full.stat().st_size
    if size > MAX_UPLOAD:
        raise TooLarge(f"{size} bytes")
    content = full.read_bytes()
    if not content:
        raise FileMissing(path)
    return Upload(name=name or full.name, content=content)


def _save(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
