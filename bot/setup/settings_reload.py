"""Reads the settings again while the program runs (all of them are valid, or none is taken), and
writes those of a `.env` file."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from dotenv.parser import parse_stream
from pydantic import BaseModel, SecretStr

from bot.config.channels import CHANNEL_SETTINGS
from bot.config.logs import replace_redaction
from bot.config.settings import (
    BadSettings,
    Settings,
    load_settings,
    load_with_env_file,
    settings_files,
)
from bot.config.sources import FileStamp, list_differences, read_stamps
from bot.engine.redaction import SecretMasker
from bot.setup.live_channels import LiveChannels
from cards.catalog import catalog_for
from cards.courier import OwnerCardSender
from cards.views.self_checks import finding_text, next_step_text
from cards.views.system import settings_card
from handlers.errors import UserError
from storage.data_directory import fsync_path, write_draft
from storage.db import finish_despite_cancel
from storage.errors import StoreUnavailable
from storage.records.people import Language
from storage.records.system import SettingsReading

SettingApplier: TypeAlias = Callable[[Settings], Awaitable[None]]

log = logging.getLogger(__name__)

_LOOK_SECONDS = 3.0
_COOL_DOWN = timedelta(seconds=10)


@dataclass(kw_only=True, eq=False)
class SettingsReloader:
    """Implements `handlers.ports_autonomy.SettingsPort`, and looks whether a file has changed.

    `in_force` are the settings that the program works by: those it started with, but for what
    `appliers` has applied since; `lock` is held while they change. `appliers` says by field how a
    setting changes while the program runs; all others wait for a restart. `check_usable` raises
    BadSettings for what is otherwise found where it is used. `maskers` learn new secrets, the
    first for the logs too. `channels` is None where no chat platform runs.
    `restart` ends the program and starts it again."""

    name = "settings"

    in_force: Settings
    appliers: Mapping[str, SettingApplier] = field(repr=False)
    check_usable: Callable[[Settings], None]
    owners: OwnerCardSender
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    maskers: tuple[SecretMasker, ...] = ()
    channels: LiveChannels | None = None
    load: Callable[[], Settings] = load_settings
    restart: Callable[[], None] = lambda: None
    _waiting: tuple[str, ...] = field(default=(), init=False)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _asked_at: datetime | None = field(default=None, init=False)
    _seen: Sequence[FileStamp] = field(default=(), init=False)
    _revision_key: bytes = field(default_factory=partial(secrets.token_bytes, 16), init=False)

    async def start(self, stack: AsyncExitStack) -> None:
        self._seen = self._look()

    async def run(self) -> None:
        last = self._seen
        while True:
            await self.sleep(_LOOK_SECONDS)
            now = self._look()
            # Twice the same: whoever writes it is done.
            if now != self._seen and now == last:
                try:
                    await self._follow(now)
                except StoreUnavailable as error:
                    log.warning("the owners cannot be told of changed settings now: %s", error)
            last = now

    async def reload(self) -> SettingsReading:
        now = self.now()
        if self._asked_at is not None and timedelta() <= now - self._asked_at < _COOL_DOWN:
            left = self._asked_at + _COOL_DOWN - now
            return SettingsReading(retry_seconds=math.ceil(left.total_seconds()))
        self._asked_at = now
        return await self._read()

    async def _read(self) -> SettingsReading:
        async with self.lock:
            self._seen = self._look()
            try:
                new = await asyncio.to_thread(self.load)
                self.check_usable(new)
            except BadSettings as error:
                log.warning("the settings stay as they were: %s", error)
                return SettingsReading(faults=error.errors)
            self.learn_secrets(new)
            if self.channels and (finding := await self.channels.check(new)):
                words = catalog_for(Language.ENGLISH)
                fault = f"{finding_text(finding, words)} {next_step_text(finding, words)}"
                log.warning("the settings stay as they were: %s", fault)
                return SettingsReading(faults=(fault,))
            return await self._take(new)

    def get_revision(self, fields: Iterable[str]) -> str:
        """Changes with these settings, and tells nothing about them."""
        values = [getattr(self.in_force, each) for each in fields]
        plain = [v.get_secret_value() if isinstance(v, SecretStr) else v for v in values]
        key = self._revision_key
        return blake2b(repr(plain).encode(), key=key, digest_size=8).hexdigest()

    def with_changes(self, changes: Mapping[str, str]) -> Settings:
        """The settings in force with these, by the names that people write; an empty value is the
        default. Their values must have been checked."""
        updates = {}
        for name, text in changes.items():
            field = _field_of(name)
            about = Settings.model_fields[field]
            value = SecretStr(text) if about.annotation is SecretStr else text
            updates[field] = value if text else about.get_default()
        return self.in_force.model_copy(update=updates)

    async def store(self, changes: Mapping[str, str]) -> None:
        """Write these settings, which all apply at once, to the `.env` file of the data directory,
        and use them from now on. Goes on to its end if its caller is cancelled. Raises UserError,
        and changes nothing, if another source of settings has the last word."""
        await finish_despite_cancel(self._store(changes))

    async def _store(self, changes: Mapping[str, str]) -> None:
        async with self.lock:
            candidate = self.with_changes(changes)
            await asyncio.to_thread(_write_checked, candidate, changes)
            self._seen = self._look()
            self.in_force = candidate
            await self._apply([*map(_field_of, changes)])

    def learn_secrets(self, settings: Settings) -> None:
        """Mask the secrets of these settings from now on."""
        for masker in self.maskers:
            masker.add(settings.secret_values)
        if self.maskers:
            replace_redaction(self.maskers[0].mask)

    def _look(self) -> Sequence[FileStamp]:
        # Three calls of the system, and no disk that could be slow but the one of the store.
        return read_stamps(settings_files(self.in_force.home))

    async def _follow(self, stamps: Sequence[FileStamp]) -> None:
        waiting = self._waiting
        reading = await self._read()
        if reading.applied or reading.faults or reading.waiting != waiting:
            newest = max((each[0] for each in stamps if each), default=0)
            await self.owners.notify(
                f"settings:{newest}", lambda words: settings_card(reading, words)
            )

    async def take(self, new: Settings, fields: Sequence[str]) -> SettingsReading:
        """Use these settings of `new`, but for those that wait for a restart. The caller must hold
        `lock`."""
        before = self.in_force
        changed = [each for each in fields if getattr(before, each) != getattr(new, each)]
        applied = [each for each in changed if self.applies_at_once(each)]
        self.in_force = before.model_copy(update={name: getattr(new, name) for name in applied})
        await self._apply(applied)
        # Known from now on: who changed them is told, and whoever reads the files again is not.
        self._waiting = _told(self.in_force, new, self._list_waiting(new))
        waiting = [each for each in changed if each not in applied]
        return SettingsReading(
            applied=_told(before, new, applied), waiting=_told(before, new, waiting)
        )

    async def _take(self, new: Settings) -> SettingsReading:
        changed = list_differences(self.in_force, new)
        reading = await self.take(new, changed)
        if changed:
            log.info("settings changed: %s", reading)
        return reading

    def _list_waiting(self, new: Settings) -> list[str]:
        differences = list_differences(self.in_force, new)
        return [each for each in differences if not self.applies_at_once(each)]

    def applies_at_once(self, field: str) -> bool:
        return field in self.appliers or (self.channels is not None and field in _CHANNEL_FIELDS)

    async def _apply(self, fields: Sequence[str]) -> None:
        """Bring these fields of `in_force` to where they are used."""
        self.learn_secrets(self.in_force)
        others = [each for each in fields if each not in _CHANNEL_FIELDS]
        for apply in dict.fromkeys(map(self.appliers.__getitem__, others)):
            await apply(self.in_force)
        if self.channels is not None and len(others) < len(fields):
            await self.channels.apply(self.in_force)


_CHANNEL_FIELDS = frozenset(chain.from_iterable(CHANNEL_SETTINGS.values()))


def _field_of(name: str) -> str:
    fields = Settings.model_fields.items()
    return next(field for field, about in fields if str(about.alias) == name)


def _write_checked(candidate: Settings, changes: Mapping[str, str]) -> None:
    def check(draft: Path) -> None:
        """Raises UserError if another source of settings wins over the file."""
        found = load_with_env_file(candidate.home, draft)
        for name in changes:
            field = _field_of(name)
            if getattr(found, field) != getattr(candidate, field):
                raise UserError("setup_fixed", name=name)

    try:
        write_env_file(candidate.home / ".env", changes, check=check)
    except (EnvFileError, BadSettings) as error:
        raise UserError("setup_not_written", reason=str(error)) from error


def _told(old: Settings, new: Settings, fields: Sequence[str]) -> tuple[str, ...]:
    """The names that people write, with the parts of groups, never a value."""
    names: list[str] = []
    for each in fields:
        name, was = str(Settings.model_fields[each].alias), getattr(old, each)
        parts = list_differences(was, getattr(new, each)) if isinstance(was, BaseModel) else []
        names += [f"{name}.{part}" for part in parts] or [name]
    return tuple(names)


_PLAIN = re.compile(r"[\w.:/@,+-]*", re.ASCII)


class EnvFileError(Exception):
    """The file was not changed. The text says why, without any value."""


def write_env_file(
    path: Path, changes: Mapping[str, str], *, check: Callable[[Path], None] | None = None
) -> None:
    """Set the variables, or remove those with an empty value, and keep all other lines. The file is
    replaced atomically and readable by its owner only. `check` gets a draft of it; what it raises
    leaves the file as it is. Blocking. Raises EnvFileError."""
    path = path.resolve()  # the target of a link is replaced, not the link
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        with write_draft(path, change_lines(before, changes).encode()) as draft:
            if check is not None:
                check(draft)
            draft.replace(path)
        fsync_path(path.parent)
    except UnicodeDecodeError as error:
        raise EnvFileError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise EnvFileError(f"{path} cannot be written ({error.strerror or error})") from error


def change_lines(text: str, changes: Mapping[str, str]) -> str:
    """The text of the file with the changes. A variable keeps its place; new ones stand at the end.
    Raises EnvFileError for a value that a line cannot hold."""
    # Names of settings are read without regard to case.
    left = {name.upper(): (name, value) for name, value in changes.items()}
    known, parts = set(left), []
    for found in parse_stream(StringIO(text)):
        key = (found.key or "").upper()
        if key not in known:
            parts.append(found.original.string)
        elif (change := left.pop(key, None)) is not None and change[1]:
            # A line's text begins with the blank lines before it.
            blank = re.match(r"\s*", found.original.string)
            parts.append(f"{blank.group() if blank else ''}{_write_line(*change)}")
    kept = "".join(parts)
    if kept and not kept.endswith("\n"):
        kept += "\n"
    return kept + "".join(_write_line(*each) for each in left.values() if each[1])


def _write_line(name: str, value: str) -> str:
    if not value.isprintable() or "${" in value:
        raise EnvFileError(f"{name} cannot be written: it has signs that no line can hold")
    if _PLAIN.fullmatch(value):
        return f"{name}={value}\n"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name}='{quoted}'\n"
