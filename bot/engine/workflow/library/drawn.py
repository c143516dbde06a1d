"""A workflow drawn: Mermaid text, and a picture under the data directory."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from bot.engine.workflow.model.shape import Workflow
from bot.engine.workflow.shown.drawing import mermaid, svg
from cards.words import Words
from storage.records.workers.workflows import Drawn

_PLACE = Path("files", "workflows")


def draw(home: Path, workflow: Workflow, words: Words) -> Drawn:
    """Blocking. Without the picture where it cannot be written."""
    text = mermaid(workflow, words=words)
    picture = svg(workflow, words=words)
    path = _PLACE / f"{hashlib.sha256(picture.encode()).hexdigest()[:16]}.svg"
    whole = home / path
    try:
        whole.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not whole.exists():
            new = whole.with_name(f".{whole.name}.{os.getpid()}.new")
            new.write_text(picture, encoding="utf-8")
            new.replace(whole)
    except OSError:
        return Drawn(mermaid=text)
    with suppress(OSError):
        os.utime(whole)
    return Drawn(mermaid=text, svg=path.as_posix(), size=len(picture.encode()))
