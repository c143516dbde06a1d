"""Checks a data directory or a backup: pages, keys, references between rows, and files."""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from storage.backup_archive import (
    DAMAGE_ERRORS,
    DATABASE,
    HOME_PREFIX,
    extract_backup,
    extract_database,
    find_damage,
    find_silent_changes,
    list_backups,
)
from storage.errors import BadBackup, StoreMismatch, StoreTooNew, StoreUnavailable
from storage.migrate import HEAD_REVISION, DatabasePlace, describe_place, place_url
from storage.store_copy import open_source, take_snapshot
from storage.store_identity import verify_store

_MAX_EACH = 20
_STEPS_BETWEEN_LOOKS = 10_000
_TASK_FOLDERS = ("files/tasks", "files/logs", "work")
_LASTING_FOLDERS = ("files/inbox", "files/tasks", "files/logs")
_ID = re.compile(r"[0-9a-z]{4,16}")

# What is never changed once it is written, of the rows that give somebody the power to do
# something: the table, its key, the time that tells a row from another one with this key, and the
# rest. Who a person is and may be does change.
_LASTING_COLUMNS = (
    ("task_graphs", "task_id version", "at", "body reason"),
    ("approvals", "id", "created_at", "kind task_id path title detail command_hash"),
    ("approvals", "id", "decided_at", "state decided_for reason"),
    ("tool_grants", "id", "at", "scope tool pattern approval_id"),
    ("budget_grants", "approval_id", "at", "scope day micros tokens"),
    (
        *("usage", "id", "at"),
        (
            "backend model requests input_tokens output_tokens cache_read_tokens cache_write_tokens"
            " cost_micros estimated_tokens"
        ),
    ),
    ("web_sessions", "id", "created_at", "cookie_hash token_mark"),
    ("web_keys", "id", "created_at", "kind secret_hash name"),
    ("triggers", "id", "created_at", "kind"),
)
_ERASED = {"approvals": "n.title = '…' AND n.detail = ''"}
"""Rows whose words were withheld since."""

# Rows without which another cannot be used, beyond what foreign keys say: the finding, then the
# ids of the rows that lack it.
_MISSING_ROWS = (
    (
        "task without a graph",
        (
            "SELECT id FROM tasks WHERE graph_version > 0 AND NOT EXISTS (SELECT 1 FROM"
            " task_graphs g WHERE g.task_id = tasks.id AND g.version = tasks.graph_version)"
        ),
    ),
    (
        # Planning is a run too, and comes before the graph.
        "task with a step but no graph",
        (
            "SELECT DISTINCT task_id FROM node_runs WHERE path <> '@plan' AND NOT EXISTS"
            " (SELECT 1 FROM task_graphs g WHERE g.task_id = node_runs.task_id)"
        ),
    ),
    (
        "running step without an attempt",
        (
            "SELECT task_id || ' ' || path FROM node_runs r WHERE status = 'running' AND NOT EXISTS"
            " (SELECT 1 FROM node_attempts a WHERE a.task_id = r.task_id AND a.path = r.path)"
        ),
    ),
    (
        "account of a link that does not hold",
        (
            "SELECT channel || ':' || external_id FROM identities i WHERE brought_by IS NOT NULL"
            " AND NOT EXISTS (SELECT 1 FROM account_links l WHERE l.joined = i.brought_by"
            " AND l.kept = i.person_id AND l.state = 'linked')"
        ),
    ),
    (
        "hole in the messages of a session",
        (
            "SELECT session_id FROM messages GROUP BY session_id"
            " HAVING max(seq) - min(seq) + 1 <> count(*)"
        ),
    ),
)
_FILES_IN_SQLITE = "SELECT value FROM tasks, json_each(tasks.files) WHERE ended_at IS NULL"
_FILES_ON_SERVER = (
    "SELECT file FROM tasks, json_array_elements_text(tasks.files) AS file WHERE ended_at IS NULL"
)
_FILES_OF_LOGS = (
    "SELECT file FROM task_logs l JOIN tasks t ON t.id = l.task_id"
    " WHERE file <> '' AND t.ended_at IS NULL"
)
_Query: TypeAlias = Callable[[str], Iterable[Sequence[Any]]]

