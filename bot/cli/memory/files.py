"""Files of memories, from wherever a shell stands: the program itself looks only below its own
folder."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from bot.cli.failures import told
from bot.cli.speak import fail

_FOLDER = "exports"


def taken_out(data: Any, file: str) -> tuple[str, Any]:
    """What was written out, put where it was wanted: as text, and as JSON."""
    made, count = _home() / data["path"], data["entries"]
    if file == "-":
        with made.open("rb") as lines:
            shutil.copyfileobj(lines, sys.stdout.buffer)
        made.unlink()
        sys.stdout.flush()
        raise typer.Exit
    if file:
        try:
            made = Path(shutil.move(made, Path(file).expanduser().resolve()))
        except OSError as error:
            fail(f"{file} cannot be written ({error.strerror}); it is in {made}")
    return f"{count} entries in {made}", {**data, "path": str(made)}


@contextmanager
def brought_in(file: str, *, as_json: bool) -> Iterator[str]:
    """Its name below the data folder; what lies elsewhere is there for as long as it is needed."""
    with told(as_json=as_json):
        home = _home().resolve()
    found = next((each for each in (Path(file).expanduser(), home / file) if each.is_file()), None)
    if found is None:
        fail(f"{file} cannot be read (no such file)", as_json=as_json, status=2)
    found = found.resolve()
    if found.is_relative_to(home):
        yield str(found.relative_to(home))
        return
    lent = home / _FOLDER / f"{secrets.token_hex(8)}.jsonl"
    try:
        lent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with found.open("rb") as outside, open(lent, "xb", opener=_private) as inside:
            shutil.copyfileobj(outside, inside)
    except OSError as error:
        fail(f"{file} cannot be read ({error.strerror})", as_json=as_json, status=2)
    try:
        yield str(lent.relative_to(home))
    finally:
        lent.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _home() -> Path:
    # Loaded here and not above, so that `--help` stays quick.
    from bot.config.settings import load_settings

    return load_settings().home
