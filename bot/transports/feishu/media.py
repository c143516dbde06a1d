"""Pictures and files, up and down."""

from __future__ import annotations

import asyncio
import mimetypes
import re
from pathlib import Path

from bot.transports.base import TooLarge
from bot.transports.feishu.api import Download, FeishuApi, Upload, segment
from bot.transports.feishu.errors import FeishuError
from storage.records.messages import RemoteFile

MAX_FETCH = 20 * 1024 * 1024
_MAX_IMAGE = 10 * 1024 * 1024
_MAX_FILE = 30 * 1024 * 1024
_TYPES = {
    ".opus": "opus",
    ".mp4": "mp4",
    ".pdf": "pdf",
    ".doc": "doc",
    ".docx": "doc",
    ".xls": "xls",
    ".xlsx": "xls",
    ".ppt": "ppt",
    ".pptx": "ppt",
}
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|]")


class Unsendable(Exception):
    """A file that is not there, is empty, or is larger than the platform takes."""


class Media:
    def __init__(self, api: FeishuApi, home: Path) -> None:
        self._api = api
        self._home = home

    async def upload_image(self, path: str) -> str:
        """The key of the picture at `path` in the data directory."""
        data = await asyncio.to_thread(self._read, path, _MAX_IMAGE)
        upload = Upload(
            fields={"image_type": "message"}, name="image", filename=Path(path).name, data=data
        )
        return await self._upload("/im/v1/images", upload, "image_key")

    async def upload_file(self, path: str, name: str) -> str:
        data = await asyncio.to_thread(self._read, path, _MAX_FILE)
        kind = _TYPES.get(Path(name).suffix.lower(), "stream")
        fields = {"file_type": kind, "file_name": name}
        upload = Upload(fields=fields, name="file", filename=name, data=data)
        return await self._upload("/im/v1/files", upload, "file_key")

    async def fetch(self, file: RemoteFile, into: Path) -> Path:
        """Download what a person sent into the folder, under a name that is safe and free."""
        if file.size > MAX_FETCH:
            raise TooLarge(f"{file.size} bytes")
        reference = file.reference
        message, key = segment(reference["message_id"]), segment(reference["key"])
        found = await self._api.download(
            f"/im/v1/messages/{message}/resources/{key}", {"type": reference["type"]}, MAX_FETCH
        )
        return await asyncio.to_thread(_write, into, file.name, found)

    async def _upload(self, path: str, upload: Upload, key: str) -> str:
        answer = await self._api.call("POST", path, upload=upload, unseen=True)
        found = str((answer.get("data") or {}).get(key, ""))
        if not found:
            raise FeishuError(-1, f"uploaded, but the answer has no {key}", status=502)
        return found

    def _read(self, path: str, limit: int) -> bytes:
        home = self._home.resolve()
        try:
            target = (home / path).resolve()
            if not target.is_relative_to(home):
                raise Unsendable("outside the data directory")
            if target.stat().st_size > limit:
                raise Unsendable(f"larger than {limit // 1024 // 1024} MB")
            data = target.read_bytes()
        except (OSError, ValueError) as error:
            raise Unsendable("cannot be read") from error
        if not data:
            raise Unsendable("empty")
        return data


def _named(name: str, kind: str) -> str:
    """Images come without a name: what they are decides the ending."""
    safe = _UNSAFE.sub("_", name).strip(". ")[-120:] or "file"
    if Path(safe).suffix:
        return safe
    return safe + (mimetypes.guess_extension(kind.partition(";")[0].strip()) or "")


def _write(into: Path, wanted: str, found: Download) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    name = _named(wanted, found.kind)
    stem, ending = Path(name).stem, Path(name).suffix
    number = 1
    while True:
        target = into / (name if number == 1 else f"{stem}-{number}{ending}")
        try:
            with target.open("xb") as out:
                out.write(found.data)
        except FileExistsError:
            number += 1
        else:
            return target
