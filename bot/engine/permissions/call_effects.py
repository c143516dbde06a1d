"""Binds an approval to the effect of a call: the contents of the files that it runs or changes, and
where links lead."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bot.engine.llm.tool_calls import READ_ONLY_KINDS, ToolCall
from bot.engine.permissions.rules import CallEffect, classify_call
from storage.file_trees import walk_folders

_MAX_HASHED_BYTES = 10_000_000
"""Of one file; a larger one counts by size, time of change and inode."""
_MAX_FOLDER_BYTES, _LEAST_READ = 8_000_000, 4_000
"""Of all files of a folder, each of which counts as so many at least."""
_MAX_WORDS = 20_000
_MAX_FOLLOWED = 40
"""Files in which names of further files are looked for."""
_MAX_FOLDER_ENTRIES = 200_000
"""Some 0.8 s of CPU. Of a folder with more files the first ones count."""
_MAX_TEXT_CHARS = 64_000
_MAX_SHOWN_CHARS = 4_000
_MAX_SHOWN_FILES = 3
_MAX_FOLDERS = 8

_SEPARATORS = re.compile(r"[\s;|&<>()'\"`=:,${}\[\]\\*?!#]+")
_EXPANDED = re.compile(r"[\\`$*?\[{]|(?<=\S)['\"](?=\S)")
"""The shell may put the name of any file together. Quotes around whole words do not."""
_GIT_FILES = (".git", ".git/config", ".git/hooks", ".git/HEAD")
_NOT_THERE = re.compile(r" (?:outside|absent \w+)\Z")
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

_RUNNERS = {
    "make", "gmake", "just", "task", "rake", "scons", "cmake", "ctest", "ninja", "meson", "bazel",
    "buck", "npm", "npx", "pnpm", "yarn", "bun", "deno", "jest", "vitest", "mocha", "tsc", "tox",
    "nox", "pytest", "unittest", "hatch", "pdm", "poetry", "pre-commit", "cargo", "go", "mvn",
    "mvnw", "gradle", "gradlew", "ant", "sbt", "lein", "mix", "swift", "dotnet", "composer",
    "bundle", "docker", "docker-compose", "podman", "flask", "manage.py", "uvicorn", "gunicorn",
    "celery", "terraform", "tofu", "ansible-playbook",
}  # fmt: skip
"""Programs that run what their project names, or all code of a certain kind in it."""
_FED = re.compile(r"\|&?\s*(?:\S*/)?(?:xargs|(?:ba|da|z|k)?sh|python|node|perl|ruby)\b|/proc/")
"""Code that comes through a pipe, or by a name that the kernel makes up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSnapshot:
    """The effect that a call would have had when it was taken: a hash, empty for calls that only
    read, and the short text files of the workspace that a command names, for the person who
    decides about it. Both are of the same bytes.

    `files` is the part of the hash for permissions that outlive the call: without the code that a
    build tool finds by itself, which changes all the time, and the same for the same files in
    another workspace; empty if the command names no file there. `is_cut`: a folder has more files
    than were counted."""

    hash: str = ""
    scripts: str = ""
    files: str = ""
    is_cut: bool = False


def take_snapshot(call: ToolCall, workspace: Path) -> CallSnapshot:
    """Counted are the files and folders whose names occur in a command, anywhere in it, those whose
    names occur in these files, and the files that build tools run by themselves; of changes, the
    files to be changed. Too much rather than too little: an approval for which something else has
    changed is asked for once more. Blocking."""
    if call.kind in READ_ONLY_KINDS:
        return CallSnapshot()
    subject = classify_call(call, workspace)
    seen = _Snapshot(workspace)
    if subject.effect is not CallEffect.RUN:
        for each in subject.paths:
            if "\0" not in each:
                seen.add(workspace / each)
        return CallSnapshot(hash=seen.digest())
    texts = seen.add_named(subject.command)
    scripts = "\n\n".join(
        f"─── {path.relative_to(seen.root)} ───\n{text}"
        for path, text in islice(texts.items(), _MAX_SHOWN_FILES)
    )
    if _EXPANDED.search(subject.command) or _FED.search(subject.command):
        seen.add(workspace)
    is_runner = _names_runner(subject.command)
    for name in _BUILD_FILES if is_runner else ():
        seen.add(workspace / name)
    files = seen.digest(relative=True) if seen.has_files else ""
    if is_runner:
        seen.add(workspace)
    for name in (*_BUILD_FILES, *_GIT_FILES):
        seen.add(workspace / name)
    return CallSnapshot(hash=seen.digest(), scripts=scripts, files=files, is_cut=seen.is_cut)


def _names_runner(command: str) -> bool:
    """Return True if the command may run files that neither it nor its scripts name."""
    return any(each.rpartition("/")[2] in _RUNNERS for each in _SEPARATORS.split(command))


