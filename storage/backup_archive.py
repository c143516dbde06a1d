"""Writes, verifies and unpacks backups: a gzipped tar of the data directory and the database.

The last member is the manifest, which has the SHA-256 of every other one. The file ends with an
empty gzip member whose comment is the SHA-256 of all bytes before it, since some bits of a
compressed stream are not covered by its own checksum. An archive is untrusted input: only files and
folders with plain names are accepted.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path, PurePosixPath
from typing import IO, Any

from storage.data_directory import fsync_path, open_private
from storage.errors import BackupFailed, BadBackup, StoreUnavailable
from storage.file_trees import MAX_DEPTH, walk_folders
from storage.migrate import DatabasePlace, describe_place, read_facts
from storage.store_copy import take_snapshot

MANIFEST = "manifest.json"
DATABASE = "database.sqlite"
HOME_PREFIX = "home/"
_FORMAT = 1
_STEM, _SUFFIX = "shiftboss-", ".tar.gz"
_STAGING_PREFIX = ".backup-"
_LABEL_MARK, _KEPT_BEFORE_MIGRATIONS = "-before-", 3

# Of this run or this machine only, or made again when needed.
_NEVER = frozenset(
    {"lock", "import.lock", "web-address", "store.json", "logs", "shell", "lent", "hooks"}
)
_NEVER_PREFIXES = (".restoring", "replaced-", ".look-", ".backup-", ".import-")
_NEVER_SUFFIXES = (".part",)
_MASKED_BYTES = 1_000_000

DAMAGE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Raised by queries of a damaged database, whose messages quote what is not text."""

_CHUNK = 1 << 20
_SEAL_HEAD = b"\x1f\x8b\x08\x10" + bytes(5) + b"\xff" + b"sha256:"
_MAX_MEMBERS = 2_000_000
_MAX_MANIFEST = 512 << 20
# A header may claim any length, and the library would read it into memory.
_MAX_HEADER = 1 << 20
# The library takes numbers and texts of headers as they come.
_DECODING_ERRORS = (EOFError, zlib.error, ValueError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """`files` has the SHA-256 of each member. `skipped` was not archived: links, devices, folders
    nested too deep; `changed` was written to while it was read."""

    store_id: str
    schema: str
    version: str
    created_at: str
    secrets: bool
    files: Mapping[str, str]
    skipped: Sequence[str] = ()
    changed: Sequence[str] = ()
    format: int = _FORMAT

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self.created_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSource:
    """The contents of a backup. `secret_names` are entries of `home` left out unless
    `with_secrets`, and `mask` removes the secrets from a settings file, by its name and text."""

    home: Path
    database: DatabasePlace
    version: str
    mask: Callable[[str, str], str]
    secret_names: frozenset[str]
    with_secrets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A finished, verified archive; `size` in bytes."""

    path: Path
    size: int
    manifest: BackupManifest


def create_backup(source: BackupSource, folder: Path, *, now: datetime, label: str = "") -> Backup:
    """Archive everything in `folder`, verify it, and only then give it its name. Blocking; works
    next to a running Shiftboss, which keeps writing.

    Raises BackupFailed, and then leaves nothing behind.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_stale_staging(folder)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=folder))
    except OSError as error:
        raise _failure(folder, error) from error
    try:
        with _staging_lock(staging):
            return _create_in(source, folder, staging, now=now, label=label)
    except (OSError, sqlite3.Error, tarfile.TarError) as error:
        raise _failure(folder, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def list_backups(folder: Path) -> Sequence[Path]:
    """Finished backups, newest first."""
    found = folder.glob(f"{_STEM}*{_SUFFIX}") if folder.is_dir() else ()
    return sorted(found, key=lambda path: path.name, reverse=True)


def prune_backups(folder: Path, *, keep: int, newest: Path | None = None) -> Sequence[Path]:
    """Remove all but the newest backups, and all but the newest three of those made before
    migrations. `newest` stays, whatever the clock said when it was named. Returns what was
    removed."""
    found = list_backups(folder)
    labelled = [each for each in found if _LABEL_MARK in each.name]
    plain = [each for each in found if each not in labelled]
    gone = [*plain[keep:], *labelled[_KEPT_BEFORE_MIGRATIONS:]]
    gone = [each for each in gone if each != newest]
    for each in gone:
        each.unlink(missing_ok=True)
    return gone


def verify_backup(path: Path, *, max_bytes: int | None = None) -> BackupManifest:
    """Check every byte against the manifest; writes nothing. Blocking. Raises BadBackup, also if it
    would need more than `max_bytes` when unpacked."""
    return _read_all(path, lambda _name, _mode, _data: None, max_bytes)


def extract_backup(path: Path, into: Path) -> BackupManifest:
    """Verify and unpack into the empty folder `into`. Blocking. Raises BadBackup, also if there is
    not enough space, and OSError if the folder cannot be written; it then holds a part."""

    def write(name: str, mode: int, data: Iterator[bytes] | None) -> None:
        target = into / name
        if data is None:
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            return
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Scripts of skills stay executable; nothing is readable by others.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(target, flags, mode & 0o700 | 0o600), "wb") as file:
            for chunk in data:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())

    return _read_all(path, write, shutil.disk_usage(into.parent).free)


