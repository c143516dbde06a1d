"""Texts about chat platforms and how they are connected."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

from cards import formats
from cards.catalog import TextCatalog
from cards.views.system import alert_text
from storage.records.channels import ChannelState

_MAX_ACCOUNT = 60


def channel_symbol(state: ChannelState) -> str:
    if not state.is_configured:
        return "⚪"
    if state.health.alert:
        return "⚠️"
    return "✅" if state.health.connected_at else "⏳"


def channel_text(state: ChannelState, words: TextCatalog, zone: ZoneInfo) -> str:
    """One sentence: whether it is connected, or what is wrong and what to do. Markdown."""
    health = state.health
    if not state.is_configured:
        return words("setup.channel.off")
    if health.alert:
        return alert_text(health, words)
    if health.connected_at is None:
        return words("setup.channel.connecting")
    since = formats.date_time(health.connected_at, zone)
    if not health.account:
        return words("setup.channel.connected", since=since)
    account = formats.escape_markdown(health.account, _MAX_ACCOUNT)
    return words("setup.channel.connected_as", account=account, since=since)


def last_problem_text(state: ChannelState, words: TextCatalog, zone: ZoneInfo) -> str:
    """The newest problem that is over; empty if there was none. Markdown."""
    health = state.health
    if health.alert or not health.last_alert or health.last_alert_at is None:
        return ""
    last = replace(health, alert=health.last_alert, facts=health.last_facts)
    at = formats.date_time(health.last_alert_at, zone)
    return words("setup.channel.last", at=at, problem=alert_text(last, words))
