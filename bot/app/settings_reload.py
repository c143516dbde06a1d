"""Reads the settings again while the program runs: all of them are valid, or none is taken."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel, SecretStr

from bot.app.autonomy import AutonomyServices
from bot.app.engine import EngineServices
from bot.app.heartbeat import heartbeat_hours
from bot.app.lifecycle import Signal
from bot.app.live_channels import LiveChannels
from bot.app.schedule import builtin_schedules, parse_hours
from bot.app.status import CHANNEL_SETTINGS
from bot.app.work_rules import configured_caps
from bot.app.workers import build_fetcher, build_policy, build_search
from bot.config.env_file import EnvFileError, write_env_file
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
from bot.engine.timing import working_calendar
from bot.engine.workflow.step_approvals import StepApprovalRules, parse_risk_words
from bot.transports.quota import MonthlyQuota
from cards.catalog import catalog_for
from cards.courier import OwnerCardSender
from cards.views.self_checks import finding_text, next_step_text
from cards.views.system import settings_card
from handlers.errors import UserError
from storage.db import finish_despite_cancel
from storage.errors import StoreUnavailable
from storage.records.people import Language
from storage.records.system import SettingsReading

log = logging.getLogger(__name__)

_LOOK_SECONDS = 3.0
_COOL_DOWN = timedelta(seconds=10)


@dataclass(kw_only=True, eq=False)
class SettingsReloader:
    """Implements `handlers.ports_autonomy.SettingsPort`, and looks whether a file has changed.

    `in_force` are the settings that the program works by: those it started with, but for what
    `AT_ONCE` has applied since; `lock` is held while they change. `maskers` learn new
    secrets, the first for the logs too. `channels` is None where no chat platform runs. `restart`
    ends the program and starts it again."""

    name = "settings"

    in_force: Settings
    engine: EngineServices
    autonomy: AutonomyServices
    quota: MonthlyQuota
    owners: OwnerCardSender
    set_owners: Callable[[Settings], Awaitable[None]]
    now: Callable[[], datetime]
    sleep: Callable[[float], Awaitable[None]]
    maskers: tuple[SecretMasker, ...] = ()
    channels: LiveChannels | None = None
    load: Callable[[], Settings] = load_settings
    restart: Signal[[]] = field(default_factory=Signal, init=False)
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
                check_all(new)
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
        """Write these settings, all of them `AT_ONCE`, to the `.env` file of the data directory,
        and use them from now on. Goes on to its end if its caller is cancelled. Raises UserError,
        and changes nothing, if another source of settings has the last word."""
        await finish_despite_cancel(self._store(changes))

    async def _store(self, changes: Mapping[str, str]) -> None:
        async with self.lock:
            candidate = self.with_changes(changes)
            await asyncio.to_thread(_write_checked, candidate, changes)
            self._seen = self._look()
            self.in_force = candidate
            for apply in dict.fromkeys(AT_ONCE[_field_of(name)] for name in changes):
                await apply(self, candidate)

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
        applied = [each for each in changed if self._is_at_once(each)]
        self.in_force = before.model_copy(update={name: getattr(new, name) for name in applied})
        for apply in dict.fromkeys(AT_ONCE[name] for name in applied):
            await apply(self, self.in_force)
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
        return [each for each in differences if not self._is_at_once(each)]

    def _is_at_once(self, field: str) -> bool:
        return field in AT_ONCE and (self.channels is not None or field not in _CHANNEL_FIELDS)


_CHANNEL_FIELDS = tuple(chain.from_iterable(CHANNEL_SETTINGS.values()))


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


def check_all(settings: Settings) -> None:
    """Check what is otherwise found where it is used. Raises BadSettings."""
    build_policy(settings)
    build_fetcher(settings)
    build_search(settings)


def _told(old: Settings, new: Settings, fields: Sequence[str]) -> tuple[str, ...]:
    """The names that people write, with the parts of groups, never a value."""
    names: list[str] = []
    for each in fields:
        name, was = str(Settings.model_fields[each].alias), getattr(old, each)
        parts = list_differences(was, getattr(new, each)) if isinstance(was, BaseModel) else []
        names += [f"{name}.{part}" for part in parts] or [name]
    return tuple(names)


async def _apply_caps(parts: SettingsReloader, settings: Settings) -> None:
    parts.engine.rules.caps.by_scope = configured_caps(settings)


async def _apply_rules(parts: SettingsReloader, settings: Settings) -> None:
    parts.engine.rules.permissions.policy = build_policy(settings)


async def _apply_risk_words(parts: SettingsReloader, settings: Settings) -> None:
    words = parse_risk_words(settings.risk_words)
    parts.engine.rules.step_approvals.rules = StepApprovalRules(tuple(words))


async def _apply_dispatch(parts: SettingsReloader, settings: Settings) -> None:
    dispatcher = parts.engine.dispatcher
    dispatcher.slots = settings.slots
    dispatcher.patience = timedelta(hours=settings.patience_hours)
    dispatcher.offer_after = timedelta(hours=settings.offer_after_hours)
    dispatcher.grace = settings.stop_grace_seconds
    dispatcher.wake()


async def _apply_hours(parts: SettingsReloader, settings: Settings) -> None:
    due_times = parts.engine.schedule.service.due_times
    due_times.calendar = working_calendar(settings.holidays)
    due_times.quiet_hours = parse_hours(settings, settings.quiet_hours)
    parts.engine.heartbeat.hours = heartbeat_hours(settings)
    parts.engine.heartbeat.hours_text = settings.heartbeat_hours


async def _apply_intervals(parts: SettingsReloader, settings: Settings) -> None:
    parts.engine.heartbeat.every = timedelta(minutes=settings.heartbeat_minutes)
    await parts.engine.schedule.builtin.follow(builtin_schedules(settings))


async def _apply_models(parts: SettingsReloader, settings: Settings) -> None:
    parts.learn_secrets(settings)
    await parts.engine.workers.live_models.apply(settings)


async def _apply_channels(parts: SettingsReloader, settings: Settings) -> None:
    parts.learn_secrets(settings)
    if parts.channels is not None:
        await parts.channels.apply(settings)


async def _apply_owners(parts: SettingsReloader, settings: Settings) -> None:
    await parts.set_owners(settings)


async def _apply_retention(parts: SettingsReloader, settings: Settings) -> None:
    parts.autonomy.retention.keep = settings.retention


async def _apply_quota(parts: SettingsReloader, settings: Settings) -> None:
    parts.quota.quota = settings.feishu_monthly_quota


async def _apply_log_level(_parts: SettingsReloader, settings: Settings) -> None:
    logging.getLogger().setLevel(settings.log_level)


_Apply: TypeAlias = Callable[[SettingsReloader, Settings], Awaitable[None]]

_GROUPS: Mapping[tuple[str, ...], _Apply] = {
    (
        "cap_task",
        "cap_person",
        "cap_chat",
        "cap_day",
        "cap_self",
        "cap_heartbeat",
    ): _apply_caps,
    ("tools_security", "tools_ask", "tools_allow", "tools_ask_for", "tools_deny"): _apply_rules,
    ("risk_words",): _apply_risk_words,
    ("slots", "patience_hours", "offer_after_hours", "stop_grace_seconds"): _apply_dispatch,
    ("quiet_hours", "holidays", "heartbeat_hours"): _apply_hours,
    ("self_check_minutes", "heartbeat_minutes"): _apply_intervals,
    (
        *("model", "fallback", "model_small", "model_middle", "model_large"),
        *("vision_model", "openai_tools"),
        *("anthropic_api_key", "anthropic_base_url", "openai_api_key", "openai_base_url"),
    ): _apply_models,
    _CHANNEL_FIELDS: _apply_channels,
    ("owners",): _apply_owners,
    ("retention",): _apply_retention,
    ("feishu_monthly_quota",): _apply_quota,
    ("log_level",): _apply_log_level,
}

AT_ONCE: Mapping[str, _Apply] = {name: way for names, way in _GROUPS.items() for name in names}
"""How each setting that applies while the program runs does so; all others wait for a restart."""