def find_silent_changes(path: Path, home: Path, folders: Sequence[str]) -> Iterator[str]:
    """Files below `folders` of `home` whose bytes are not those of this backup although their size
    and time are unchanged. Blocking. Raises BadBackup."""
    kept = tuple(f"{HOME_PREFIX}{each}/" for each in folders)
    for archive, member in _members(path):
        if not (member.isreg() and member.name.startswith(kept)):
            continue
        name = _safe_name(member).removeprefix(HOME_PREFIX)
        live = _hash_unwritten(home / name, member)
        if live:
            digest = hashlib.sha256()
            for _ in _chunks(archive, member, digest):
                pass
            if digest.hexdigest() != live:
                yield name


def extract_database(path: Path, into: Path) -> None:
    """Unpack only the database, to this file. Blocking. Raises BadBackup and OSError."""
    for archive, member in _members(path):
        if member.name == DATABASE and member.isreg():
            with into.open("xb") as file:
                file.writelines(_chunks(archive, member, hashlib.sha256()))


def _hash_unwritten(path: Path, member: tarfile.TarInfo) -> str:
    """The SHA-256 of a file that has the size and time of its copy; empty for another,
    and `unreadable` where the disk fails."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            facts = os.fstat(file.fileno())
            seen = (stat.S_IFMT(facts.st_mode), facts.st_size, int(facts.st_mtime))
            if seen != (stat.S_IFREG, member.size, int(member.mtime)):
                return ""
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        # Files that are gone are found by the references between rows and files.
        return "unreadable" if error.errno == errno.EIO else ""


def seal_archive(path: Path) -> None:
    """Append the checksum of a file to it."""
    with path.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0, os.SEEK_END)
        file.write(_seal(digest))


def find_damage(path: Path) -> Sequence[str]:
    """SQLite's complaints about a database file, at most some lines."""
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            rows = connection.execute("PRAGMA integrity_check(20)").fetchall()
    except DAMAGE_ERRORS as error:
        return (str(error),)
    return tuple(str(row[0]) for row in rows if row[0] != "ok")


def remove_stale_staging(folder: Path) -> None:
    """Remove what a killed backup left behind, but not that of one which runs now."""
    for left in folder.glob(f"{_STAGING_PREFIX}*"):
        try:
            with _staging_lock(left):
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue


def _create_in(
    source: BackupSource, folder: Path, staging: Path, *, now: datetime, label: str
) -> Backup:
    database, part = staging / DATABASE, staging / "archive"
    # Before the files: a file that is newer than the database is imported like one edited by hand.
    try:
        take_snapshot(source.database, database)
    except StoreUnavailable as error:
        raise BackupFailed(f"{describe_place(source.database)}: {error}") from error
    if damage := find_damage(database):
        place = describe_place(source.database)
        raise BackupFailed(f"the database {place} is damaged ({damage[0]}): see `shiftboss check`")
    writer = _ArchiveWriter(source)
    with open(part, "wb", opener=open_private) as raw:
        writer.write(raw, database, folder, now)
    seal_archive(part)
    fsync_path(part)
    manifest = verify_backup(part)
    path = _move_to_free_name(part, folder, now, label)
    fsync_path(folder)
    return Backup(path=path, size=path.stat().st_size, manifest=manifest)


