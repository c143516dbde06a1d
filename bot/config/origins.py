"""Where each setting comes from, and how its value is written."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, SecretStr

from bot.config.settings import YAML_FILE, Settings, load_yaml, secret_setting_names
from storage.records.system import SettingSource


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
