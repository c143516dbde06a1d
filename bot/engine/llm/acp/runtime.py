"""Prepares and checks the environment of coding CLIs (homes, programs, logins and shared limits),
and deletes their old sessions."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bot.engine.llm.acp.agent_config import AcpAgentConfig, SessionTable
from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.acp.process import (
    AcpFailure,
    CliLauncher,
    build_environment,
    failure_error,
    home_mark,
    kill_leftover_processes,
)
from bot.engine.llm.backend import BackendError, BackendReadiness, RunLimits
from storage.file_trees import walk_folders
from storage.memory.withheld_turns import CliSession

AGENTS_FOLDER = "agents"
_UNSAFE = re.compile(r"[^\w-]")
_DEFAULT_PERSONA = "default"
_CACHES = (".cache", ".npm/_cacache", ".npm/_logs", ".npm/_npx")
_KEPT_FOLDERS = frozenset({"memory", "memories"})
"""The notes that a CLI keeps for itself lie among its sessions."""
_KEPT_ENDINGS = (".db", ".db-wal", ".db-shm", ".sqlite", ".sqlite-wal", ".sqlite-shm")
"""Files of many sessions, unless their folder is named for one."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TEMPORARY = ".tmp"
_LOG = ".log"
_MOST_READ = 64 << 20
_DATABASE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpHome:
    """A persona's home for one CLI, with its sessions, logins and settings.

    `log` and `requests_folder` are outside of `path`, where the CLI can't write."""

    path: Path
    scratch: Path
    log: Path
    requests_folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpProgram:
    """An installed program with absolute paths; `readable` are the paths it needs to run, `install`
    is npm's folder that holds it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    readable: tuple[Path, ...]
    install: Path | None


def agent_home(root: Path, agent: str, persona: str) -> AcpHome:
    """Return the home's paths without creating it; see `prepare_home`."""
    folder = root / AGENTS_FOLDER / agent
    who = _UNSAFE.sub("_", persona)[:64] or _DEFAULT_PERSONA
    return AcpHome(
        path=folder / who,
        scratch=folder / who / "scratch",
        log=folder / f"{who}.log",
        requests_folder=folder / f"{who}.wishes",
    )


def prepare_home(home: AcpHome, agent: AcpAgentConfig) -> None:
    """Create missing folders and files; existing files keep people's changes. Blocking."""
    for folder in (home.path, home.scratch):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in agent.files.items():
        path = home.path / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def find_program(
    agent: AcpAgentConfig, home: AcpHome, environ: Mapping[str, str], model: str = ""
) -> AcpProgram:
    """Find the installed CLI. Raises BackendDenied. Blocking."""
    given = dict(agent.fixed_env)
    if model and agent.model_env:
        given[agent.model_env] = model
    env = build_environment(environ, agent.env, given, home=home.path)
    env["PATH"] = ":".join((*agent.path, env.get("PATH", "/usr/local/bin:/usr/bin:/bin")))
    found = shutil.which(agent.command[0], path=env["PATH"])
    if found is None:
        raise failure_error(AcpFailure.MISSING, agent.name, agent.command[0])
    node = shutil.which("node", path=env["PATH"]) if agent.min_node_version else None
    real = Path(found).resolve()
    modules = [parent for parent in real.parents if parent.name == "node_modules"]
    places = [
        modules[-1] if modules else real.parent,
        *([Path(node).resolve().parent.parent] if node else []),
    ]
    named = [Path(word) for word in agent.command[1:] if word.startswith("/")]
    readable = (Path(found).parent, *places, *map(Path, agent.path), *named)
    return AcpProgram(
        argv=(found, *agent.command[1:]),
        env=env,
        readable=tuple(dict.fromkeys(readable)),
        install=modules[-1] if modules else None,
    )


def is_logged_in(root: Path, agent: AcpAgentConfig, environ: Mapping[str, str]) -> bool:
    """Return whether a login is detectable in the environment or any persona's home. Blocking."""
    if not agent.key_variables and not agent.login_files:
        return True
    if any(environ.get(key) or agent.fixed_env.get(key) for key in agent.key_variables):
        return True
    return next(find_login_files(root, agent), None) is not None


def find_login_files(root: Path, agent: AcpAgentConfig) -> Iterator[Path]:
    """Return existing login files in all homes. Blocking."""
    folder = root / AGENTS_FOLDER / agent.name
    return (path for name in agent.login_files for path in folder.glob(f"*/{name}"))


_VERSION_PATTERN = re.compile(r"v?(\d+)\.")
_VERSION_TIMEOUT = 10.0
_GENERIC_INSTALL_HINT = "backend.get.anyhow"
_GENERIC_KEY_HINT = "backend.get.key"


