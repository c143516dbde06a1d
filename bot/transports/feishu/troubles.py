"""What only an operator can mend, told when it comes and taken back when it is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

_NO_FACTS: Mapping[str, object] = MappingProxyType({})


class Area(StrEnum):
    """Where the trouble is; the first of them is what is told."""

    LINK = "link"
    STORE = "store"
    SENDING = "sending"
    CARDS = "cards"


class Troubles:
    """One alert at a time goes out: trouble in one area does not hide, or end, another's."""

    def __init__(self, alert: Callable[..., None]) -> None:
        self._alert = alert
        self._now: dict[Area, tuple[str, Mapping[str, object]]] = {}
        self._told: tuple[str, Mapping[str, object]] | None = None

    def note(self, area: Area, key: str, facts: Mapping[str, object] = _NO_FACTS) -> None:
        """An empty key says that this area is well."""
        if key:
            self._now[area] = (key, facts)
        else:
            self._now.pop(area, None)
        worst = next((self._now[area] for area in Area if area in self._now), ("", _NO_FACTS))
        if worst != self._told:
            self._told = worst
            self._alert(worst[0], **worst[1])
