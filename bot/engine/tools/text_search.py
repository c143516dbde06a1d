"""Searches files by regular expression in a separate process, because a pattern may never
terminate.

As a module it reads one search as JSON and writes hits as JSON lines. It imports little, so that it
starts fast."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bot.engine.llm import workspace_files as folder
from bot.engine.permissions.rules import ReadProtectedFiles

SKIPPED_FOLDERS = frozenset({".git", "node_modules", ".venv", "__pycache__", ".shiftboss"})
MAX_HITS = 100
TIMEOUT_SECONDS = 10.0
_MAX_FILE_BYTES = 2_000_000
_MAX_LINE_CHARS = 10_000
_MAX_SHOWN_CHARS = 300
_MEMORY_LIMIT = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSearch:
    """A search by Python regular expression in files that match `glob`.

    Files that match `closed` are only searched if `named` is their path."""

    workspace: str
    pattern: str
    path: str = "."
    glob: str = ""
    closed: Sequence[str] = ()
    named: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHits:
    """Hits as `path:line: text`; `problem` explains a failed search, `truncation_note` an
    incomplete one.

    `protected_count` is the number of skipped files."""

    lines: tuple[str, ...] = ()
    problem: str = ""
    truncation_note: str = ""
    protected_count: int = 0


def matches_glob(path: str, glob: str) -> bool:
    """Match the name, or the whole path if the glob contains a slash; `**/` may be empty."""
    glob = glob.removeprefix("./")
    if "/" not in glob:
        return fnmatchcase(path.rsplit("/", 1)[-1], glob)
    return fnmatchcase(path, glob) or fnmatchcase(path, glob.replace("**/", ""))


async def search_files(query: TextSearch, *, seconds: float = TIMEOUT_SECONDS) -> SearchHits:
    """Return the hits found in time; the process has ended on return."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": os.defpath},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines: list[str] = []
    cut = f"[the search was ended after {seconds:.0f} seconds; narrow it down]"
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                process.stdin.write(json.dumps(asdict(query)).encode())
                with contextlib.suppress(ConnectionError):
                    process.stdin.write_eof()
                async for line in process.stdout:
                    lines.append(line.decode("utf-8", "replace"))  # noqa: PERF401 - partial results survive the timeout
                cut = "" if await process.wait() == 0 else "[the search failed; narrow it down]"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return _collect_hits([json.loads(line) for line in lines if line.endswith("\n")], cut)


def _collect_hits(said: list[dict[str, str]], cut: str) -> SearchHits:
    problem = next((one["problem"] for one in said if "problem" in one), "")
    found = tuple(one["hit"] for one in said if "hit" in one)
    if len(found) > MAX_HITS:
        cut = f"[more than {MAX_HITS} lines fit; the others are not shown]"
    return SearchHits(
        lines=found[:MAX_HITS],
        problem=problem,
        truncation_note="" if problem else cut,
        protected_count=sum("closed" in one for one in said),
    )


def main() -> None:
    """Run the search in its own process."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_LIMIT, _MEMORY_LIMIT))
    wanted = TextSearch(**json.load(sys.stdin))
    try:
        pattern = re.compile(wanted.pattern)
        for at, hit in enumerate(_search_text(wanted, pattern)):
            _emit(hit=hit)
            if at == MAX_HITS:
                return
    except (re.error, RecursionError, OverflowError) as error:
        _emit(problem=f"the pattern is no regular expression: {error}")
    except folder.PathRefused as error:
        _emit(problem=str(error))


def _search_text(wanted: TextSearch, pattern: re.Pattern[str]) -> Iterator[str]:
    workspace = Path(wanted.workspace)
    closed = ReadProtectedFiles(patterns=wanted.closed)
    for path in _files(workspace, wanted.path):
        if wanted.glob and not matches_glob(path, wanted.glob):
            continue
        # Files requested by name were authorized by name.
        if path != wanted.named and closed.is_protected(path):
            _emit(closed=path)
            continue
        with contextlib.suppress(folder.PathRefused):
            text = folder.read_text(workspace, path, limit=_MAX_FILE_BYTES)
            for number, line in enumerate(text.split("\n"), 1):
                shown = line.removesuffix("\r")[:_MAX_LINE_CHARS]
                if pattern.search(shown):
                    yield f"{path}:{number}: {shown[:_MAX_SHOWN_CHARS]}"


def _files(workspace: Path, path: str) -> Iterator[str]:
    try:
        entries = folder.walk(workspace, path, skip=SKIPPED_FOLDERS)
        yield from (entry.name for entry in entries if not entry.is_folder)
    except folder.PathRefused as error:
        if error.refusal is not folder.PathRefusal.NOT_A_FOLDER:
            raise
        yield folder.resolve_path(workspace, path).as_posix()


def _emit(**said: str) -> None:
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