def check_agent(
    agent: AcpAgentConfig,
    root: Path,
    environ: Mapping[str, str],
    node_version: Callable[[str], int | None],
) -> BackendReadiness:
    """Return the first problem and how to fix it.

    `node_version` returns the major version of Node.js on a PATH."""
    facts = {
        "name": agent.name,
        "command": agent.command[0],
        "get": agent.install_hint or _GENERIC_INSTALL_HINT,
    }
    try:
        found = find_program(agent, agent_home(root, agent.name, ""), environ)
    except BackendError as error:
        return BackendReadiness(problem=error.hint, facts=facts)
    version = node_version(found.env["PATH"]) if agent.min_node_version else None
    if version is not None and version < agent.min_node_version:
        facts |= {"found": str(version), "needed": str(agent.min_node_version)}
        return BackendReadiness(problem=AcpFailure.OLD_NODE.hint, facts=facts)
    if not is_logged_in(root, agent, environ):
        return BackendReadiness(
            problem=AcpFailure.LOGIN.hint, facts={**facts, **_login_facts(agent, root)}
        )
    return BackendReadiness(facts=facts)


def readiness_after_refusal(
    found: BackendReadiness, problem: str, agent: AcpAgentConfig, root: Path
) -> BackendReadiness:
    """Return `found` with the problem that running the CLI revealed."""
    if problem == AcpFailure.LOGIN.hint:
        return replace(found, problem=problem, facts={**found.facts, **_login_facts(agent, root)})
    # The Node.js versions are unknown here.
    return replace(found, problem=problem, facts={})


def _login_facts(agent: AcpAgentConfig, root: Path) -> Mapping[str, str]:
    keys = " / ".join(agent.key_variables) or _GENERIC_KEY_HINT
    return {"keys": keys, "home": str(agent_home(root, agent.name, "").path.parent)}


