"""Tracks problems of channels for the status page and logs each change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum

from cards.catalog import TextCatalog, catalog_for
from storage.records.people import Channel, Language
from storage.records.system import ChannelHealth

log = logging.getLogger(__name__)


class AlertSource(StrEnum):
    """The reporter of a problem. A reporter clears only its own problems."""

    TRANSPORT = "transport"
    OUTBOX = "mail"


class ChannelAlerts:
    """The connections and problems of the configured `channels`. `on_change` is called after every
    change of a problem.
    """

    def __init__(
        self,
        channels: Iterable[Channel],
        on_change: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._channels = {*channels}
        self._active: dict[tuple[Channel, AlertSource], ChannelHealth] = {}
        self._connected: dict[Channel, tuple[str, datetime]] = {}
        self._interrupted: set[Channel] = set()
        self._last: dict[Channel, tuple[ChannelHealth, datetime]] = {}
        self.on_change = on_change
        self._now = now

    def restart(self, channel: Channel, *, is_configured: bool) -> None:
        """Forget what an earlier transport of the channel has reported."""
        self._connected.pop(channel, None)
        self._last.pop(channel, None)
        self._channels.discard(channel)
        if is_configured:
            self._channels.add(channel)
        for source in AlertSource:
            self._active.pop((channel, source), None)
        self.on_change()

    def connected(self, channel: Channel, account: str) -> None:
        """Record that the platform answers, for the first time or again."""
        if channel not in self._connected or channel in self._interrupted:
            self._connected[channel] = (account, self._now())
            self._interrupted.discard(channel)

    def report(
        self,
        channel: Channel,
        key: str,
        facts: Mapping[str, object] | None = None,
        *,
        source: AlertSource = AlertSource.TRANSPORT,
    ) -> None:
        """Record a problem; an empty key clears the source's problem."""
        alert = ChannelHealth(channel=channel, alert=key, facts=facts or {}) if key else None
        if alert == self._active.get((channel, source)):
            return
        if alert is not None and source is AlertSource.TRANSPORT:
            self._interrupted.add(channel)
        if alert is None:
            del self._active[channel, source]
            log.info("%s: recovered", channel)
        else:
            self._active[channel, source] = alert
            self._last[channel] = (alert, self._now())
            log.warning("%s", alert_text(catalog_for(Language.ENGLISH), alert))
        self.on_change()

    def health(self) -> Sequence[ChannelHealth]:
        """One item per configured channel, with its most serious problem."""
        return tuple(self._get_health(channel) for channel in Channel if channel in self._channels)

    def _get_health(self, channel: Channel) -> ChannelHealth:
        active = (self._active.get((channel, source)) for source in AlertSource)
        health = next(filter(None, active), ChannelHealth(channel=channel))
        account, since = self._connected.get(channel, ("", None))
        is_down = (channel, AlertSource.TRANSPORT) in self._active
        last, at = self._last.get(channel, (ChannelHealth(channel=channel), None))
        return replace(
            health,
            account=account,
            connected_at=None if is_down else since,
            last_alert=last.alert,
            last_facts=last.facts,
            last_alert_at=at,
        )

    def describe(self, words: TextCatalog) -> Sequence[str]:
        """Current problems in the reader's language."""
        return tuple(alert_text(words, alert) for alert in self._active.values())


def alert_text(words: TextCatalog, alert: ChannelHealth) -> str:
    key, facts = f"alert.{alert.channel}.{alert.alert}", alert.facts or {}
    try:
        return words(key, **facts)
    except (KeyError, IndexError, ValueError):
        # A text with wrong placeholders must not hide the problem.
        return f"{key} {dict(facts)}"
