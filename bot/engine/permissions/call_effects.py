"""Binds an approval to the effect of a call: the contents of the files that it runs or changes, and
where links lead."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from bot.engine.llm.tool_calls import READ_ONLY_KINDS, ToolCall
from bot.engine.permissions.call_classifier import CallEffect, classify_call
from storage.file_trees import walk_folders

_MAX_HASHED_BYTES = 10_000_000
"""Of one file; a larger one counts by size, time of change and inode."""
_MAX_WORDS = 500
_MAX_FOLDER_ENTRIES = 20_000
_MAX_SHOWN_BYTES = 4_000
_MAX_SHOWN_FILES = 3
_MAX_FOLDERS = 8

_SEPARATORS = re.compile(r"[\s;|&<>()'\"`=:,${}\[\]\\*?!#]+")
_EXPANDED = re.compile(r"[\\`$*?\[{]|(?<=\S)['\"](?=\S)")
"""The shell may put the name of any file together. Quotes around whole words do not."""
_GIT_FILES = (".git", ".git/config", ".git/hooks", ".git/HEAD")
_MODULE = re.compile(r"\w+(?:\.\w+)*")

_BUILD_FILES = (
    "Makefile", "makefile", "GNUmakefile", "justfile", "Justfile", "Taskfile.yml", "Taskfile.yaml",
    "Rakefile", "SConstruct", "CMakeLists.txt", "meson.build", "build.ninja", "BUILD",
    "package.json", "pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "noxfile.py", "tasks.py",
    "conftest.py", "pytest.ini", "Cargo.toml", "build.rs", "go.mod", "pom.xml", "build.gradle",
    "build.gradle.kts", "settings.gradle", "build.xml", "composer.json", "Gemfile", "mix.exs",
    "Dockerfile", "compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml",
)  # fmt: skip
"""Files that build tools run without being given their names."""


def effect_hash(call: ToolCall, workspace: Path) -> str:
    """A hash of what the call would run or change now; empty for calls that only read.

    Counted are the files and folders whose names occur in a command, anywhere in it, and the files
    that build tools run by themselves; of changes, the files to be changed. Too much rather than
    too little: an approval for which something else has changed is asked for once more. Blocking.
    """
    if call.kind in READ_ONLY_KINDS:
        return ""
    whole = hashlib.sha256()
    for path in _paths(call, workspace):
        state = f"{path}\0{_state_of(path, workspace)}\0"
        whole.update(state.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def scripts_text(call: ToolCall, workspace: Path) -> str:
    """The short text files of the workspace that a command names, for the person who decides about
    it; empty if there are none. Blocking."""
    subject = classify_call(call, workspace)
    if subject.effect is not CallEffect.RUN:
        return ""
    texts: dict[Path, str] = {}
    root = workspace.resolve()
    for path in _named_files(subject.command, workspace):
        with suppress(OSError, RuntimeError, UnicodeDecodeError):
            real = path.resolve()
            if real.is_relative_to(root) and real.is_file():
                data = real.read_bytes() if real.stat().st_size <= _MAX_SHOWN_BYTES else b""
                if text := data.decode().rstrip():
                    texts.setdefault(real, f"─── {real.relative_to(root)} ───\n{text}")
    return "\n\n".join(islice(texts.values(), _MAX_SHOWN_FILES))


def _paths(call: ToolCall, workspace: Path) -> list[Path]:
    subject = classify_call(call, workspace)
    if subject.effect is CallEffect.RUN:
        named = [*_named_files(subject.command, workspace)]
        if _EXPANDED.search(subject.command):
            named.append(workspace)
        beside = (workspace / name for name in (*_BUILD_FILES, *_GIT_FILES))
        return list(dict.fromkeys((*named, *beside)))
    return [workspace / each for each in subject.paths if "\0" not in each]


def _named_files(command: str, workspace: Path) -> Iterator[Path]:
    """Paths for all words of the command that name a file or folder, from the workspace or from a
    folder that is named too."""
    words = list(dict.fromkeys(islice(filter(None, _SEPARATORS.split(command)), _MAX_WORDS)))
    names = [each for word in words for each in _spellings(word) if "\0" not in each]
    named = [workspace / name for name in names if os.path.lexists(workspace / name)]
    yield from named
    for folder in islice((each for each in named if each.is_dir()), _MAX_FOLDERS):
        yield from (folder / name for name in names if os.path.lexists(folder / name))


def _spellings(word: str) -> Iterator[str]:
    """A word as a path, and as a Python module."""
    yield word
    if attached := word.lstrip("-")[1:] if word.startswith("-") else "":
        yield attached
    if _MODULE.fullmatch(word):
        module = word.replace(".", "/")
        yield f"{module}.py"
        if module != word:
            yield module


def _state_of(path: Path, workspace: Path) -> str:
    """The file or folder at the path, with the targets of links in it."""
    real = path
    try:
        real = path.resolve()
        found = real.stat()
        if not real.is_relative_to(workspace.resolve()):
            # No command can write there, and much of the system changes all the time.
            content = "outside"
        elif stat.S_ISDIR(found.st_mode):
            content = "git" if path.name == ".git" else _folder_state(real)
        elif not stat.S_ISREG(found.st_mode):
            content = f"special {found.st_mode}"
        elif found.st_size > _MAX_HASHED_BYTES:
            content = f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"
        else:
            content = hashlib.sha256(real.read_bytes()).hexdigest()
    except (OSError, RuntimeError) as error:
        # RuntimeError: links that lead in a circle.
        content = f"absent {type(error).__name__}"
    return f"{real} {content}"


def _folder_state(folder: Path) -> str:
    """The names, sizes and times of what is in a folder."""
    whole, seen = hashlib.sha256(), 0
    for at, folders, files, _ in walk_folders(folder):
        # What the Boss sends lies in `inbox`; git's files count by name.
        folders[:] = sorted(each for each in folders if each not in {".git", "inbox"})
        for name in sorted(files):
            path = folder / at / name
            found = path.lstat()
            line = f"{path} {found.st_size} {found.st_mtime_ns} {found.st_ino}\n"
            whole.update(line.encode("utf-8", "surrogateescape"))
            seen += 1
            if seen >= _MAX_FOLDER_ENTRIES:
                return whole.hexdigest()
    return whole.hexdigest()
