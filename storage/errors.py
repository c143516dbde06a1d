"""What can go wrong below the SQL line."""

from __future__ import annotations


class StorageError(Exception):
    """Base class, so callers can catch the whole floor."""


class StoreUnavailable(StorageError):
    """The store cannot be written or read now: disk full, file locked or damaged."""


class StoreTooNew(StorageError):
    """The database was made by a newer version; it has not been touched."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        super().__init__(f"database revision {revision!r} is not known to this version")


class HomeBusy(StorageError):
    """Another program holds this data directory; `briefly`, if it is about to let go by itself."""

    def __init__(self, path: str, pid: str, *, briefly: bool = False) -> None:
        self.path = path
        self.pid = pid
        self.briefly = briefly
        super().__init__(f"{path} is in use by process {pid}")


class HomeUnusable(StorageError):
    """The data directory cannot be made or written."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} cannot be used as data directory: {reason}")


class NotFound(StorageError):
    """There is no such thing. `noun` names the kind, `key` what was asked for."""

    def __init__(self, noun: str, key: str) -> None:
        self.noun = noun
        self.key = key
        super().__init__(f"no {noun} {key!r}")


class AmbiguousId(StorageError):
    """A prefix fits several ids; `candidates` are at most five of them."""

    def __init__(self, prefix: str, candidates: tuple[str, ...]) -> None:
        self.prefix = prefix
        self.candidates = candidates
        super().__init__(f"{prefix!r} fits {', '.join(candidates)}")


class LostLease(StorageError):
    """Someone else moved this task on; nothing was written."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(f"the lease on {task_id} is lost")


class Overtaken(StorageError):
    """What a transaction was built on is not so any more; nothing was written."""


class WrongState(StorageError):
    """The thing is not in a state that allows this. `state` is the one it is in."""

    def __init__(self, noun: str, key: str, state: str) -> None:
        self.noun = noun
        self.key = key
        self.state = state
        super().__init__(f"{noun} {key} is {state}")


class NotAllowed(StorageError):
    """This person may not decide that."""

    def __init__(self, noun: str, key: str) -> None:
        self.noun = noun
        self.key = key
        super().__init__(f"not allowed on {noun} {key}")


class TooManyTries(NotFound):
    """So many wrong keys were tried that even a right one is not looked at for a while."""
