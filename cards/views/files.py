"""Files on cards."""

from __future__ import annotations

from pathlib import PurePath

from cards.model import File, Image

_PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp"}


def attached(path: str, size: int) -> Image | File:
    """A file of the data directory: shown if it is a picture, else attached."""
    name = PurePath(path).name
    if PurePath(path).suffix.lower() in _PICTURES:
        return Image(path=path, alt=name)
    return File(path=path, name=name, size=size)
