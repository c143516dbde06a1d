"""Errors raised by the storage layer."""

from __future__ import annotations


class StorageError(Exception):
    """Base class of all storage errors."""


class StoreUnavailable(StorageError):
    """The store cannot be read or written now: disk full, file locked or damaged."""


class StoreTooOld(StorageError):
    """The database needs a migration to this version, which this process may not run."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        super().__init__(f"database revision {revision!r} is older than this version")


class StoreTooNew(StorageError):
    """The database was created by a newer version; it was not changed."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        super().__init__(f"database revision {revision!r} is not known to this version")


class StoreMismatch(StorageError):
    """The database is not the one that belongs to this data directory: missing, emptied, damaged
    or another store's. Nothing was changed."""

    def __init__(self, expected: str, found: str) -> None:
        self.expected = expected
        self.found = found
        super().__init__(f"expected {expected}, found {found}")


class BackupFailed(StorageError):
    """No backup was made, and nothing of it is left behind. The text says why."""


class BadBackup(StorageError):
    """The archive is no backup, is damaged, or holds what no backup may. The text says what."""


class RestoreRefused(StorageError):
    """The directory cannot take this backup. The text says why."""


class MoveRefused(StorageError):
    """The store cannot be moved to this database. Nothing was changed. The text says why."""


class DataDirectoryInUse(StorageError):
    """Another process holds this data directory. If `is_temporary`, it will
    release it soon."""

    def __init__(self, path: str, pid: str, *, is_temporary: bool = False) -> None:
        self.path = path
        self.pid = pid
        self.is_temporary = is_temporary
        super().__init__(f"{path} is in use by process {pid}")


class DataDirectoryUnusable(StorageError):
    """The data directory cannot be created or written."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} cannot be used as data directory: {reason}")


class NotFound(StorageError):
    """No record found. `noun` names the kind, `key` the id that was looked up."""

    def __init__(self, noun: str, key: str) -> None:
        self.noun = noun
        self.key = key
        super().__init__(f"no {noun} {key!r}")


class AmbiguousId(StorageError):
    """An id prefix matches several records; `candidates` lists at most five."""

    def __init__(self, prefix: str, candidates: tuple[str, ...]) -> None:
        self.prefix = prefix
        self.candidates = candidates
        super().__init__(f"{prefix!r} fits {', '.join(candidates)}")


class LostLease(StorageError):
    """Another worker claimed this task; nothing was written."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(f"the lease on {task_id} is lost")


class ConcurrentUpdate(StorageError):
    """The data changed since it was read; nothing was written."""


class WrongState(StorageError):
    """The record's current `state` does not allow this operation."""

    def __init__(self, noun: str, key: str, state: str) -> None:
        self.noun = noun
        self.key = key
        self.state = state
        super().__init__(f"{noun} {key} is {state}")


class NotAllowed(StorageError):
    """This person may not make that decision."""

    def __init__(self, noun: str, key: str) -> None:
        self.noun = noun
        self.key = key
        super().__init__(f"not allowed on {noun} {key}")


class TooManyAttempts(NotFound):
    """Too many wrong codes: even a correct one is rejected for a while."""
