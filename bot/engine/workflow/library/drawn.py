"""A workflow drawn: Mermaid text, and a picture under the data directory."""

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

from bot.engine.workflow.model.shape import Workflow
from bot.engine.workflow.shown.drawing import mermaid, svg
from cards.words import Words
from storage.records.workers.workflows import Drawn

log = logging.getLogger(__name__)

_PLACE = Path("files", "workflows")
_DAY = 86_400.0
UNUSED_DAYS = 30
"""Drawn again, a picture is as new: only cards of long ago lose theirs."""

_HELD = threading.Lock()
"""Nothing is removed while it is shown once more."""


def draw(home: Path, workflow: Workflow, words: Words) -> Drawn:
    """Blocking. Without the picture where it cannot be written."""
    text = mermaid(workflow, words=words)
    picture = svg(workflow, words=words)
    path = _PLACE / f"{hashlib.sha256(picture.encode()).hexdigest()[:16]}.svg"
    whole = home / path
    try:
        with _HELD:
            _put(whole, picture)
    except OSError:
        return Drawn(mermaid=text)
    return Drawn(mermaid=text, svg=path.as_posix(), size=len(picture.encode()))


def _put(whole: Path, picture: str) -> None:
    """The same picture is the same file."""
    with suppress(FileNotFoundError):
        os.utime(whole)
        return
    whole.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = whole.with_name(f".{whole.name}.{os.getpid()}.new")
    new.write_text(picture, encoding="utf-8")
    new.replace(whole)


@dataclass(slots=True, kw_only=True)
class Drawings:
    """The pictures under the data directory. Satisfies `lifecycle.Service`: it looks at the start
    and every day."""

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
                log.warning("old drawings of workflows cannot be removed now: %s", error)
            await self.sleep(_DAY)

    def prune(self) -> int:
        """Remove those that nobody has asked for in long, and what a death left half written; how
        many. Blocking."""
        place = self.home / _PLACE
        if place.is_symlink() or not place.is_dir():
            return 0
        before = self.now() - UNUSED_DAYS * _DAY
        gone = 0
        for each in (*place.glob("*.svg"), *place.glob(".*.new")):
            with _HELD, suppress(FileNotFoundError):
                if each.lstat().st_mtime < before:
                    each.unlink()
                    gone += 1
        return gone
