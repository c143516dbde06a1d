"""Files exchanged with platforms: limits, safe names, and access to the data directory."""

from __future__ import annotations

import re
from pathlib import Path

from bot.transports.ports import FileTooLarge

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
