"""Writes settings to a `.env` file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path

from dotenv.parser import parse_stream

from storage.data_directory import fsync_path, write_draft

_PLAIN = re.compile(r"[\w.:/@,+-]*", re.ASCII)


class EnvFileError(Exception):
    """The file was not changed. The text says why, without any value."""


def write_env_file(
    path: Path, changes: Mapping[str, str], *, check: Callable[[Path], None] | None = None
) -> None:
    """Set the variables, or remove those with an empty value, and keep all other lines. The file is
    replaced atomically and readable by its owner only. `check` gets a draft of it; what it raises
    leaves the file as it is. Blocking. Raises EnvFileError."""
    path = path.resolve()  # the target of a link is replaced, not the link
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        with write_draft(path, change_lines(before, changes).encode()) as draft:
            if check is not None:
                check(draft)
            draft.replace(path)
        fsync_path(path.parent)
    except UnicodeDecodeError as error:
        raise EnvFileError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise EnvFileError(f"{path} cannot be written ({error.strerror or error})") from error


def change_lines(text: str, changes: Mapping[str, str]) -> str:
    """The text of the file with the changes. A variable keeps its place; new ones stand at the end.
    Raises EnvFileError for a value that a line cannot hold."""
    # Names of settings are read without regard to case.
    left = {name.upper(): (name, value) for name, value in changes.items()}
    known, parts = set(left), []
    for found in parse_stream(StringIO(text)):
        key = (found.key or "").upper()
        if key not in known:
            parts.append(found.original.string)
        elif (change := left.pop(key, None)) is not None and change[1]:
            # A line's text begins with the blank lines before it.
            blank = re.match(r"\s*", found.original.string)
            parts.append(f"{blank.group() if blank else ''}{_write_line(*change)}")
    kept = "".join(parts)
    if kept and not kept.endswith("\n"):
        kept += "\n"
    return kept + "".join(_write_line(*each) for each in left.values() if each[1])


def _write_line(name: str, value: str) -> str:
    if not value.isprintable() or "${" in value:
        raise EnvFileError(f"{name} cannot be written: it has signs that no line can hold")
    if _PLAIN.fullmatch(value):
        return f"{name}={value}\n"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name}='{quoted}'\n"