# Tables that every schema since the first has; others are checked where they are.
_NEEDED_TABLES = ("people", "chats", "inbox", "outbox", "tasks", "task_graphs", "marks")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """`kind` is a word for programs; `is_error` is False for what costs only space."""

    kind: str
    text: str
    is_error: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """`schema` is the database's, empty if it could not be read."""

    findings: Sequence[CheckFinding]
    schema: str = ""
    store_id: str = ""

    @property
    def is_good(self) -> bool:
        return not any(each.is_error for each in self.findings)


def check_home(home: Path, place: DatabasePlace, backups: Path) -> CheckReport:
    """Check a data directory; changes nothing, also beside a running program. Files that are never
    changed are compared with the newest backup. Of a database on a server, a copy is checked.
    Blocking."""
    schema = store_id = ""
    findings: list[CheckFinding] = []
    try:
        facts = verify_store(home, place_url(place), in_use=True)
    except StoreTooNew as error:
        return CheckReport(findings=(_too_new(error.revision),), schema=error.revision)
    except (StoreMismatch, StoreUnavailable) as error:
        findings.append(CheckFinding(kind="store", text=str(error)))
    else:
        if facts is None:
            text = f"there is no database {describe_place(place)}"
            return CheckReport(findings=(CheckFinding(kind="store", text=text),))
        schema, store_id = facts.revision or "", facts.store_id
    with _readable_copy(place, findings) as database:
        if database.is_file():
            findings += _check_database(database)
            # Without its rows no file can be judged.
            if not any(each.kind in {"store", "page", "table"} for each in findings):
                findings += _check_files(home, database)
                findings += _compare_rows_with_backup(database, backups)
    findings += _compare_with_backup(home, backups)
    return CheckReport(findings=findings, schema=schema, store_id=store_id)


@contextmanager
def _readable_copy(place: DatabasePlace, findings: list[CheckFinding]) -> Iterator[Path]:
    """The SQLite file itself, or a copy of what a server has, which is not there if it cannot be
    made: that is one of the `findings` then."""
    if isinstance(place, Path):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="shiftboss-check-") as folder:
        copy = Path(folder) / DATABASE
        if not findings:
            try:
                take_snapshot(place, copy)
            except StoreUnavailable as error:
                copy.unlink(missing_ok=True)
                findings.append(CheckFinding(kind="store", text=str(error)))
        yield copy


def check_quickly(
    home: Path, database: DatabasePlace, *, seconds: float, is_stopped: Callable[[], bool]
) -> Sequence[CheckFinding]:
    """Check pages, rows and files of a data directory beside the running program, without the order
    of indexes and without backups. A server checks its own pages and keys. Blocking. Raises
    TimeoutError if it would take longer, or soon after it `is_stopped`; a server's answer may take
    the whole time."""
    if not isinstance(database, Path):
        return _check_server_quickly(home, database, seconds)
    end = time.monotonic() + seconds
    findings: list[CheckFinding] = []
    try:
        uri = f"{database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.set_progress_handler(
                lambda: time.monotonic() > end or is_stopped(), _STEPS_BETWEEN_LOOKS
            )
            connection.execute("BEGIN")
            rows = connection.execute("PRAGMA quick_check(20)")
            findings += [CheckFinding(kind="page", text=row[0]) for row in rows if row[0] != "ok"]
            findings += _check_rows(connection)
        if not any(each.kind in {"page", "table"} for each in findings):
            findings += _check_files(home, database)
    except DAMAGE_ERRORS as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
            raise TimeoutError from error
        findings.append(CheckFinding(kind="page", text=str(error)))
    return findings


def _check_server_quickly(home: Path, url: str, seconds: float) -> Sequence[CheckFinding]:
    try:
        with open_source(url) as connection:
            limit = f"SET LOCAL statement_timeout = {int(seconds * 1000)}"
            connection.exec_driver_sql(limit)

            def query(statement: str) -> Iterable[Sequence[Any]]:
                return connection.exec_driver_sql(statement.replace("%", "%%")).all()

            findings = list(_find_missing_rows(query))
            return [*findings, *_judge_files(home, query, _FILES_ON_SERVER)]
    except StoreUnavailable as error:
        if "statement timeout" in str(error):
            raise TimeoutError from error
        return [CheckFinding(kind="page", text=str(error))]


