"""What is wrong with a channel: kept for the status, logged once per change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cards.words import Words, words_for
from storage.records.people import Channel, Language
from storage.records.status import ChannelHealth

log = logging.getLogger(__name__)


class Source(StrEnum):
    """Who noticed: one does not take back what the other said."""

    TRANSPORT = "transport"
    MAIL = "mail"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alert:
    key: str
    facts: Mapping[str, object]


class Alerts:
    """`channels` are those that are configured. `changed` is called after every change."""

    def __init__(
        self, channels: Iterable[Channel], changed: Callable[[], None] = lambda: None
    ) -> None:
        self._channels = tuple(channels)
        self._alerts: dict[tuple[Channel, Source], _Alert] = {}
        self.changed = changed

    def tell(
        self,
        channel: Channel,
        key: str,
        facts: Mapping[str, object] | None = None,
        *,
        source: Source = Source.TRANSPORT,
    ) -> None:
        """An empty key says that all is well again."""
        alert = _Alert(key=key, facts=facts or {}) if key else None
        if alert == self._alerts.get((channel, source)):
            return
        if alert is None:
            del self._alerts[channel, source]
            log.info("%s: all is well again", channel)
        else:
            self._alerts[channel, source] = alert
            log.warning("%s", _text(words_for(Language.ENGLISH), channel, alert))
        self.changed()

    def health(self) -> Sequence[ChannelHealth]:
        """One line for each configured channel, its worst trouble in it."""
        return tuple(self._health(channel) for channel in self._channels)

    def lines(self, words: Words) -> Sequence[str]:
        """All that is wrong now, in the reader's language."""
        return tuple(_text(words, channel, alert) for (channel, _), alert in self._alerts.items())

    def _health(self, channel: Channel) -> ChannelHealth:
        for source in Source:
            alert = self._alerts.get((channel, source))
            if alert is not None:
                return ChannelHealth(channel=channel, alert=alert.key, facts=alert.facts)
        return ChannelHealth(channel=channel)


def _text(words: Words, channel: Channel, alert: _Alert) -> str:
    key = f"alert.{channel}.{alert.key}"
    try:
        return words(key, **alert.facts)
    except (KeyError, IndexError, ValueError):
        # A text that does not fit its facts must not hide the trouble it is about.
        return f"{key} {dict(alert.facts)}"
