"""Which files a model can look at: told by their bytes, because names and platforms err."""

from __future__ import annotations

import struct
from pathlib import Path

_LONGEST_MARK = 12
_LONGEST_HEAD = 256 * 1024
_SEGMENT = 0xFF
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WEBP = (b"RIFF", b"WEBP")
_MARKS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def picture_kind(path: Path) -> str:
    """The media type of a picture in a form that models take; empty for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(_LONGEST_MARK)
    except OSError:
        return ""
    if head[:4] == _WEBP[0] and head[8:12] == _WEBP[1]:
        return "image/webp"
    return next((kind for mark, kind in _MARKS.items() if head.startswith(mark)), "")


def picture_size(path: Path) -> tuple[int, int] | None:
    """Width and height in pixels by the file's own head; None where it does not tell."""
    try:
        with path.open("rb") as file:
            head = file.read(_LONGEST_HEAD)
    except OSError:
        return None
    if head.startswith(b"\x89PNG"):
        return _pair(head[16:24], ">II")
    if head.startswith(b"GIF8"):
        return _pair(head[6:10], "<HH")
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(head)
    if head[:4] == _WEBP[0] and head[8:12] == _WEBP[1]:
        return _webp_size(head)
    return None


def _pair(data: bytes, form: str) -> tuple[int, int] | None:
    if len(data) != struct.calcsize(form):
        return None
    wide, high = struct.unpack(form, data)
    return wide, high


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """From the frame header, past the segments before it."""
    at = 2
    while at + 9 <= len(head) and head[at] == _SEGMENT:
        kind = head[at + 1]
        if kind in _FRAMES:
            size = _pair(head[at + 5 : at + 9], ">HH")
            return (size[1], size[0]) if size else None
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """From the first chunk of each of the three kinds of WebP file."""
    match head[12:16]:
        case b"VP8X":
            wide, high = (int.from_bytes(head[n : n + 3], "little") for n in (24, 27))
            return wide + 1, high + 1
        case b"VP8L":
            bits = int.from_bytes(head[21:25], "little")
            return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
        case b"VP8 ":
            size = _pair(head[26:30], "<HH")
            return (size[0] & 0x3FFF, size[1] & 0x3FFF) if size else None
        case _:
            return None
