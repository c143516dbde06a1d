"""The web chat's access token: configured, or generated once in the data directory."""

from __future__ import annotations

import hmac
import secrets
from pathlib import Path

from storage.data_directory import write_private_file

_FILE_NAME = "web-token"


def load_or_create_token(home: Path) -> str:
    """The data directory's token, created at the first call, readable by its owner only."""
    path = home / _FILE_NAME
    known = read_token(home)
    if known:
        return known
    made = secrets.token_urlsafe(32)
    write_private_file(path, made.encode())
    return made


def read_token(home: Path) -> str:
    """The existing token, or empty; for commands that contact a running Shiftboss."""
    try:
        return (home / _FILE_NAME).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def tokens_equal(given: str, right: str) -> bool:
    """Constant-time comparison."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())
