"""A project in brief: what it is written in, how it is built and tested, and its top folder."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

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
_SKIPPED = {"node_modules", "venv", "__pycache__", "target", "dist", "build", "vendor"}
_MOST_FILES = 5_000
_MOST_FOLDERS = 2_000
_MOST_SHOWN = 40
_MOST_LANGUAGES = 5
_NAME = 60
_GIT_SECONDS = 3.0
_READ = 200_000

_RISKY_SETTINGS = ("filter", "include", "worktree")
"""They name programs or other files: with them even a look might run something."""

# Each build file with how its tests are run, the surest guess first.
_BUILDS = (
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


def project_brief(folder: Path) -> str:
    """Empty for an empty folder and for one that cannot be read. Blocking, for as long as it takes
    to list some thousand files. Nothing of what files say is repeated: names and counts only."""
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
        *_languages(folder),
        *_building(folder, names),
        *_git(folder),
        "- top folder: " + ", ".join(_shown(name, names[name]) for name in shown[:_MOST_SHOWN]),
    ]
    if len(shown) > _MOST_SHOWN:
        lines.append(f"  and {len(shown) - _MOST_SHOWN} more")
    return "\n".join(lines)


def mark_of(folder: Path) -> tuple[int, int]:
    """Changes when the folder's entries do, or another branch is checked out. Blocking."""
    return _changed(folder), _changed(folder / ".git" / "HEAD")


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _languages(folder: Path) -> list[str]:
    counts: Counter[str] = Counter()
    total = 0
    for total, name in enumerate(_files(folder), start=1):
        if language := _LANGUAGE_OF.get(os.path.splitext(name)[1].lower()):  # noqa: PTH122 - a name
            counts[language] += 1
        if total == _MOST_FILES:
            break
    told = ", ".join(f"{name} {n}" for name, n in counts.most_common(_MOST_LANGUAGES))
    more = f" (of the first {total} files)" if total == _MOST_FILES else f" (of {total} files)"
    return [f"- written in: {told}{more}"] if told else []


def _files(folder: Path) -> Iterator[str]:
    """Names of files at any depth, without what is hidden, made or fetched."""
    for _, folders, names in islice(os.walk(folder), _MOST_FOLDERS):
        folders[:] = [each for each in folders if each not in _SKIPPED and each[:1] != "."]
        yield from names


def _building(folder: Path, names: dict[str, bool]) -> list[str]:
    found = [name for name, _ in _BUILDS if name in names]
    guesses = [test for name, test in _BUILDS if name in names and test]
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


def _git(folder: Path) -> list[str]:
    config = _text(folder / ".git" / "config").lower()
    if not (folder / ".git").is_dir() or any(word in config for word in _RISKY_SETTINGS):
        return []
    command = ["git", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"]
    command += ["--no-optional-locks", "status", "--porcelain=v1", "--branch", "--no-renames"]
    command += ["--ignore-submodules=all"]
    env = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        ran = subprocess.run(  # noqa: S603 - fixed words only
            command, cwd=folder, env=env, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return []
    first, *rest = ran.stdout.decode("utf-8", "replace").splitlines() or [""]
    if ran.returncode or not first.startswith("## "):
        return []
    branch = first[3:].removeprefix("No commits yet on ").split("...")[0]
    changed = f"{len(rest)} changed files not committed" if rest else "nothing uncommitted"
    return [f"- git: branch {_shown(branch, is_folder=False)}, {changed}"]


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_READ).decode("utf-8", "replace")
    except OSError:
        return ""


def _shown(name: str, is_folder: bool) -> str:
    """A name is data: one short line, whatever is in it."""
    plain = "".join(c if c.isprintable() and c != "`" else "?" for c in name)
    cut = plain if len(plain) <= _NAME else f"{plain[:_NAME]}…"
    return f"`{cut}/`" if is_folder else f"`{cut}`"
