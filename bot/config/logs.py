"""Logs: one line a record, secrets masked wherever they turn up."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_LOUD = (
    "alembic",
    "httpx",
    "httpx2",
    "httpcore",
    "telegram",
    "websockets",
    "uvicorn",
    "aiosqlite",
    "openai",
    "anthropic",
)
_FILE_BYTES = 5_000_000
_FILES = 3


class Masked(logging.Formatter):
    """Formats a record, traceback included, and masks the result."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask(super().format(record))


class _LogFile(RotatingFileHandler):
    """The same lines go to standard error: a full disk needs no second complaint for each."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        pass


def set_up_logs(level: str, mask: Callable[[str], str], folder: Path) -> None:
    """Log to standard error and to `shiftboss.log` in the folder; `mask` takes secrets out."""
    formatter = Masked(mask)
    folder.mkdir(parents=True, exist_ok=True)
    to_file = _LogFile(
        folder / "shiftboss.log", maxBytes=_FILE_BYTES, backupCount=_FILES, encoding="utf-8"
    )
    root = logging.getLogger()
    root.setLevel(level)
    root.handlers.clear()
    for handler in (logging.StreamHandler(sys.stderr), to_file):
        handler.setFormatter(formatter)
        root.addHandler(handler)
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