def _move_to_free_name(part: Path, folder: Path, now: datetime, label: str) -> Path:
    """Another process may be writing a backup in the same second."""
    stem = f"{_STEM}{now.astimezone(UTC):%Y%m%d-%H%M%S}{f'-{label}' if label else ''}"
    for number in count(1):
        path = folder / f"{stem}{f'-{number}' if number > 1 else ''}{_SUFFIX}"
        try:
            path.hardlink_to(part)
        except FileExistsError:
            continue
        except OSError:
            # Not every file system has links.
            part.rename(path)
        return path
    raise AssertionError


@dataclass(eq=False)
class _ArchiveWriter:
    source: BackupSource
    _hashes: dict[str, str] = field(default_factory=dict)
    _skipped: list[str] = field(default_factory=list)
    _changed: list[str] = field(default_factory=list)

    def write(self, raw: IO[bytes], database: Path, folder: Path, now: datetime) -> None:
        facts = read_facts(f"{database.absolute().as_uri()}?mode=ro")
        with (
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w:", format=tarfile.PAX_FORMAT) as archive,
        ):
            with database.open("rb") as file:
                self._add(archive, DATABASE, file, os.fstat(file.fileno()))
            self._add_home(archive, folder)
            manifest = BackupManifest(
                store_id=facts.store_id,
                schema=facts.revision or "",
                version=self.source.version,
                created_at=now.astimezone(UTC).isoformat(),
                secrets=self.source.with_secrets,
                files=self._hashes,
                skipped=self._skipped,
                changed=self._changed,
            )
            body = json.dumps(asdict(manifest), indent=1).encode()
            archive.addfile(_member(MANIFEST, len(body)), io.BytesIO(body))

    def _add_home(self, archive: tarfile.TarFile, folder: Path) -> None:
        home, skip = self.source.home, self._excluded(folder)
        for inside, folders, names, at in walk_folders(home, on_too_deep=self._skip):
            top = not inside.parts
            links = [name for name in folders if _is_link(name, at)]
            folders[:] = sorted(
                each
                for each in set(folders) - set(links)
                if home / inside / each not in skip and not (top and self._is_left_out(each))
            )
            for each in folders:
                member = _member(f"{HOME_PREFIX}{(inside / each).as_posix()}", 0)
                member.type, member.mode = tarfile.DIRTYPE, 0o700
                archive.addfile(member)
            for name in sorted({*names, *links}):
                if home / inside / name in skip or (top and self._is_left_out(name)):
                    continue
                self._add_file(archive, at, (inside / name).as_posix(), top=top)

    def _skip(self, folder: PurePosixPath) -> None:
        self._skipped.append(str(folder))

    def _add_file(self, archive: tarfile.TarFile, at: int, path: str, *, top: bool) -> None:
        name = PurePosixPath(path).name
        # A pipe would block without this, a link would lead anywhere.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            handle = os.open(name, flags, dir_fd=at)
        except FileNotFoundError:
            return
        except OSError:
            self._skipped.append(path)
            return
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                self._skipped.append(path)
            elif top and not self.source.with_secrets and facts.st_size <= _MASKED_BYTES:
                self._add_masked(archive, path, file.read(), facts)
            else:
                self._add(archive, HOME_PREFIX + path, file, facts)

    def _add_masked(
        self, archive: tarfile.TarFile, path: str, body: bytes, facts: os.stat_result
    ) -> None:
        try:
            body = self.source.mask(path, body.decode()).encode()
        except UnicodeDecodeError:
            self._skipped.append(path)
            return
        self._add(archive, HOME_PREFIX + path, io.BytesIO(body), facts, len(body))

    def _add(
        self,
        archive: tarfile.TarFile,
        name: str,
        file: IO[bytes],
        facts: os.stat_result,
        size: int | None = None,
    ) -> None:
        member = _member(name, facts.st_size if size is None else size)
        member.mode, member.mtime = facts.st_mode & 0o700 | 0o600, int(facts.st_mtime)
        hashing = _HashingReader(file)
        archive.addfile(member, hashing)  # type: ignore[arg-type]  # all that it calls is read
        self._hashes[name] = hashing.digest.hexdigest()
        if hashing.was_short:
            self._changed.append(name)

    def _excluded(self, folder: Path) -> frozenset[Path]:
        """Paths below the home that are archived otherwise or never: the database and backups."""
        database = self.source.database
        suffixes = ("", "-wal", "-shm", "-journal") if isinstance(database, Path) else ()
        logs = (Path(f"{database}{each}") for each in suffixes)
        return frozenset((folder, self.source.home / "backups", *logs))

    def _is_left_out(self, name: str) -> bool:
        secret = name in self.source.secret_names and not self.source.with_secrets
        odd = name.startswith(_NEVER_PREFIXES) or name.endswith(_NEVER_SUFFIXES)
        return secret or odd or name in _NEVER


