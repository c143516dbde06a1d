"""Lists all settings and where each comes from, changes them, and restarts the program with those
that wait for it."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, SecretStr

from bot.config.channels import CHANNEL_SETTINGS
from bot.config.settings import (
    YAML_FILE,
    BadSettings,
    Settings,
    load_with_env_file,
    load_yaml,
    secret_setting_names,
)
from bot.setup.settings_reload import EnvFileError, SettingsReloader, write_env_file
from cards import formats
from cards.views.system import FAULT_SEPARATOR, settings_card
from handlers.errors import UserError
from storage.db import finish_despite_cancel
from storage.records.system import (
    SettingChange,
    SettingList,
    SettingSource,
    SettingsReading,
    SettingView,
)

log = logging.getLogger(__name__)

_MAX_VALUE = 4_000
_MAX_NAME = 60
GROUPS: Mapping[str, tuple[str, ...]] = {
    "work": (
        *("slots", "patience_hours", "offer_after_hours", "stop_grace_seconds", "queue", "helpers"),
        *("approval_hours", "risk_words", "step_turns", "step_tokens", "step_seconds"),
    ),
    "spending": (*("cap_task", "cap_person", "cap_chat", "cap_day", "cap_self", "cap_heartbeat"),),
    "models": (
        *("model", "model_small", "model_middle", "model_large", "fallback", "vision_model"),
        *("no_vision", "anthropic_api_key", "anthropic_base_url", "openai_api_key"),
        *("openai_base_url", "openai_tools", "model_silence"),
    ),
    "tools": (
        *("tools_security", "tools_ask", "tools_allow", "tools_ask_for", "tools_deny"),
        *("tools_trust_sandbox", "tools_network", "tools_env", "tools_folders", "tools_processes"),
        *("tools_as_root", "fetch_private", "searxng_url", "brave_api_key", "tavily_api_key"),
    ),
    "clis": (
        *("cli_slots", "cli_patience_minutes", "cli_hours", "cli_warm_seconds"),
        *("mcp_kept", "mcp_idle_minutes", "mcp_client_id"),
    ),
    "initiative": (
        *("heartbeat_minutes", "heartbeat_hours", "self_check_minutes", "evolve", "evolve_share"),
    ),
    "time": ("language", "timezone", "quiet_hours", "holidays"),
    "memory": ("memory", "embedding_base_url", "embedding_model", "embedding_api_key"),
    "channels": (
        *("owners", "telegram_bot_token", "telegram_base_url", "feishu_app_id"),
        *("feishu_app_secret", "feishu_domain", "lark_domain", "feishu_monthly_quota"),
        *("bitable_poll_seconds", "results"),
    ),
    "web": ("web_host", "web_port", "web_token", "web_url"),
    "data": (
        *("home", "database_url", "dispatcher", "s3_url", "s3_key", "s3_secret", "s3_region"),
        *("retention", "backup_dir", "backup_hours"),
        "backup_keep",
        *("log_level", "log_format", "log_megabytes", "log_files"),
        *("otlp_endpoint", "otlp_headers"),
    ),
}
"""All settings, in the order in which they are shown."""

_ON_SETUP = {
    *("model", "anthropic_api_key", "anthropic_base_url", "openai_api_key", "openai_base_url"),
    *(field for fields in CHANNEL_SETTINGS.values() for field in fields),
}
"""A real call must succeed before these are used."""

_IN_FILE_ONLY = {
    *("home", "database_url", "web_host", "web_port", "web_token", "web_url"),
    "tools_as_root",
}
"""With a wrong value there would be no program or no page to correct it on; the last one lets
commands do harm to the machine."""


class SettingsEditor:
    """Implements `handlers.ports_autonomy.SettingEditorPort`."""

    def __init__(self, reloader: SettingsReloader) -> None:
        self._reloader = reloader
        self._revision_key = secrets.token_bytes(16)

    async def list_settings(self) -> SettingList:
        return (await self._read())[1]

    async def restart(self) -> None:
        async with self._reloader.lock:
            stored, listed = await self._read()
            if listed.faults:
                raise UserError("settings_faults", faults=_told(listed.faults))
            waiting = [each for each in listed.settings if each.waits]
            risky = [each.name for each in waiting if each.field in _IN_FILE_ONLY]
            if risky:
                raise UserError("restart_by_hand", names=", ".join(risky))
            try:
                self._reloader.check_usable(stored)
            except BadSettings as error:
                raise UserError("settings_faults", faults=_told(error.errors)) from error
            log.info("an owner restarts Shiftboss")
            self._reloader.restart()

    async def _read(self) -> tuple[Settings, SettingList]:
        """The settings of the next start, or those in force while the files cannot be used."""
        in_force = self._reloader.in_force
        faults, origins = tuple[str, ...](), dict[str, tuple[SettingSource, str]]()
        try:
            origins.update(await asyncio.to_thread(find_origins, in_force.home))
            stored = await asyncio.to_thread(self._reloader.load)
        except BadSettings as error:
            stored, faults = in_force, error.errors
        views = _views(self._reloader, stored, origins)
        return stored, SettingList(revision=self._revision(stored), settings=views, faults=faults)

    async def change(self, changes: Mapping[str, str], *, seen: str = "") -> SettingsReading:
        return await finish_despite_cancel(self._change(changes, seen))

    async def _change(self, changes: Mapping[str, str], seen: str) -> SettingsReading:
        async with self._reloader.lock:
            stored, listed = await self._read()
            known = {each.name: each for each in listed.settings}
            if all(name in known and _has(stored, known[name], changes[name]) for name in changes):
                return SettingsReading()  # done before, or by somebody else
            if seen and seen != listed.revision:
                raise UserError("settings_changed")
            if listed.faults:
                raise UserError("settings_faults", faults=_told(listed.faults))
            fields = [_check_change(known, name, value) for name, value in changes.items()]
            try:
                found = await asyncio.to_thread(_write, self._reloader, changes)
            except BadSettings as error:
                raise UserError("settings_faults", faults=_told(error.errors)) from error
            except EnvFileError as error:
                raise UserError("setup_not_written", reason=str(error)) from error
            reading = await self._reloader.take(found, fields)
        changed = (*reading.applied, *reading.waiting)
        log.info("settings changed on their page: %s", ", ".join(changed) or "none")
        if changed:
            # Everybody who owns this learns of it, also who did not look at the page.
            await self._reloader.owners.notify(
                f"settings:{secrets.token_hex(8)}", lambda words: settings_card(reading, words)
            )
        return reading

    def _revision(self, settings: Settings) -> str:
        values = repr([_plain(getattr(settings, each)) for each in sorted(_EDITABLE)])
        return blake2b(values.encode(), key=self._revision_key, digest_size=8).hexdigest()


_EDITABLE = frozenset(Settings.model_fields) - _ON_SETUP - _IN_FILE_ONLY


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else write_value(value)


def _has(stored: Settings, view: SettingView, value: str) -> bool:
    """Whether the files say so already."""
    return view.field in _EDITABLE and _plain(getattr(stored, view.field)) == value


def _views(
    reloader: SettingsReloader,
    stored: Settings,
    origins: Mapping[str, tuple[SettingSource, str]],
) -> tuple[SettingView, ...]:
    return tuple(
        _view(field, group, reloader, stored, origins.get(field, (SettingSource.DEFAULT, "")))
        for group, fields in GROUPS.items()
        for field in fields
    )


def _view(
    field: str,
    group: str,
    reloader: SettingsReloader,
    stored: Settings,
    origin: tuple[SettingSource, str],
) -> SettingView:
    about, secret = Settings.model_fields[field], is_secret(field)
    value = getattr(reloader.in_force, field)
    source, file = origin
    return SettingView(
        name=str(about.alias),
        field=field,
        group=group,
        value="" if secret else write_value(value),
        stored="" if secret else write_value(getattr(stored, field)),
        default="" if secret else write_value(about.get_default()),
        is_secret=secret,
        is_set=value != about.get_default(),
        source=source,
        file=file,
        change=_way_to_change(field, source, at_once=field in reloader.appliers),
        options=list_options(field),
        waits=value != getattr(stored, field),
    )


def _way_to_change(field: str, source: SettingSource, *, at_once: bool) -> SettingChange:
    if source is SettingSource.ENVIRONMENT:
        return SettingChange.ENVIRONMENT
    if field in _ON_SETUP:
        return SettingChange.SETUP
    if field in _IN_FILE_ONLY:
        return SettingChange.FILE
    return SettingChange.HERE if at_once else SettingChange.RESTART


def _check_change(known: Mapping[str, SettingView], name: str, value: str) -> str:
    """Returns the field. Raises UserError."""
    view = known.get(name)
    if view is None:
        raise UserError("setting_unknown", name=formats.code_text(name, _MAX_NAME))
    if not view.change.is_on_page:
        raise UserError("setting_fixed", name=name)
    if len(value) > _MAX_VALUE or (view.options and value and value not in view.options):
        raise UserError("setting_value", name=name)
    return view.field


def _write(reloader: SettingsReloader, changes: Mapping[str, str]) -> Settings:
    """Returns what the sources say from then on. Blocking. Raises BadSettings and EnvFileError."""
    found: list[Settings] = []
    home = reloader.in_force.home
    file = home / ".env"

    def check(draft: Path) -> None:
        try:
            found.append(load_with_env_file(home, draft))
            reloader.check_usable(found[0])
        except BadSettings as error:
            raise BadSettings(
                [each.replace(str(draft), str(file)) for each in error.errors]
            ) from None

    write_env_file(file, changes, check=check)
    return found[0]


def _told(faults: tuple[str, ...]) -> str:
    return FAULT_SEPARATOR.join(formats.code_text(each, 300) for each in faults[:5])


def find_origins(home: Path) -> Mapping[str, tuple[SettingSource, str]]:
    """Each setting's source and file by the name of its field; those that are not named have their
    default. Blocking. Raises BadSettings if a file cannot be read."""
    # Comes with pydantic-settings, which reads the files with it.
    from dotenv import dotenv_values

    fields = {str(about.alias).casefold(): name for name, about in Settings.model_fields.items()}
    found: dict[str, tuple[SettingSource, str]] = {}
    yaml_file = home / YAML_FILE
    for alias in load_yaml(yaml_file):
        found[fields[alias.casefold()]] = SettingSource.YAML, str(yaml_file)
    sources: list[tuple[SettingSource, str, Mapping[str, str | None]]] = [
        (SettingSource.ENV_FILE, str(each.absolute()), dotenv_values(each, encoding="utf-8"))
        for each in (Path(".env"), home / ".env")
        if each.is_file()
    ]
    for source, file, values in (*sources, (SettingSource.ENVIRONMENT, "", os.environ)):
        for name, value in values.items():
            # Empty ones are ignored when settings are read.
            if value and name.casefold() in fields:
                found[fields[name.casefold()]] = source, file
    return found


def is_secret(field: str) -> bool:
    return str(Settings.model_fields[field].alias) in secret_setting_names()


def list_options(field: str) -> tuple[str, ...]:
    """The only values that a setting can have; empty for any."""
    kind = Settings.model_fields[field].annotation
    if kind is bool:
        return ("true", "false")
    return tuple(each for each in get_args(kind) if isinstance(each, str))


def write_value(value: object) -> str:
    """As one would write it after the name. Not for secrets."""
    match value:
        case bool():
            return str(value).lower()
        case float() if value.is_integer() and math.isfinite(value):
            return str(int(value))
        case BaseModel():
            changed = value.model_dump(mode="json", exclude_defaults=True)
            return (
                yaml.safe_dump(changed, default_flow_style=True, width=10_000).strip()
                if changed
                else ""
            )
        case SecretStr():
            raise TypeError("a secret is never written")
        case _:
            return _without_login(str(value))


def _without_login(text: str) -> str:
    """Addresses can have a password in them."""
    if "@" not in text or "://" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
