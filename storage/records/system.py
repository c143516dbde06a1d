"""Defines the health and status of Shiftboss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from storage.records.people import Channel
from storage.records.processes import ProcessSituation, WaitingHome
from storage.records.tasks import Task, TaskStatus, UsageTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """`alert` is a catalogue key while something is wrong, else empty; `facts` fill it in.
    `account` is the bot's name as the platform told it; `connected_at` is None while it does not
    answer. `last_alert_at` is when something was last found wrong, as `last_alert` says."""

    channel: Channel
    alert: str = ""
    facts: Mapping[str, object] | None = None
    account: str = ""
    connected_at: datetime | None = None
    last_alert: str = ""
    last_facts: Mapping[str, object] | None = None
    last_alert_at: datetime | None = None


AUTO_MODEL = "auto"
"""Chooses a model for each message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """A selectable model. `problem` is a catalogue key, empty if the model is ready. `service` is
    where it runs, empty for what the backend's name tells."""

    backend: str
    model: str
    problem: str = ""
    service: str = ""

    @property
    def name(self) -> str:
        return f"{self.backend}:{self.model}" if self.model else self.backend

    @property
    def label(self) -> str:
        """For people: with the service instead of the backend that speaks its API."""
        if not self.service:
            return self.name
        return f"{self.model} ({self.service})" if self.model else self.service


class ModelKind(StrEnum):
    """The way a model is connected. LOCAL is a server with an API like OpenAI's."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    LOCAL = "local"
    CLI = "cli"
    OFFLINE = "offline"

    @property
    def is_api(self) -> bool:
        return self in {ModelKind.ANTHROPIC, ModelKind.OPENAI, ModelKind.LOCAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConnection:
    """A model to connect. An empty `key` keeps the one of the same address, an empty `model` means
    the service's own choice; for a coding CLI it is the CLI's name. `seen` is the revision of the
    ModelSetup that the person saw, empty for any."""

    kind: ModelKind
    key: str = field(default="", repr=False)
    base_url: str = ""
    model: str = ""
    seen: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSetup:
    """How models are connected. `kind` is that of the model in use, None for the offline backend;
    `with_key` are the kinds whose key is set; `clis` are the coding CLIs that were found on this
    machine."""

    revision: str
    choice: ModelChoice
    kind: ModelKind | None
    with_key: frozenset[ModelKind]
    base_urls: Mapping[ModelKind, str]
    clis: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendHealth:
    """`problem` is a catalogue key, empty if it can work; `facts` say how to fix it. `version` is
    what it reported, if asked; `note` is a catalogue key for further advice. `is_cli` marks a
    coding CLI; `fallback` replaces it while it is unavailable, empty for none."""

    name: str
    problem: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    note: str = ""
    is_cli: bool = False
    fallback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendReport:
    """All backends, or only the one asked about, which was also test-started. `file_errors` are
    errors in the coding CLI file; `fallback` replaces an unavailable CLI."""

    backends: tuple[BackendHealth, ...]
    default: str
    fallback: str = ""
    file_errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupState:
    """`last_at` is when the newest backup was made, None if there is none; `failed_since` is set
    while backups fail."""

    last_at: datetime | None = None
    failed_since: datetime | None = None
    is_on: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """How many bytes one kind of data uses. `kind` is a catalogue key; `is_partial` says that there
    is more than was counted."""

    kind: str
    size: int
    is_partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStatus:
    """`memory_bytes` is the resident set; `started_at` is None while Shiftboss does not run, and
    then there is no process and no channel. `waiting_approvals` counts all chats. `sandbox` is
    bwrap, landlock or none, `limits` says who limits commands: cgroup, user or watch.
    `command_user` is the user ID of commands if we are root, which may be 0. `unlisted_owner` names
    an owner who is no longer configured. `backup`, `disk` and what follows are for owners:
    the processes that share the store, none if this one is alone, and the data directories that
    still have what must be forgotten."""

    version: str
    pid: int
    started_at: datetime | None
    memory_bytes: int
    model: ModelChoice
    channels: tuple[ChannelHealth, ...]
    slots: int
    counts: Mapping[TaskStatus, int]
    today: int
    waiting_approvals: int
    queued_messages: int
    recent: tuple[Task, ...]
    sandbox: str = "none"
    sandbox_program: str = ""
    limits: str = "user"
    command_user: int | None = None
    unlisted_owner: str = ""
    backup: BackupState | None = None
    disk: tuple[DiskUse, ...] = ()
    processes: tuple[ProcessSituation, ...] = ()
    waiting_homes: tuple[WaitingHome, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFigures:
    """Figures for monitoring. `tasks` counts those that are not deleted. `models` has what each
    model has used, those of the earliest first use first. `outbox_since` is when the oldest waiting
    message was last changed. `due` counts rows by kind whose time has come."""

    tasks: Mapping[TaskStatus, int]
    models: Sequence[tuple[str, UsageTotals]]
    waiting_approvals: int
    queued_messages: int
    outbox_since: datetime | None
    due: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFigures:
    version: str
    slots: int
    channels: tuple[ChannelHealth, ...]
    store: StoreFigures
    backup: BackupState
    processes: tuple[ProcessSituation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRecord:
    """The work that a restore left undone. `unsent` counts cards, `unhandled` quotes messages that
    waited, of `unhandled_count`; `tasks` are ids and titles of tasks that were queued, running or
    waiting for a time. `is_told` says that the owners know."""

    id: str
    backup_at: datetime
    restored_at: datetime
    unsent: int = 0
    unhandled_count: int = 0
    unhandled: Sequence[str] = ()
    tasks: Sequence[tuple[str, str]] = ()
    approvals: int = 0
    presses: int = 0
    is_told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReading:
    """The settings after they were read again, by the names that people write. `applied` are in
    force since then, `waiting` are not before a restart. With `faults`, nothing was changed; with
    `retry_seconds`, nothing was read, because they were read just before."""

    applied: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    retry_seconds: int = 0


class SettingSource(StrEnum):
    """Where a setting's value comes from, the strongest first."""

    ENVIRONMENT = "environment"
    ENV_FILE = "env_file"
    YAML = "yaml"
    DEFAULT = "default"


class SettingChange(StrEnum):
    """How a setting is changed: on its page, at once or for the next start; by connecting
    something; in a file only, before a start; or in the environment that the program was started
    with."""

    HERE = "here"
    RESTART = "restart"
    SETUP = "setup"
    FILE = "file"
    ENVIRONMENT = "environment"

    @property
    def is_on_page(self) -> bool:
        return self in {SettingChange.HERE, SettingChange.RESTART}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingView:
    """A setting as it is in force. `field` is its short name, `name` the one in the environment.
    `value` and `default` are as one would write them, and empty for secrets; so is `stored`, which
    is the value after a restart, and `waits` if that is another one. `file` is the path of the
    source, if it is a file. `options` are the only values that it can have, empty for any."""

    name: str
    field: str
    group: str
    value: str
    stored: str
    default: str
    is_secret: bool
    is_set: bool
    source: SettingSource
    file: str
    change: SettingChange
    options: tuple[str, ...]
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingList:
    """All settings by group. `revision` changes with the values that can be changed. `faults` say
    why the files cannot be used as they are now."""

    revision: str
    settings: tuple[SettingView, ...]
    faults: tuple[str, ...] = ()