class _HashingReader:
    """Reads a file of which a member's whole size is expected; zeros stand for a missing end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.was_short = False

    def read(self, size: int) -> bytes:
        body = self._file.read(size)
        if len(body) < size:
            self.was_short = True
            body += bytes(size - len(body))
        self.digest.update(body)
        return body


class _BoundedReader:
    """Refuses to read more at once than any proper header or chunk has."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            raise BadBackup("a header in it is too long")
        return self._file.read(size)


def _read_all(
    path: Path,
    take: Callable[[str, int, Iterator[bytes] | None], None],
    max_bytes: int | None = None,
) -> BackupManifest:
    """Pass every member to `take`, which may read its data, and compare all hashes."""
    found: dict[str, str] = {}
    manifest: BackupManifest | None = None
    unpacked = 0
    for archive, member in _members(path):
        if manifest is not None:
            raise BadBackup("it has members after its manifest")
        if member.name == MANIFEST:
            manifest = _parse_manifest(archive, member)
            continue
        name = _safe_name(member)
        unpacked += member.size
        if max_bytes is not None and unpacked > max_bytes:
            raise BadBackup(f"it needs more than the {max_bytes} bytes that are free")
        if member.isdir():
            take(name, member.mode, None)
            continue
        if name in found:
            raise BadBackup(f"{name!r} is in it twice")
        digest = hashlib.sha256()
        data = _chunks(archive, member, digest)
        take(name, member.mode, data)
        for _ in data:
            pass
        found[name] = digest.hexdigest()
    if manifest is None:
        raise BadBackup("it is cut off: its manifest is missing")
    _compare(found, manifest)
    return manifest


