"""Checks whether files of well-known text formats can be parsed, and which of a folder can.

Files are hostile: nothing in them is executed, expanded or fetched, and sizes are bounded. All
functions block."""

from __future__ import annotations

import ast
import csv
import json
import re
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType

import yaml

from bot.engine.llm import workspace_files as folder

MAX_BYTES = 100_000
"""Of one file; a larger one is not judged."""

MAX_FILES = 60
MAX_TOTAL_BYTES = 250_000
"""Of one folder."""

_MAX_ENTRIES = 2_000
_MAX_NESTING = 150
_MAX_DOTS = 100
_MAX_FAULT = 200
_MAX_TEXT = 20_000
_BRACKETS = MappingProxyType({**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)})


def find_syntax_fault(name: str, data: bytes) -> str | None:
    """Return why the file can't be parsed, in English and on one line: empty if it can. None if it
    is not judged: of no known format, too large or too deep, or with entities of its own."""
    known = _FORMATS.get(PurePosixPath(name).suffix.casefold())
    if known is None or len(data) > MAX_BYTES:
        return None
    kind, parse = known
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return f"not {kind}: not UTF-8 text"
    try:
        parse(text)
    except _NotJudged:
        return None
    except _SyntaxFault as fault:
        return f"not valid {kind}: {' '.join(str(fault).split())}"[:_MAX_FAULT]
    return ""


class _NotJudged(Exception):
    """Whether the text is right can't be told."""


class _SyntaxFault(Exception):
    """The reason."""


_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*+"?|//[^\n]*|/\*(?:.*?\*/|.*)', re.DOTALL)
"""A string or comment that is not closed is taken to the end: else the time would be quadratic."""
_TRAILING_COMMA = re.compile(r",(?=\s*[}\]])")