class NodeVersions:
    """Caches the version of each Node.js executable."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, int], int | None] = {}

    def get_cached(self, path: str) -> int | None:
        """Return the cached version, None if unknown; runs nothing."""
        place = _locate_node(path)
        return None if place is None else self._cache.get(place)

    def detect(self, path: str) -> int | None:
        """Return the version, running `node --version` the first time. Blocking."""
        place = _locate_node(path)
        if place is None:
            return None
        if place not in self._cache:
            self._cache[place] = _node_version(place[0])
        return self._cache[place]


def _locate_node(path: str) -> tuple[str, int] | None:
    node = shutil.which("node", path=path)
    try:
        return None if node is None else (node, Path(node).stat().st_mtime_ns)
    except OSError:
        return None


def _node_version(node: str) -> int | None:
    """Return the major version; None if unknown, because the CLI may bundle its own Node.js."""
    try:
        output = subprocess.run(  # noqa: S603 - no untrusted arguments
            (node, "--version"),
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION_PATTERN.match(output.strip())
    return int(found[1]) if found else None


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcpRuntime:
    """State and limits shared by all coding CLIs; times are in seconds.

    `root` is the data directory and `environ` the environment to pass variables from.
    `approval_wait` is how long a live process waits for a person, `idle_timeout` how long it may be
    silent, `max_run_seconds` the limit of a run without its own, and `cancel_grace` how long a
    cancelled turn may take. `idle` keeps a process for the next step. `closing_tasks` are processes
    being stopped."""

    root: Path
    environ: Mapping[str, str]
    slots: asyncio.Semaphore
    new_id: Callable[[], str]
    approval_wait: float
    max_run_seconds: float
    launch: CliLauncher
    idle: IdleProcess[Any]
    idle_timeout: float = 600.0
    cancel_grace: float = 3.0
    clock: Callable[[], float] = time.monotonic
    node_versions: NodeVersions = field(default_factory=NodeVersions)
    closing_tasks: set[asyncio.Task[None]] = field(default_factory=set)
    sweep_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    completed_steps: set[str] = field(default_factory=set)

    async def new_process_mark(self) -> str:
        """Return the mark of a new process; the first call kills leftovers of earlier runs."""
        async with self.sweep_lock:
            if "swept" not in self.completed_steps:
                left = await asyncio.to_thread(kill_leftover_processes, self.root)
                self.completed_steps.add("swept")
                if left:
                    log.warning("ended %d leftover coding CLI processes", left)
        return f"{home_mark(self.root)}-{self.new_id()}"

    def run_seconds(self, limits: RunLimits) -> float:
        return self.max_run_seconds if limits.seconds is None else limits.seconds


def delete_old_files(
    root: Path, agents: Mapping[str, AcpAgentConfig], before: Mapping[str, float], default: float
) -> int:
    """Delete the CLIs' sessions, caches and logs that were last changed before the time given for
    the CLI; returns how many files and sessions. Logins, settings and everything else stay.
    Blocking."""
    gone = 0
    for folder in _subfolders(root / AGENTS_FOLDER):
        agent = agents.get(folder.name)
        kept = {*agent.login_files, *agent.files} if agent else set[str]()
        names = (*_CACHES, *(agent.session_folders if agent else ()))
        limit = before.get(folder.name, default)
        for home in _subfolders(folder):
            places = [home] if home.name.endswith(_TEMPORARY) else [home / each for each in names]
            for place in places:
                if not _has_link(home, place):
                    gone += _delete_files(place, {home / each for each in kept}, limit)
            for rows, database in _session_databases(home, agent):
                # A text would be older than every number.
                old = f"typeof({rows.changed}) = 'integer' AND {rows.changed} < ?"
                gone += _delete_rows(database, rows, old, [round(limit * rows.units)])
        for log in folder.glob(f"*{_LOG}"):
            gone += _delete_file(log.name, None, log, limit)
    return gone


def delete_sessions(
    root: Path, agents: Mapping[str, AcpAgentConfig], sessions: Sequence[CliSession]
) -> None:
    """Delete these sessions from the CLIs' homes: files that are named for one or name it, rows of
    databases, and the caches, logs and own notes written since. Blocking."""
    for backend in {each.backend for each in sessions}:
        ours = [each for each in sessions if each.backend == backend]
        since = min(each.started_at for each in ours).timestamp()
        names, agent = [each.id for each in ours], agents.get(backend)
        folder = root / AGENTS_FOLDER / backend
        for home in _subfolders(folder):
            for name in agent.session_folders if agent else ():
                if not _has_link(home, home / name):
                    _delete_named(home / name, names, since)
            for name in _CACHES:
                if not _has_link(home, home / name):
                    _delete_files(home / name, set(), time.time(), since=since)
            for rows, database in _session_databases(home, agent):
                which = f"{rows.key} IN ({', '.join('?' * len(names))})"
                _delete_rows(database, rows, which, names)
        for cli_log in folder.glob(f"*{_LOG}"):
            _delete_file(cli_log.name, None, cli_log, time.time(), since=since)


def _delete_named(place: Path, names: Sequence[str], since: float) -> None:
    for at, _folders, files, here in walk_folders(place):
        are_notes = not _KEPT_FOLDERS.isdisjoint(at.parts)
        for file in files:
            path = place / at / file
            # A note does not say which session it is from.
            if are_notes or any(
                name in str(path.relative_to(place)) or _mentions(path, name) for name in names
            ):
                _delete_file(file, here, path, time.time() + 1, since=since)


def _mentions(path: Path, name: str) -> bool:
    try:
        found = path.lstat()
        is_readable = stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_READ
        return is_readable and name.encode() in path.read_bytes()
    except OSError:
        return False


def _session_databases(
    home: Path, agent: AcpAgentConfig | None
) -> Iterator[tuple[SessionTable, Path]]:
    for rows in agent.session_tables if agent else ():
        for database in sorted(home.glob(rows.files)):
            if database.is_file() and not _has_link(home, database):
                yield rows, database


def _delete_rows(
    database: Path, rows: SessionTable, which: str, values: Sequence[str | int]
) -> int:
    """Delete these sessions from the SQLite file of a coding CLI, with everything that belongs to
    them; return how many. Their content is overwritten and their space used again, but the file
    does not shrink. A file that is in use for long, damaged, or of another format stays as it is.
    Blocking."""
    uri = f"{database.absolute().as_uri()}?mode=rw"
    end = time.monotonic() + _DATABASE_SECONDS
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_DATABASE_SECONDS)) as cli, cli:
            # The CLI, or whoever worked in its home, may have written anything into its schema.
            cli.execute("PRAGMA trusted_schema = OFF")
            cli.execute("PRAGMA foreign_keys = ON")
            cli.set_progress_handler(lambda: time.monotonic() > end, 10_000)
            trigger = "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%delete%'"
            if cli.execute(trigger).fetchone():
                return 0
            cli.execute("PRAGMA secure_delete = ON")
            query = f"DELETE FROM {rows.table} WHERE {which}"  # noqa: S608 - our own constants
            gone = cli.execute(query, tuple(values)).rowcount
            cli.commit()
            cli.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return gone
    except (sqlite3.Error, UnicodeDecodeError) as error:
        log.info("Old sessions in %s cannot be deleted: %s", database, error)
        return 0


def _subfolders(folder: Path) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from (each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())


def _has_link(home: Path, place: Path) -> bool:
    """A CLI may have put a link to another home in the place of its folder."""
    return any(each.is_symlink() for each in (place, *place.parents) if each.is_relative_to(home))


def _delete_files(place: Path, kept: set[Path], limit: float, *, since: float = 0.0) -> int:
    gone, emptied = 0, list[Path]()
    for at, folders, files, here in walk_folders(place):
        folders[:] = [each for each in folders if each not in _KEPT_FOLDERS]
        for name in files:
            path = place / at / name
            is_of_many = name.endswith(_KEPT_ENDINGS) and not _UUID.fullmatch(path.parent.name)
            if path not in kept and not is_of_many:
                gone += _delete_file(name, here, path, limit, since=since)
        if at.parts:
            emptied.append(place / at)
    for folder in reversed(emptied):
        # Only empty ones can be removed; one in use may be missed otherwise.
        with suppress(OSError):
            if folder.lstat().st_mtime < limit:
                folder.rmdir()
    return gone


def _delete_file(
    name: str, folder: int | None, path: Path, limit: float, *, since: float = 0.0
) -> bool:
    try:
        at = path if folder is None else name
        found = os.stat(at, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or not since <= found.st_mtime < limit:
            return False
        os.unlink(at, dir_fd=folder)
    except OSError:
        return False
    return True