def _compare_with_backup(home: Path, backups: Path) -> Iterator[CheckFinding]:
    for newest in list_backups(backups)[:1]:
        try:
            for name in islice(find_silent_changes(newest, home, _LASTING_FOLDERS), _MAX_EACH):
                text = f"{name} has changed on the disk: {newest.name} has it intact"
                yield CheckFinding(kind="changed_file", text=f"{text}; the disk may be failing")
        except BadBackup as error:
            yield CheckFinding(kind="backup", text=f"the newest backup {newest.name}: {error}")


def _compare_rows_with_backup(database: Path, backups: Path) -> Iterator[CheckFinding]:
    for newest in list_backups(backups)[:1]:
        with tempfile.TemporaryDirectory(prefix="shiftboss-check-") as folder:
            copy = Path(folder) / DATABASE
            # That it cannot be read is told where its files are compared.
            with suppress(BadBackup, OSError):
                extract_database(newest, copy)
            if not copy.exists():
                return
            try:
                for table, row in _find_changed_rows(database, copy):
                    text = f"{table} {row} has changed on the disk: {newest.name} has it intact"
                    yield CheckFinding(kind="changed_row", text=f"{text}; the disk may be failing")
            except DAMAGE_ERRORS as error:
                yield CheckFinding(kind="page", text=str(error))


def _find_changed_rows(database: Path, copy: Path) -> Iterator[tuple[str, str]]:
    """Rows of the database that are also in the copy, with something else in lasting columns."""
    uris = [f"{each.absolute().as_uri()}?mode=ro" for each in (database, copy)]
    with closing(sqlite3.connect(uris[0], uri=True)) as connection:
        connection.execute("ATTACH ? AS kept", (uris[1],))
        for table, key, at, rest in _LASTING_COLUMNS:
            keys, columns = key.split(), rest.split()
            joined = " AND ".join(f"n.{each} = k.{each}" for each in (*keys, at))
            new, old = (", ".join(f"{side}.{each}" for each in columns) for side in "nk")
            name = " || ' ' || ".join(f"n.{each}" for each in keys)
            erased = _ERASED.get(table, "0")
            query = (
                f"SELECT {name} FROM main.{table} n JOIN kept.{table} k ON {joined}"  # noqa: S608 - constants
                f" WHERE ({new}) IS NOT ({old}) AND NOT ({erased}) LIMIT {_MAX_EACH}"
            )
            try:
                found = connection.execute(query).fetchall()
            except sqlite3.OperationalError as error:
                # The backup may be of an older schema.
                if "no such" not in str(error):
                    raise
                continue
            yield from ((table, str(row[0])) for row in found)


def check_backup(archive: Path, *, folder: Path | None = None) -> CheckReport:
    """Check every byte of a backup, then its contents like a data directory. It is unpacked below
    `folder`, by default where temporary files go, and removed again. Blocking."""
    unpacked = Path(tempfile.mkdtemp(prefix="shiftboss-check-", dir=folder))
    try:
        manifest = extract_backup(archive, unpacked)
        home, database = unpacked / HOME_PREFIX, unpacked / DATABASE
        home.mkdir(exist_ok=True)
        findings: list[CheckFinding] = []
        if manifest.schema > HEAD_REVISION:
            findings = [_too_new(manifest.schema)]
        else:
            findings += _check_database(database)
            if not any(each.kind in {"page", "table"} for each in findings):
                findings += _check_files(home, database)
        return CheckReport(findings=findings, schema=manifest.schema, store_id=manifest.store_id)
    except BadBackup as error:
        return CheckReport(findings=(CheckFinding(kind="backup", text=str(error)),))
    except OSError as error:
        text = f"it cannot be unpacked in {unpacked.parent}: {error.strerror or error}"
        return CheckReport(findings=(CheckFinding(kind="backup", text=text),))
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)


def _too_new(revision: str) -> CheckFinding:
    text = f"schema {revision} is of a newer Shiftboss than this one ({HEAD_REVISION})"
    return CheckFinding(kind="schema", text=text)


