"""Logging: one line per record, with secrets masked."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
NOISY_LOGGERS = (
    "alembic",
    "apscheduler",
    "httpx",
    "httpx2",
    "httpcore",
    "procrastinate",
    "telegram",
    "websockets",
    "uvicorn",
    "aiosqlite",
    "openai",
    "anthropic",
)
# The MCP SDK logs what foreign servers sent, of any length and with what they were given.
_SILENT_LOGGERS = ("mcp", "client")
_MIB = 2**20
LOG_FILE = "logs/shiftboss.log"
_MAX_READ_BYTES = 64_000


class RedactingFormatter(logging.Formatter):
    """Masks secrets in the formatted record, including the traceback."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__(_FORMAT)
        self.redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self.redact(super().format(record))


class JsonFormatter(RedactingFormatter):
    """One object a line: `time` in UTC, `level`, `logger`, `text`, and `error` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "text": self.redact(record.getMessage()),
        }
        if record.exc_info:
            line["error"] = self.redact(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


class _LogFile(RotatingFileHandler):
    """Reports no errors, as on a full disk: standard error receives the same lines."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        pass


def replace_redaction(redact: Callable[[str], str]) -> None:
    """Mask with this from now on, in the logs that `configure_logging` has set up."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, RedactingFormatter):
            handler.formatter.redact = redact


def configure_logging(
    level: str,
    redact: Callable[[str], str],
    home: Path,
    *,
    as_json: bool = False,
    megabytes: float = 5,
    files: int = 3,
) -> None:
    """Log to standard error and to a file in the data directory, which begins anew at this size;
    so many older ones stay. `redact` masks secrets."""
    formatter = JsonFormatter(redact) if as_json else RedactingFormatter(redact)
    file = home / LOG_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    to_file = _LogFile(file, maxBytes=int(megabytes * _MIB), backupCount=files, encoding="utf-8")
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
