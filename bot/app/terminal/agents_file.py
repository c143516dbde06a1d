"""The rules of the working method, added to the AGENTS.md that other agents read."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from cards.words import words_for
from handlers.language import guessed
from storage.records.people import Language

_NAMED = re.compile(r"\bshiftboss\s+task\b")
_WORKSPACE = "OPENCLAW_WORKSPACE"
_NEW_MODE = 0o644


class AgentsFileFailure(Exception):
    """The file was left as it was. The text says why, and what to do."""


def agents_file() -> Path:
    """That of the workspace the environment names, else that of the folder one stands in."""
    workspace = os.environ.get(_WORKSPACE, "").strip()
    return (Path(workspace).expanduser() if workspace else Path.cwd()) / "AGENTS.md"


def inject(path: Path, language: str = "") -> str:
    """Add the rules at the end, unless the file names `shiftboss task` already; what was done, in
    a line. All else in the file stays, and it is replaced whole or not at all. `language` empty
    means the file's own."""
    path = path.expanduser()
    try:
        before = _read(path)
        chosen = Language(language) if language else guessed(before) or Language.ENGLISH
        words = words_for(chosen)
        if _NAMED.search(before):
            return words("agents.there", path=path)
        # Through a link, not in its place.
        _write(path.resolve(), _joined(before, words("agents.rules")))
    except UnicodeDecodeError as error:
        raise AgentsFileFailure(f"{path} is not UTF-8 text and was left as it is") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise AgentsFileFailure(f"{path} cannot be written ({why})") from error
    return words("agents.added" if before else "agents.made", path=path)


def _read(path: Path) -> str:
    try:
        # As bytes: the file's own line ends stay.
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""


def _joined(before: str, rules: str) -> str:
    end = "\r\n" if "\r\n" in before else "\n"
    added = rules.strip().replace("\n", end) + end
    if not before.strip():
        return added
    gap = end if before.endswith("\n") else end * 2
    return before + gap + added


def _write(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else _NEW_MODE
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
