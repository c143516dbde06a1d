"""Which files a model can look at: told by their bytes, because names and platforms err."""

from __future__ import annotations

from pathlib import Path

_LONGEST_MARK = 12
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
