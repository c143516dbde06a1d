"""Tracks problems of channels for the status page and logs each change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from cards.catalog import TextCatalog, catalog_for
from storage.records.people import Channel, Language
from storage.records.system import ChannelHealth

log = logging.getLogger(__name__)


class AlertSource(StrEnum):
    """The reporter of a problem; one reporter does not clear another's."""

    TRANSPORT = "transport"
    OUTBOX = "mail"


class ChannelAlerts:
    """Problems of the configured `channels`. `on_change` is called after every change."""

    def __init__(
        self, channels: Iterable[Channel], on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._channels = tuple(channels)
        self._active: dict[tuple[Channel, AlertSource], ChannelHealth] = {}
        self.on_change = on_change

    def report(
        self,
        channel: Channel,
        key: str,
        facts: Mapping[str, object] | None = None,
        *,
        source: AlertSource = AlertSource.TRANSPORT,
    ) -> None:
        """An empty key clears the source's problem."""
        alert = ChannelHealth(channel=channel, alert=key, facts=facts or {}) if key else None
        if alert == self._active.get((channel, source)):
            return
        if alert is None:
            del self._active[channel, source]
            log.info("%s: recovered", channel)
        else:
            self._active[channel, source] = alert
            log.warning("%s", alert_text(catalog_for(Language.ENGLISH), alert))
        self.on_change()

    def health(self) -> Sequence[ChannelHealth]:
        """One item per configured channel, with its most serious problem."""
        return tuple(
            next(
                (
                    self._active[channel, source]
                    for source in AlertSource
                    if (channel, source) in self._active
                ),
                ChannelHealth(channel=channel),
            )
            for channel in self._channels
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
