"""Builds the project-related part of a worker's system prompt."""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

from bot.engine.agent.instruction_files import InstructionBlock, load_boss_files, load_project_notes
from bot.engine.sandbox.git_runner import run_git_blocking
from bot.engine.workers.personas import Persona
from bot.engine.workers.spec import WorkerSpec
from storage.file_trees import walk_folders
from storage.records.people import Chat, ChatId, ChatKind, Person, PersonId, PersonRole
from storage.records.workers import ContextPart, ContextPartState

_LANGUAGES = {
    "Python": "py pyi",
    "TypeScript": "ts tsx mts",
    "JavaScript": "js jsx mjs cjs",
    "Go": "go",
    "Rust": "rs",
    "Java": "java",
    "Kotlin": "kt kts",
    "C": "c h",
    "C++": "cc cpp cxx hpp hh",
    "C#": "cs",
    "Ruby": "rb",
    "PHP": "php",
    "Swift": "swift",
    "Shell": "sh bash",
    "Vue": "vue",
    "SQL": "sql",
    "HTML": "html",
    "CSS": "css scss less",
    "Markdown": "md",
}
_LANGUAGE_OF = {f".{each}": name for name, ends in _LANGUAGES.items() for each in ends.split()}
_SKIPPED_FOLDERS = {"node_modules", "venv", "__pycache__", "target", "dist", "build", "vendor"}
_MAX_FILES = 5_000
_MAX_FOLDERS = 2_000
_MAX_LISTED = 40
_MAX_LANGUAGES = 5
_MAX_NAME_CHARS = 60
_GIT_SECONDS = 3.0
_MAX_READ_BYTES = 200_000

# Build files with their test command; the first match is the most likely.
_BUILD_FILES = (
    ("Cargo.toml", "cargo test"),
    ("go.mod", "go test ./..."),
    ("pom.xml", "mvn test"),
    ("gradlew", "./gradlew test"),
    ("build.gradle", "gradle test"),
    ("mix.exs", "mix test"),
    ("Gemfile", ""),
    ("composer.json", ""),
    ("CMakeLists.txt", ""),
    ("setup.py", ""),
    ("requirements.txt", ""),
    ("Dockerfile", ""),
    ("compose.yaml", ""),
)


def summarize_project(folder: Path) -> str:
    """Summarize languages, build files, git state and top folder; empty if the folder is empty or
    unreadable.

    Includes names and counts only, never file contents. Blocking."""
    try:
        inside = sorted(os.scandir(folder), key=lambda entry: entry.name)
        names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in inside}
    except OSError:
        return ""
    shown = [name for name in names if name != ".git"]
    if not shown:
        return ""
    lines = [
        "The folder you work in, in brief (as it was when last looked at):",
        *_language_line(folder),
        *_build_lines(folder, names),
        *_git_line(folder),
        "- top folder: "
        + ", ".join(_quote_name(name, names[name]) for name in shown[:_MAX_LISTED]),
    ]
    if len(shown) > _MAX_LISTED:
        lines.append(f"  and {len(shown) - _MAX_LISTED} more")
    return "\n".join(lines)


def project_fingerprint(folder: Path) -> tuple[int, int]:
    """Return a value that changes with the folder's entries or the checked-out branch. Blocking."""
    return _modified_at(folder), _modified_at(folder / ".git" / "HEAD")


def _modified_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _language_line(folder: Path) -> list[str]:
    counts: Counter[str] = Counter()
    total = 0
    for total, name in enumerate(_files(folder), start=1):
        if language := _LANGUAGE_OF.get(os.path.splitext(name)[1].lower()):  # noqa: PTH122 - a name
            counts[language] += 1
        if total == _MAX_FILES:
            break
    text = ", ".join(f"{name} {n}" for name, n in counts.most_common(_MAX_LANGUAGES))
    more = f" (of the first {total} files)" if total == _MAX_FILES else f" (of {total} files)"
    return [f"- written in: {text}{more}"] if text else []


def _files(folder: Path) -> Iterator[str]:
    """Yield file names at any depth, skipping hidden, generated and installed folders."""
    for _, folders, names, _ in islice(walk_folders(folder), _MAX_FOLDERS):
        folders[:] = [each for each in folders if each not in _SKIPPED_FOLDERS and each[:1] != "."]
        yield from names


def _build_lines(folder: Path, names: dict[str, bool]) -> list[str]:
    found = [name for name, _ in _BUILD_FILES if name in names]
    guesses = [test for name, test in _BUILD_FILES if name in names and test]
    if "pyproject.toml" in names:
        found.insert(0, "pyproject.toml")
        guesses.insert(0, "pytest")
    if "package.json" in names:
        found.insert(0, "package.json")
        if '"test"' in _text(folder / "package.json"):
            guesses.insert(0, f"{_runner(names)} test")
    if "Makefile" in names:
        found.insert(0, "Makefile")
        if "\ntest:" in "\n" + _text(folder / "Makefile"):
            guesses.insert(0, "make test")
    lines = [f"- build files: {', '.join(found)}"] if found else []
    return [*lines, f"- tests probably run with: {guesses[0]}"] if guesses else lines


