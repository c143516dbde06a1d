"""Words the state of chat platforms and of their connections."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from cards import formats
from cards.catalog import TextCatalog
from cards.views.self_checks import finding_text
from cards.views.system import alert_text
from storage.records.channels import (
    ChannelState,
    FeishuCode,
    FeishuCodeState,
    FeishuStepState,
    UnsavedApp,
)

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
    """The newest problem that has ended; empty if there was none. Markdown."""
    health = state.health
    if health.alert or not health.last_alert or health.last_alert_at is None:
        return ""
    last = replace(health, alert=health.last_alert, facts=health.last_facts)
    at = formats.date_time(health.last_alert_at, zone)
    return words("setup.channel.last", at=at, problem=alert_text(last, words))


_MAX_REASON = 200
_MAX_ID = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StepText:
    """`found` is what is missing, `click` what to do then; `state` says in a word how it is."""

    symbol: str
    name: str
    state: str
    found: list[str]
    click: str
    link: str


def code_text(code: FeishuCode, words: TextCatalog) -> str:
    """How a QR code was used or has expired; empty while it waits."""
    if code.state is FeishuCodeState.WAITING:
        return ""
    text = words(
        f"setup.feishu.state.{code.state}",
        app_id=formats.code_text(code.app_id, _MAX_ID),
        reason=formats.escape_markdown(code.reason, _MAX_REASON),
    ).strip()
    if code.state is not FeishuCodeState.CONNECTED:
        return text
    return f"{text} {words('setup.feishu.owner' if code.owner else 'setup.feishu.no_owner')}"


def unsaved_text(unsaved: UnsavedApp, words: TextCatalog) -> str:
    key = "setup.feishu.unsaved.app" if unsaved.app_id else "setup.feishu.unsaved.code"
    return words(key, app_id=formats.code_text(unsaved.app_id, _MAX_ID))


def step_text(each: FeishuStepState, words: TextCatalog) -> StepText:
    symbol, state = {
        True: ("✅", "is_done"),
        False: ("❌", "is_not_done"),
        None: ("❔", "is_unknown"),
    }[each.is_done]
    needs = ", ".join(f"`{name}`" for name in each.needs)
    return StepText(
        symbol=symbol,
        name=words(f"setup.feishu.step.{each.step}"),
        state=words(f"setup.feishu.{state}"),
        found=[finding_text(finding, words) for finding in each.findings],
        click="" if each.is_done else words(f"setup.feishu.click.{each.step}", needs=needs),
        link=each.link,
    )
