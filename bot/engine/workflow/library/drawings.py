"""Stored drawings of workflows: Mermaid text, and an SVG file in the data directory."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from bot.engine.workflow.definition import Workflow
from bot.engine.workflow.presentation.drawing import render_mermaid, render_svg
from cards.catalog import TextCatalog
from storage.records.workflows import WorkflowDrawing

log = logging.getLogger(__name__)

_DRAWINGS_FOLDER = Path("files", "workflows")
_DAY_SECONDS = 86_400.0
UNUSED_DAYS = 30
"""Days after its last use before a picture is deleted."""

_FILES_LOCK = threading.Lock()
"""Prevents removing a picture while it is being reused."""


def save_drawing(home: Path, workflow: Workflow, words: TextCatalog) -> WorkflowDrawing:
    """Blocking. Returns no picture if it cannot be written."""
    text = render_mermaid(workflow, words)
    picture = render_svg(workflow, words)
    path = _DRAWINGS_FOLDER / f"{hashlib.sha256(picture.encode()).hexdigest()[:16]}.svg"
    whole = home / path
    try:
        with _FILES_LOCK:
            _write_picture(whole, picture)
    except OSError:
        return WorkflowDrawing(mermaid=text)
    return WorkflowDrawing(mermaid=text, svg=path.as_posix(), size=len(picture.encode()))


def _write_picture(whole: Path, picture: str) -> None:
    """The name is a hash of the content, so an existing file only needs a new timestamp."""
    with suppress(FileNotFoundError):
        os.utime(whole)
        return
    whole.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = whole.with_name(f".{whole.name}.{os.getpid()}.new")
    new.write_text(picture, encoding="utf-8")
    new.replace(whole)


@dataclass(slots=True, kw_only=True)
class DrawingCleaner:
    """Deletes unused pictures at start and once a day. Satisfies `lifecycle.Service`."""

    home: Path
    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    name: str = "drawings"

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare."""

    async def run(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self.prune)
            except OSError as error:
                log.warning("cannot remove old workflow drawings now: %s", error)
            await self.sleep(_DAY_SECONDS)

    def prune(self) -> int:
        """Delete unused pictures and incomplete files; return how many. Blocking."""
        place = self.home / _DRAWINGS_FOLDER
        if place.is_symlink() or not place.is_dir():
            return 0
        before = self.now() - UNUSED_DAYS * _DAY_SECONDS
        gone = 0
        for each in (*place.glob("*.svg"), *place.glob(".*.new")):
            with _FILES_LOCK, suppress(FileNotFoundError):
                if each.lstat().st_mtime < before:
                    each.unlink()
                    gone += 1
        return gone