def _check_database(database: Path) -> Iterator[CheckFinding]:
    for line in find_damage(database):
        yield CheckFinding(kind="page", text=line)
    try:
        uri = f"{database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("BEGIN")
            yield from _check_rows(connection)
    except DAMAGE_ERRORS as error:
        yield CheckFinding(kind="page", text=str(error))


def _check_rows(connection: sqlite3.Connection) -> Iterator[CheckFinding]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    tables = {row[0] for row in connection.execute(query)}
    for name in _NEEDED_TABLES:
        if name not in tables:
            yield CheckFinding(kind="table", text=f"the table {name} is missing")
    (revision,) = connection.execute("SELECT max(version_num) FROM alembic_version").fetchone()
    if not isinstance(revision, str):
        yield CheckFinding(kind="schema", text="the database does not say its schema")
    elif revision < HEAD_REVISION:
        text = f"schema {revision} is older than this version's ({HEAD_REVISION}): it is migrated"
        yield CheckFinding(kind="schema", text=f"{text} at the next start", is_error=False)
    broken = connection.execute("PRAGMA foreign_key_check").fetchmany(_MAX_EACH)
    for table, row, parent, _ in broken:
        text = f"{table} row {row} names a row of {parent} that is missing"
        yield CheckFinding(kind="missing_row", text=text)

    def find(statement: str) -> Iterable[Sequence[Any]]:
        try:
            return connection.execute(statement).fetchmany(_MAX_EACH)
        except sqlite3.OperationalError as error:
            # An older schema lacks some tables.
            if "no such" not in str(error):
                raise
            return ()

    yield from _find_missing_rows(find)


def _find_missing_rows(query: _Query) -> Iterator[CheckFinding]:
    for title, missing in _MISSING_ROWS:
        for row in islice(query(missing), _MAX_EACH):
            yield CheckFinding(kind="missing_row", text=f"{title}: {row[0]}")


def _check_files(home: Path, database: Path) -> Iterator[CheckFinding]:
    uri = f"{database.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            findings = list(_judge_files(home, connection.execute, _FILES_IN_SQLITE))
    except DAMAGE_ERRORS as error:
        text = f"the files that rows mention cannot be read: {error}"
        findings = [CheckFinding(kind="row", text=text)]
    yield from findings


def _judge_files(home: Path, query: _Query, of_tasks: str) -> Iterator[CheckFinding]:
    """`of_tasks` selects the files of unfinished tasks."""
    tasks = {row[0] for row in query("SELECT id FROM tasks")}
    found = {str(row[0]) for each in (of_tasks, _FILES_OF_LOGS) for row in query(each)}
    mentioned = {path for path in found if path.startswith("files/")}
    last = next(row[0] for row in query("SELECT max(id) FROM inbox")) or 0
    for path in sorted(mentioned):
        if not _is_inside(home, path):
            yield CheckFinding(kind="missing_file", text=f"a row mentions {path}, which is missing")
    for each in sorted((home / "memory").rglob("*.md")):
        if each.is_file() and not each.is_symlink() and not _is_text(each):
            text = f"{each.relative_to(home)} is not UTF-8 text"
            yield CheckFinding(kind="memory", text=text)
    yield from _find_orphans(home, tasks, last)


def _find_orphans(home: Path, tasks: set[str], last: int) -> Iterator[CheckFinding]:
    """Files of none of these tasks, and of messages after the last one."""
    for folder in _TASK_FOLDERS:
        for each in _children(home / folder):
            if _ID.fullmatch(each.name) and each.name not in tasks:
                text = f"{folder}/{each.name} belongs to no task"
                yield CheckFinding(kind="orphan", text=text)
    for each in _children(home / "files" / "inbox"):
        if each.name.isdecimal() and int(each.name) > last:
            text = f"files/inbox/{each.name} belongs to no message"
            yield CheckFinding(kind="orphan", text=text)


def _is_inside(home: Path, path: str) -> bool:
    whole = home / path
    try:
        return whole.resolve().is_relative_to(home.resolve()) and whole.exists()
    except (OSError, RuntimeError, ValueError):
        # Names that no file can have, and links that lead in a circle.
        return False


def _is_text(path: Path) -> bool:
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _children(folder: Path) -> Sequence[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ()
