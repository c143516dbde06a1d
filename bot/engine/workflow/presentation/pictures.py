"""Pictures for chats: rendered from drawings, and kept in the data directory while they
are used.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from unicodedata import east_asian_width

from bot.engine.workflow.definition import Workflow
from cards.catalog import TextCatalog
from storage.records.workflows import WorkflowDrawing

_DRAWINGS_FOLDER = Path("files", "workflows")
REPORTS_FOLDER = Path("files", "reports")
_DAY_SECONDS = 86_400.0
UNUSED_DAYS = 30
"""Days after its last use before a picture is deleted."""

_FILES_LOCK = threading.Lock()
"""Prevents removing a picture while it is being reused."""


_GENERIC_FONTS = "system-ui, sans-serif"
_SANS_FONTS = (
    "Noto Sans CJK SC, Noto Sans SC, Source Han Sans SC, PingFang SC, Microsoft YaHei, "
    "WenQuanYi Zen Hei, WenQuanYi Micro Hei, Droid Sans Fallback"
)
_ZOOM = 2.0
_MAX_SIDE = 5_000.0
"""Pixels: Telegram takes photos whose width and height are at most 10,000 together."""
_MAX_RATIO = 18.0
_SIDES = ("width", "height")

_FONT_FOLDERS = (
    *("/usr/share/fonts", "/usr/local/share/fonts", "~/.fonts", "~/.local/share/fonts"),
    *("/System/Library/Fonts", "/Library/Fonts", "C:/Windows/Fonts"),
)
_CHINESE_FONTS = (
    *("cjk", "wqy", "hei", "song", "pingfang", "msyh", "simsun", "fallback", "sourcehan"),
    *("hansans", "hanserif", "uming", "ukai"),
)


def save_drawing(home: Path, workflow: Workflow, words: TextCatalog) -> WorkflowDrawing:
    """Store a drawing. Without a picture if it cannot be written. Blocking."""
    # Imported on first use, with the layout.
    from bot.engine.workflow.presentation.drawing import render_mermaid, render_svg

    text, svg = render_mermaid(workflow, words), render_svg(workflow, words)
    return save_picture(home, svg, mermaid=text)


def save_picture(home: Path, svg: str, *, mermaid: str = "") -> WorkflowDrawing:
    """Store a drawing with a PNG of it, as far as they can be made and written. Blocking."""
    data, png = svg.encode(), render_png(svg)
    try:
        path = store_picture(home, _DRAWINGS_FOLDER, data, ".svg")
        picture = store_picture(home, _DRAWINGS_FOLDER, png, ".png") if png else ""
    except OSError:
        return WorkflowDrawing(mermaid=mermaid)
    return WorkflowDrawing(mermaid=mermaid, svg=path, size=len(data), png=picture)


def render_png(svg: str) -> bytes | None:
    """A drawing as a picture in its light colours; None if it would be too long for a chat, or if
    no font has its characters."""
    if not _has_fonts_for(svg):
        return None
    # Imported on first use: a renderer in native code.
    import resvg_py

    width, height = _size_of(svg)
    if max(width, height) > _MAX_RATIO * min(width, height):
        return None
    zoom = min(_ZOOM, _MAX_SIDE / max(width, height))
    if not svg.isascii():
        svg = svg.replace(_GENERIC_FONTS, f"{_SANS_FONTS}, {_GENERIC_FONTS}", 1)
    try:
        return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom))
    except ValueError:
        return None


def _size_of(svg: str) -> tuple[float, float]:
    head = svg[: svg.index(">")]
    width, height = (float(head.split(f' {name}="')[1].split('"')[0]) for name in _SIDES)
    return width, height


def _has_fonts_for(svg: str) -> bool:
    return has_chinese_font() or not any(east_asian_width(char) in "WF" for char in svg)


@cache
def has_chinese_font() -> bool:
    """Whether a picture with Chinese characters can be made. Blocking, once."""
    for folder in _FONT_FOLDERS:
        for _, _, names in os.walk(Path(folder).expanduser()):
            if any(part in name.casefold() for name in names for part in _CHINESE_FONTS):
                return True
    return False


def store_export(home: Path, data: bytes) -> str:
    """Like `store_picture`, for an exported workflow."""
    return store_picture(home, _DRAWINGS_FOLDER, data, ".yaml")


def store_picture(home: Path, folder: Path, picture: bytes, suffix: str) -> str:
    """Store a picture in this folder of the data directory, where `prune_pictures` deletes it once
    it is unused. Return its path. Blocking. Raises OSError.
    """
    path = folder / f"{hashlib.sha256(picture).hexdigest()[:16]}{suffix}"
    with _FILES_LOCK:
        _write_picture(home / path, picture)
    return path.as_posix()


def _write_picture(whole: Path, picture: bytes) -> None:
    """Write a picture under the hash of its content; an existing file only needs a new
    timestamp.
    """
    with suppress(FileNotFoundError):
        os.utime(whole)
        return
    whole.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = whole.with_name(f".{whole.name}.{os.getpid()}.new")
    new.write_bytes(picture)
    new.replace(whole)


def prune_pictures(home: Path, now: Callable[[], float] = time.time) -> int:
    """Delete unused pictures and incomplete files; return how many. Blocking. Raises OSError."""
    before = now() - UNUSED_DAYS * _DAY_SECONDS
    return sum(_prune(home / each, before) for each in (_DRAWINGS_FOLDER, REPORTS_FOLDER))


def _prune(place: Path, before: float) -> int:
    if place.is_symlink() or not place.is_dir():
        return 0
    gone = 0
    for each in (
        each for ending in ("*.svg", "*.png", "*.yaml", ".*.new") for each in place.glob(ending)
    ):
        with _FILES_LOCK, suppress(FileNotFoundError):
            if each.lstat().st_mtime < before:
                each.unlink()
                gone += 1
    return gone
