"""Logs: one line a record, secrets masked wherever they turn up."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable
from logging.handlers import RotatingFileHandler
from pathlib import Path

MASK = "••••"
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
# Masking shorter values would garble every line and hide nothing.
_SHORTEST = 4

# Shapes of secrets that nobody configured here: a Telegram token, model API keys.
_SHAPES = re.compile(r"(?<!\d)\d{8,10}:[\w-]{35}|\bsk-[\w-]{16,}\b")


class Masking(logging.Formatter):
    """Formats a record, traceback included, and takes every secret out of the result."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__(_FORMAT)
        self._secrets = sorted(
            {each for each in secrets if len(each) >= _SHORTEST}, key=len, reverse=True
        )

    def format(self, record: logging.LogRecord) -> str:
        return self.mask(super().format(record))

    def mask(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return _SHAPES.sub(MASK, text)


class _LogFile(RotatingFileHandler):
    """The same lines go to standard error: a full disk needs no second complaint for each."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        pass


def set_up_logs(level: str, secrets: Iterable[str], folder: Path) -> Masking:
    """Log to standard error and to `shiftboss.log` in the folder."""
    masking = Masking(secrets)
    folder.mkdir(parents=True, exist_ok=True)
    to_file = _LogFile(
        folder / "shiftboss.log", maxBytes=_FILE_BYTES, backupCount=_FILES, encoding="utf-8"
    )
    root = logging.getLogger()
    root.setLevel(level)
    root.handlers.clear()
    for handler in (logging.StreamHandler(sys.stderr), to_file):
        handler.setFormatter(masking)
        root.addHandler(handler)
    for name in _LOUD:
        logging.getLogger(name).setLevel(logging.WARNING)
    return masking
