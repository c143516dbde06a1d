"""Logging: one line per record, with secrets masked."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
NOISY_LOGGERS = (
    "alembic",
    "apscheduler",
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
# The MCP SDK logs what foreign servers sent, of any length and with what they were given.
_SILENT_LOGGERS = ("mcp", "client")
_FILE_BYTES = 5_000_000
_FILE_COUNT = 3
LOG_FILE = "logs/shiftboss.log"
_MAX_READ_BYTES = 64_000


class RedactingFormatter(logging.Formatter):
    """Masks secrets in the formatted record, including the traceback."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))


class _LogFile(RotatingFileHandler):
    """Reports no errors, as on a full disk: standard error receives the same lines."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        pass


def replace_redaction(redact: Callable[[str], str]) -> None:
    """Mask with this from now on, in the logs that `configure_logging` has set up."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, RedactingFormatter):
            handler.setFormatter(RedactingFormatter(redact))


def configure_logging(level: str, redact: Callable[[str], str], home: Path) -> None:
    """Log to standard error and to a file in the data directory; `redact` masks secrets."""
    formatter = RedactingFormatter(redact)
    file = home / LOG_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    to_file = _LogFile(file, maxBytes=_FILE_BYTES, backupCount=_FILE_COUNT, encoding="utf-8")
    root = logging.getLogger()
    root.setLevel(level)
    root.handlers.clear()
    for handler in (logging.StreamHandler(sys.stderr), to_file):
        handler.setFormatter(formatter)
        root.addHandler(handler)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in _SILENT_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def read_newest_lines(home: Path, limit: int) -> Sequence[str]:
    """The newest lines of the log file, the newest first; no more than fit into 64 kB. Blocking."""
    try:
        with (home / LOG_FILE).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MAX_READ_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    whole = lines[1:] if size > _MAX_READ_BYTES else lines
    return whole[::-1][:limit]