def hash_program_files(words: Sequence[str], workspace: Path) -> str:
    """Hash the files of the workspace that a program started with these words may run, as for a
    command. The same files in another workspace have the same hash. Blocking."""
    seen = _Snapshot(workspace)
    installed = (f"node_modules/.bin/{Path(each).name.partition('@')[0]}" for each in words)
    seen.add_named("\n".join((*words, *installed)))
    for name in _BUILD_FILES:
        seen.add(workspace / name)
    return seen.digest(relative=True)


class _Snapshot:
    """Reads each file once."""

    def __init__(self, workspace: Path) -> None:
        self.root = workspace.resolve()
        self._workspace = workspace
        self._states: dict[Path, str] = {}
        self._texts: dict[Path, str] = {}
        self._is_partial = False
        """Something named may be a script that is too long to be looked through."""
        self.is_cut = False

    @property
    def has_files(self) -> bool:
        """Whether something is there that a command could have changed."""
        return not all(map(_NOT_THERE.search, self._states.values()))

    def digest(self, *, relative: bool = False) -> str:
        whole = hashlib.sha256()
        for path, state in self._states.items():
            line = f"{path}\0{state}\0"
            if relative:
                line = line.replace(str(self.root), ".").replace(str(self._workspace), ".")
            whole.update(line.encode("utf-8", "surrogateescape"))
        return whole.hexdigest()

    def add_named(self, command: str) -> dict[Path, str]:
        """Add what the command names, and what the files that it names name in turn. Return the
        short texts of the former by their real paths."""
        for path in _named_files(command, self._workspace):
            self.add(path)
        named = {path: text.rstrip() for path, text in self._texts.items()}
        followed = 0
        while followed < len(self._texts) and followed < _MAX_FOLLOWED:
            text = [*self._texts.values()][followed]
            followed += 1
            for path in _named_files(text, self._workspace):
                if path.is_file():
                    self.add(path)
        if followed < len(self._texts) or self._is_partial:
            self.add(self._workspace)
        return {path: text for path, text in named.items() if 0 < len(text) <= _MAX_SHOWN_CHARS}

    def add(self, path: Path) -> None:
        if path not in self._states:
            self._states[path] = self._state_of(path)

    def _state_of(self, path: Path) -> str:
        """The file or folder at the path, with the targets of links in it."""
        real = path
        try:
            real = path.resolve()
            found = real.stat()
            if not real.is_relative_to(self.root):
                # No command can write there, and much of the system changes all the time.
                content = "outside"
            elif stat.S_ISDIR(found.st_mode):
                content, is_cut = ("git", False) if path.name == ".git" else _folder_state(real)
                self.is_cut |= is_cut
            elif not stat.S_ISREG(found.st_mode):
                content = f"special {found.st_mode}"
            elif found.st_size > _MAX_HASHED_BYTES:
                content = _unread_state(found)
            else:
                data = real.read_bytes()
                content = hashlib.sha256(data).hexdigest()
                with suppress(UnicodeDecodeError):
                    text = data.decode()
                    self._is_partial |= len(text) > _MAX_TEXT_CHARS
                    self._texts.setdefault(real, text[:_MAX_TEXT_CHARS])
        except (OSError, RuntimeError) as error:
            # RuntimeError: links that lead in a circle.
            content = f"absent {type(error).__name__}"
        return f"{real} {content}"


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
    if word.startswith("@"):
        yield word.lstrip("@")
    if word.startswith("/"):
        # Behind something that the shell puts in: "$here"/lib.sh
        yield word.lstrip("/") or word
    if attached := word.lstrip("-")[1:] if word.startswith("-") else "":
        yield attached
    if _MODULE.fullmatch(word):
        module = word.replace(".", "/")
        yield f"{module}.py"
        if module != word:
            yield module


def _unread_state(found: os.stat_result) -> str:
    """Everybody can set the time of the last change of a file, but not that of its inode."""
    return f"{found.st_size} {found.st_ctime_ns} {found.st_ino}"


def _folder_state(folder: Path) -> tuple[str, bool]:
    """The names and contents of what is in a folder, as far as they are not too much to read, and
    whether there are more names than were counted."""
    whole, seen, readable = hashlib.sha256(), 0, _MAX_FOLDER_BYTES
    for at, folders, files, handle in walk_folders(folder):
        # What the Boss sends lies in `inbox`; git's files count by name.
        folders[:] = sorted(each for each in folders if each not in {".git", "inbox"})
        base = str(folder / at)
        for name in sorted(files):
            path = f"{base}/{name}"
            found = os.stat(name, dir_fd=handle, follow_symlinks=False)
            state = _unread_state(found)
            if stat.S_ISLNK(found.st_mode):
                state = os.readlink(path)  # noqa: PTH115 - bytes that are no text stay
            elif stat.S_ISREG(found.st_mode) and found.st_size <= readable:
                # Their times change when a restart takes the rights to them from other users.
                readable -= max(found.st_size, _LEAST_READ)
                state = hashlib.sha256(Path(path).read_bytes()).hexdigest()
            line = f"{path} {state}\n"
            whole.update(line.encode("utf-8", "surrogateescape"))
            seen += 1
            if seen >= _MAX_FOLDER_ENTRIES:
                return whole.hexdigest(), True
    return whole.hexdigest(), False
