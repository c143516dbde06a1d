"""Search the text of a folder's files: in a process of its own, for a pattern may never end.

Run as a module it reads one search as JSON and writes hits as lines of JSON. Nothing but the
standard library, the workspace and the rules' patterns is imported, so that it starts at once.
"""

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

from bot.engine.agent.policy.closed import Closed
from bot.engine.llm import workspace as folder

SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__", ".shiftboss"})
MOST_HITS = 100
SECONDS = 10.0
_LARGEST_FILE = 2_000_000
_LONGEST_LINE = 10_000
_SHOWN = 300
_MEMORY = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """`pattern` is a Python regular expression; `glob` narrows it to files that fit. `closed` are
    patterns of files that are searched only where one is `named` by name."""

    workspace: str
    pattern: str
    path: str = "."
    glob: str = ""
    closed: Sequence[str] = ()
    named: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """`lines` are `path:line: text`. `problem` says in one sentence why there are none; `cut`
    that time or hits ran out before the files did; `closed` counts files kept closed."""

    lines: tuple[str, ...] = ()
    problem: str = ""
    cut: str = ""
    closed: int = 0


def fits(path: str, glob: str) -> bool:
    """By its name, or by its whole path where the glob has a slash. `**/` may be nothing."""
    glob = glob.removeprefix("./")
    if "/" not in glob:
        return fnmatchcase(path.rsplit("/", 1)[-1], glob)
    return fnmatchcase(path, glob) or fnmatchcase(path, glob.replace("**/", ""))


async def search(wanted: Search, *, seconds: float = SECONDS) -> Hits:
    """What is found within the time; the process is gone when this returns."""
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
                process.stdin.write(json.dumps(asdict(wanted)).encode())
                with contextlib.suppress(ConnectionError):
                    process.stdin.write_eof()
                async for line in process.stdout:
                    lines.append(line.decode("utf-8", "replace"))  # noqa: PERF401 - kept if time runs out
                cut = "" if await process.wait() == 0 else "[the search broke off; narrow it down]"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return _hits([json.loads(line) for line in lines if line.endswith("\n")], cut)


def _hits(said: list[dict[str, str]], cut: str) -> Hits:
    problem = next((one["problem"] for one in said if "problem" in one), "")
    found = tuple(one["hit"] for one in said if "hit" in one)
    if len(found) > MOST_HITS:
        cut = f"[more than {MOST_HITS} lines fit; the others are not shown]"
    return Hits(
        lines=found[:MOST_HITS],
        problem=problem,
        cut="" if problem else cut,
        closed=sum("closed" in one for one in said),
    )


def main() -> None:
    """The searching process."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    wanted = Search(**json.load(sys.stdin))
    try:
        pattern = re.compile(wanted.pattern)
        for at, hit in enumerate(_search(wanted, pattern)):
            _say(hit=hit)
            if at == MOST_HITS:
                return
    except (re.error, RecursionError, OverflowError) as error:
        _say(problem=f"the pattern is no regular expression: {error}")
    except folder.PathRefused as error:
        _say(problem=str(error))


def _search(wanted: Search, pattern: re.Pattern[str]) -> Iterator[str]:
    workspace = Path(wanted.workspace)
    closed = Closed(patterns=wanted.closed)
    for path in _files(workspace, wanted.path):
        if wanted.glob and not fits(path, wanted.glob):
            continue
        # What was asked for by name was judged by its name.
        if path != wanted.named and closed.hides(path):
            _say(closed=path)
            continue
        with contextlib.suppress(folder.PathRefused):
            text = folder.read_text(workspace, path, limit=_LARGEST_FILE)
            for number, line in enumerate(text.split("\n"), 1):
                shown = line.removesuffix("\r")[:_LONGEST_LINE]
                if pattern.search(shown):
                    yield f"{path}:{number}: {shown[:_SHOWN]}"


def _files(workspace: Path, path: str) -> Iterator[str]:
    try:
        entries = folder.walk(workspace, path, skip=SKIPPED)
        yield from (entry.name for entry in entries if not entry.is_folder)
    except folder.PathRefused as error:
        if error.refusal is not folder.Refusal.NOT_A_FOLDER:
            raise
        yield folder.relative(workspace, path).as_posix()


def _say(**said: str) -> None:
    sys.stdout.write(f"{json.dumps(said)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
