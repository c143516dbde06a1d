"""The web chat's key: chosen in the settings, else made once and kept in the data directory."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

_FILE = "web-token"


def own_token(home: Path) -> str:
    """The token of this data directory, made at the first call. Only its owner can read it."""
    path = home / _FILE
    known = read_token(home)
    if known:
        return known
    made = secrets.token_urlsafe(32)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(made)
    draft.replace(path)
    return made


def read_token(home: Path) -> str:
    """The token if there is one, else empty: for a command that speaks to a running program."""
    try:
        return (home / _FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def same(given: str, right: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


def cookie_value(token: str) -> str:
    """What the browser keeps: proves the token was known without being it."""
    return hmac.new(token.encode(), b"shiftboss web cookie", hashlib.sha256).hexdigest()
