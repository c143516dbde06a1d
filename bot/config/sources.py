"""Where settings come from: which file has a name, names that no setting has, and what differs
between two readings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel

FileStamp: TypeAlias = tuple[int, int] | None

_PREFIX = "SHIFTBOSS_"
# Set by the program itself for what it starts.
_OWN_VARIABLES = frozenset({"SHIFTBOSS_RUN", "SHIFTBOSS_MCP_TOKEN", "SHIFTBOSS_MCP_PORT"})


def suggest_name(name: str, known: Collection[str]) -> str:
    """Advice about a name that is not known."""
    near = get_close_matches(name, known, n=1, cutoff=0.75)
    return f"did you mean {near[0]}?" if near else "`shiftboss init --example` lists them"


def read_example() -> str:
    """A `.env` file with every setting, its default, and what it is for. Blocking."""
    packed = files("bot.config").joinpath("env.example")
    unpacked = files("bot").joinpath("..", ".env.example")
    return (packed if packed.is_file() else unpacked).read_text(encoding="utf-8")


def list_unknown_variables(environ: Mapping[str, str], known: Collection[str]) -> Sequence[str]:
    """One line for each variable that looks like a setting and is none."""
    return [
        f"{name} in the environment: there is no such setting; {suggest_name(name, known)}"
        for name in sorted(environ)
        if name.startswith(_PREFIX) and name not in known and name not in _OWN_VARIABLES
    ]


def find_env_file(name: str, env_files: Iterable[Path]) -> Path | None:
    """The last file with this name, whose value wins."""
    # Comes with pydantic-settings, which reads the files with it.
    from dotenv import dotenv_values

    found = None
    for file in env_files:
        if file.is_file() and any(
            each.casefold() == name.casefold() for each in dotenv_values(file, encoding="utf-8")
        ):
            found = file
    return found


def list_bad_lines(env_files: Iterable[Path]) -> Sequence[str]:
    """One line for each that is no NAME=value, without its content, which may be a secret."""
    from dotenv.parser import parse_stream

    bad = []
    for file in env_files:
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace") as stream:
                lines = [each.original.line for each in parse_stream(stream) if each.error]
            bad += [f"line {line} of {file.absolute()} is not NAME=value" for line in lines]
    return bad


def read_stamps(files: Iterable[Path]) -> Sequence[FileStamp]:
    """Changes whenever a file is written; None for a file that is not there. Blocking."""
    return [_read_stamp(each) for each in files]


def _read_stamp(file: Path) -> FileStamp:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def list_differences(old: BaseModel, new: BaseModel) -> Sequence[str]:
    """The names of the fields whose values differ."""
    return [name for name in type(old).model_fields if getattr(old, name) != getattr(new, name)]


def database_passwords(url: str) -> Iterator[str]:
    """The passwords in a URL, as they stand there and as they are meant."""
    parts = urlsplit(url)
    found = [value for name, value in parse_qsl(parts.query) if name.lower().endswith("password")]
    found += [each.partition("=")[2] for each in parts.query.split("&") if "password=" in each]
    found += [parts.password, unquote(parts.password)] if parts.password else []
    yield from dict.fromkeys(found)
