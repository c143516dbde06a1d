"""The settings that connect chat platforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from bot.config.settings import Settings
from storage.records.people import Channel

CHANNEL_SETTINGS: Mapping[Channel, tuple[str, ...]] = {
    Channel.TELEGRAM: ("telegram_bot_token", "telegram_base_url"),
    Channel.FEISHU: ("feishu_app_id", "feishu_app_secret", "feishu_domain"),
}
"""The settings that connect each platform. It is configured if the first is set."""


def is_configured(channel: Channel, settings: Settings) -> bool:
    if channel is Channel.WEB:
        return True
    value = getattr(settings, CHANNEL_SETTINGS[channel][0])
    return bool(value.get_secret_value() if isinstance(value, SecretStr) else value)


def configured_channels(settings: Settings) -> Sequence[Channel]:
    return [each for each in Channel if is_configured(each, settings)]