def _parse_json(text: str) -> None:
    """Some programs allow comments in their settings, and trailing commas with them."""
    plain = _STRING_OR_COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else "", text)
    if plain != text:
        plain = _TRAILING_COMMA.sub("", plain)
    try:
        # As text, because numbers of many digits are slow to convert.
        json.loads(plain, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        raise _SyntaxFault(str(error)) from error
    except RecursionError as error:
        raise _NotJudged from error


def _parse_toml(text: str) -> None:
    # The time for a key is quadratic in its parts.
    if any(line.count(".") > _MAX_DOTS for line in text.split("\n")):
        raise _NotJudged
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _SyntaxFault(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _NotJudged from error


def _parse_yaml(text: str) -> None:
    """Events only: aliases are not followed, and tags not looked at."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for _ in yaml.parse(text, Loader=loader):
            pass
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise _SyntaxFault(f"{error.problem or error.context}{line}") from error
    except yaml.YAMLError as error:
        raise _SyntaxFault("it has characters that YAML does not allow") from error


def _parse_ini(text: str) -> None:
    import configparser  # rarely needed

    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text, source="it")
    except configparser.MissingSectionHeaderError as error:
        raise _SyntaxFault(f"line {error.lineno} stands in no [section]") from error
    except configparser.Error as error:
        raise _SyntaxFault(str(error)) from error


_WARNINGS_LOCK = threading.Lock()


def _parse_python(text: str) -> None:
    if _nesting(text) > _MAX_NESTING:
        raise _NotJudged
    # The parser warns of strange escapes, which are no fault; the filters belong to all threads.
    with _WARNINGS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except SyntaxError as error:
            raise _SyntaxFault(f"{error.msg} (line {error.lineno})") from error
        except ValueError as error:
            raise _SyntaxFault(str(error)) from error
        except (RecursionError, MemoryError) as error:
            raise _NotJudged from error


def _nesting(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth = max(0, depth + _BRACKETS.get(character, 0))
        deepest = max(deepest, depth)
    return deepest


def _parse_xml(text: str) -> None:
    def refuse(*_: object) -> None:
        raise _NotJudged

    from xml.parsers import expat  # rarely needed

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise _SyntaxFault(str(error)) from error


def _parse_table(delimiter: str) -> Callable[[str], None]:
    """A table has as many fields in each line as in its first one."""

    def parse(text: str) -> None:
        rows = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=True)
        width = 0
        try:
            for row in filter(None, rows):
                width = width or len(row)
                if width == 1:
                    raise _NotJudged
                if len(row) != width:
                    found = f"line {rows.line_num} has {len(row)} fields, the header has {width}"
                    raise _SyntaxFault(found)
        except csv.Error as error:
            if "field larger" in str(error):
                raise _NotJudged from error
            raise _SyntaxFault(str(error)) from error
        if not width:
            raise _NotJudged

    return parse


_FORMATS: Mapping[str, tuple[str, Callable[[str], None]]] = {
    ".json": ("JSON", _parse_json),
    ".toml": ("TOML", _parse_toml),
    ".yaml": ("YAML", _parse_yaml),
    ".yml": ("YAML", _parse_yaml),
    ".ini": ("INI", _parse_ini),
    ".cfg": ("INI", _parse_ini),
    ".py": ("Python", _parse_python),
    ".xml": ("XML", _parse_xml),
    ".svg": ("XML", _parse_xml),
    ".csv": ("CSV", _parse_table(",")),
    ".tsv": ("TSV", _parse_table("\t")),
}
_NAMED = re.compile(
    rf"[\w.\-/]{{1,200}}(?:{'|'.join(map(re.escape, _FORMATS))})(?![\w])", re.IGNORECASE | re.ASCII
)


@dataclass(slots=True)
class SyntaxScanner:
    """Finds the files of a folder that can be parsed. What has not changed is parsed once."""

    _seen: dict[str, tuple[tuple[int, int], bool]] = field(default_factory=dict)

    def find_sound(self, workspace: Path, text: str) -> frozenset[str]:
        """Return paths in the workspace: first of the files that the text names, then of others as
        far as the limits allow."""
        found: set[str] = set()
        left = MAX_TOTAL_BYTES
        for name in islice(_candidates(workspace, text), MAX_FILES):
            try:
                status = (workspace / name).stat()
            except (OSError, ValueError):
                continue
            if not 0 < status.st_size <= MAX_BYTES:
                continue
            if (left := left - status.st_size) < 0:
                break
            state = (status.st_mtime_ns, status.st_size)
            known = self._seen.get(name)
            if known is None or known[0] != state:
                known = self._seen[name] = (state, read_fault(workspace, name) == "")
            if known[1]:
                found.add(name)
        return frozenset(found)


def find_named_paths(text: str) -> tuple[str, ...]:
    """Return what in the text looks like the path of a file of a known format."""
    marks = _NAMED.finditer(text[:_MAX_TEXT])
    return tuple(dict.fromkeys(mark[0].removeprefix("./") for mark in marks))


def read_fault(workspace: Path, name: str) -> str | None:
    """As `find_syntax_fault`, for a file in the workspace; None if there is none to read."""
    try:
        data, size = folder.read_bytes(workspace, name, limit=MAX_BYTES)
    except folder.PathRefused:
        return None
    return None if size > MAX_BYTES else find_syntax_fault(name, data)


def describe_faults(workspace: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return one description for each of these files that can't be parsed."""
    faults = ((name, read_fault(workspace, name)) for name in sorted(names))
    return tuple(f"{name} ({fault})" for name, fault in faults if fault)


def _candidates(workspace: Path, text: str) -> Iterator[str]:
    named = find_named_paths(text)
    yield from named
    if workspace.is_dir():
        entries = folder.walk(workspace, ".", skip=folder.UNSEARCHED)
        for entry in islice(entries, _MAX_ENTRIES):
            known = PurePosixPath(entry.name).suffix.casefold() in _FORMATS
            if known and not entry.is_folder and entry.name not in named:
                yield entry.name