def _runner(names: dict[str, bool]) -> str:
    locks = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun"}
    return next((runner for lock, runner in locks.items() if lock in names), "npm")


def _git_line(folder: Path) -> list[str]:
    if not (folder / ".git").is_dir():
        return []
    look = ("status", "--porcelain=v1", "--branch", "--no-renames", "--ignore-submodules=all")
    first, *rest = run_git_blocking(folder, *look, seconds=_GIT_SECONDS).splitlines() or [""]
    if not first.startswith("## "):
        return []
    branch = first[3:].removeprefix("No commits yet on ").split("...")[0]
    changed = f"{len(rest)} changed files not committed" if rest else "nothing uncommitted"
    return [f"- git: branch {_quote_name(branch, is_folder=False)}, {changed}"]


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_MAX_READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _quote_name(name: str, is_folder: bool) -> str:
    """Render an untrusted name as one short line."""
    plain = "".join(c if c.isprintable() and c != "`" else "?" for c in name)
    cut = plain if len(plain) <= _MAX_NAME_CHARS else f"{plain[:_MAX_NAME_CHARS]}…"
    return f"`{cut}/`" if is_folder else f"`{cut}`"


_MAX_CACHED = 64
"""Entries per cache (projects and sessions)."""

_K = TypeVar("_K")
_V = TypeVar("_V")

PROJECT_PART = "project"
"""Name of the project summary in a list of ContextPart."""


class WorkerBriefing:
    """Builds the context blocks; satisfies `handlers.ports.WorkerContextPort`.

    The text changes only with the files, so that models can cache it."""

    def __init__(
        self,
        data_dir: Path,
        *,
        get_chat: Callable[[ChatId], Awaitable[Chat]],
        get_person: Callable[[PersonId], Awaitable[Person]],
    ) -> None:
        self._data_dir = data_dir
        self._get_chat = get_chat
        self._get_person = get_person
        self._project_cache: OrderedDict[Path, tuple[tuple[int, int], str]] = OrderedDict()
        self._session_cache: OrderedDict[str, str] = OrderedDict()

    async def boss_files_block(self, spec: WorkerSpec, _persona: Persona) -> str:
        private = await self._is_private(spec.account.chat, spec.account.person)
        text = await asyncio.to_thread(
            load_boss_files, self._data_dir, is_subagent=spec.depth > 0, is_private=private
        )
        return text.text

    async def project_notes_block(self, spec: WorkerSpec, _persona: Persona) -> str:
        folder = await self._project_folder(spec)
        return "" if folder is None else (await self._load_notes(folder)).text

    async def project_summary_block(self, spec: WorkerSpec, _persona: Persona) -> str:
        """Return one summary per session: changing it would invalidate the model's cache of the
        whole session."""
        folder = None if spec.depth else await self._project_folder(spec)
        if folder is None:
            return ""
        text = self._session_cache.get(spec.session.id)
        if text is None:
            text = await asyncio.to_thread(self._summarize, folder)
        _cache_latest(self._session_cache, spec.session.id, text)
        return text

    async def list_parts(self, chat: Chat, person: Person) -> tuple[ContextPart, ...]:
        """List what a worker for this person and chat would be given, and what not."""
        private = await self._is_private(chat.id, person.id)
        text = await asyncio.to_thread(
            load_boss_files, self._data_dir, is_subagent=False, is_private=private
        )
        if not chat.settings.project:
            return text.parts
        folder = Path(chat.settings.project)
        notes = await self._load_notes(folder)
        size = len(await asyncio.to_thread(self._summarize, folder))
        state = ContextPartState.LOADED if size else ContextPartState.MISSING
        brief = ContextPart(name=PROJECT_PART, state=state, size=size, used_characters=size)
        return (*text.parts, *notes.parts, brief)

    async def _load_notes(self, folder: Path) -> InstructionBlock:
        return await asyncio.to_thread(load_project_notes, folder, boundary=self._data_dir)

    async def _project_folder(self, spec: WorkerSpec) -> Path | None:
        """Return a task's workspace or a chat's project."""
        if not spec.is_chat:
            return spec.workspace
        chat = await self._get_chat(spec.account.chat) if spec.account.chat else None
        return Path(chat.settings.project) if chat and chat.settings.project else None

    async def _is_private(self, chat_id: ChatId | None, person_id: PersonId | None) -> bool:
        """Return True if only an owner reads the conversation."""
        if chat_id is None or person_id is None:
            return False
        person = await self._get_person(person_id)
        kind = (await self._get_chat(chat_id)).kind
        return kind is ChatKind.PRIVATE and person.role is PersonRole.OWNER

    def _summarize(self, folder: Path) -> str:
        mark = project_fingerprint(folder)
        kept = self._project_cache.get(folder)
        if kept is None or kept[0] != mark:
            kept = (mark, summarize_project(folder))
        _cache_latest(self._project_cache, folder, kept)
        return kept[1]


def _cache_latest(kept: OrderedDict[_K, _V], key: _K, value: _V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > _MAX_CACHED:
        kept.popitem(last=False)