def _members(path: Path) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Every member in order, from an archive whose bytes are as they were written."""
    _check_seal(path)
    with _translate_archive_errors(), gzip.open(path, "rb") as packed:
        reader: Any = _BoundedReader(packed)  # type: ignore[arg-type]  # a GzipFile reads bytes
        with tarfile.open(fileobj=reader, mode="r:") as archive:
            for number, member in enumerate(archive):
                if number > _MAX_MEMBERS:
                    raise BadBackup("it has too many members")
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep them all
                yield archive, member
        # To the end, where the compressed stream has its own checksum.
        if packed.read(_CHUNK).strip(b"\0") or packed.read(1):
            raise BadBackup("it has data after its end")


def _compare(found: Mapping[str, str], manifest: BackupManifest) -> None:
    if missing := sorted(manifest.files.keys() ^ found.keys()):
        raise BadBackup(f"{missing[0]!r} is missing or not in its manifest")
    if wrong := sorted(name for name, each in found.items() if manifest.files[name] != each):
        raise BadBackup(f"{wrong[0]!r} is damaged: its SHA-256 is not the manifest's")
    if DATABASE not in found:
        raise BadBackup("there is no database in it")


def _chunks(archive: tarfile.TarFile, member: tarfile.TarInfo, digest: Any) -> Iterator[bytes]:
    file = archive.extractfile(member)
    assert file is not None
    left = member.size
    while left:
        with _translate_archive_errors():
            chunk = file.read(min(left, _CHUNK))
        if not chunk:
            raise BadBackup(f"it is cut off in {member.name!r}")
        left -= len(chunk)
        digest.update(chunk)
        yield chunk


def _parse_manifest(archive: tarfile.TarFile, member: tarfile.TarInfo) -> BackupManifest:
    if not member.isreg() or member.issparse() or member.size > _MAX_MANIFEST:
        raise BadBackup("its manifest is not a regular file")
    body = b"".join(_chunks(archive, member, hashlib.sha256()))
    try:
        loaded = json.loads(body)
        manifest = BackupManifest(**{each: loaded[each] for each in BackupManifest.__slots__})
        files = {str(name): str(value) for name, value in manifest.files.items()}
        if manifest.created.tzinfo is None:
            raise BadBackup("the time in its manifest has no zone")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadBackup("its manifest cannot be read") from error
    if manifest.format != _FORMAT or not all(
        isinstance(each, str) for each in (manifest.store_id, manifest.schema, manifest.version)
    ):
        raise BadBackup("its manifest is of another version of Shiftboss")
    assert len(files) == len(manifest.files)
    return manifest


def _safe_name(member: tarfile.TarInfo) -> str:
    """The name of a file or folder that belongs into a backup."""
    name = member.name
    parts = PurePosixPath(name).parts
    plain = member.isdir() or (member.isreg() and not member.issparse())
    if not plain:
        raise BadBackup(f"{name!r} is not a regular file: links and devices are refused")
    if member.size < 0:
        raise BadBackup(f"{name!r} has no valid size")
    odd = any(part in {"..", "."} or "\0" in part for part in parts)
    rooted = name == DATABASE or (name.startswith(HOME_PREFIX) and len(parts) > 1)
    if odd or not rooted or len(parts) > MAX_DEPTH + 2 or PurePosixPath(name).as_posix() != name:
        raise BadBackup(f"{name!r} is not a valid name in a data directory")
    top = parts[1] if len(parts) > 1 else ""
    if top in {"backups", *_NEVER} or top.startswith(_NEVER_PREFIXES):
        raise BadBackup(f"{name!r} does not belong in a backup")
    return name


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


def _is_link(name: str, at: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return True


def _seal(digest: str) -> bytes:
    """An empty gzip member with a comment."""
    return _SEAL_HEAD + digest.encode() + b"\0\x03\0" + bytes(8)


def _check_seal(path: Path) -> None:
    if not path.exists():
        raise BadBackup(f"there is no file {path}")
    digest, length = hashlib.sha256(), len(_seal("0" * 64))
    with path.open("rb") as file:
        left = os.fstat(file.fileno()).st_size - length
        while left > 0 and (chunk := file.read(min(left, _CHUNK))):
            digest.update(chunk)
            left -= len(chunk)
        found = file.read()
    if not found.startswith(_SEAL_HEAD):
        raise BadBackup("it is not a backup, or it is cut off")
    if found != _seal(digest.hexdigest()):
        raise BadBackup("it is damaged: its checksum is wrong")


@contextmanager
def _staging_lock(staging: Path) -> Iterator[None]:
    """Held while a backup is written into this folder. Raises OSError if it is held."""
    import fcntl

    handle = os.open(staging / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@contextmanager
def _translate_archive_errors() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, gzip.BadGzipFile, *_DECODING_ERRORS) as error:
        raise BadBackup(f"it is not a backup, or it is damaged ({error})") from error


def _failure(folder: Path, error: Exception) -> BackupFailed:
    if isinstance(error, OSError) and error.filename:
        return BackupFailed(f"{error.filename}: {error.strerror or error}")
    return BackupFailed(f"{folder}: {getattr(error, 'strerror', None) or error}")
