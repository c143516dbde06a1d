"""Several pictures sent at once arrive as several messages: put them together again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from telegram import CallbackQuery

from bot.transports.telegram.incoming import Arrived
from storage.records.messages import MessageIn


def joined(steps: Iterable[Arrived | CallbackQuery]) -> list[Arrived | CallbackQuery]:
    """Album pieces as one message at the place of the first: its id, all files, one caption."""
    whole: list[Arrived | CallbackQuery] = []
    places: dict[str, int] = {}
    for step in steps:
        album = step.album if isinstance(step, Arrived) else ""
        if album in places:
            whole[places[album]] = _together(whole[places[album]], step)
            continue
        if album:
            places[album] = len(whole)
        whole.append(step)
    return whole


def _together(
    first: Arrived | CallbackQuery, more: Arrived | CallbackQuery
) -> Arrived | CallbackQuery:
    if not (isinstance(first, Arrived) and isinstance(more, Arrived)):
        return first
    one, two = first.incoming, more.incoming
    if not (isinstance(one, MessageIn) and isinstance(two, MessageIn)):
        return first
    incoming = replace(
        one,
        text=one.text or two.text,
        attachments=(*one.attachments, *two.attachments),
        addressed=one.addressed or two.addressed,
    )
    return replace(first, incoming=incoming)
