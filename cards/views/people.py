"""Strangers, welcomes and pairing."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from cards import formats
from cards.actions import ListTasks
from cards.model import Button, Buttons, Card, Fields, Note, Table, Text, Tone
from cards.words import Words
from storage.records.people import Pairing

_NAME = 60
_LISTED = 20


def pairing_card(pairing: Pairing, words: Words, *, zone: ZoneInfo) -> Card:
    """All that a stranger ever sees."""
    until = formats.moment(pairing.expires_at, zone)
    return Card(
        title=words("pairing.title"),
        tone=Tone.INFO,
        blocks=(
            Text(markdown=words("pairing.text")),
            Fields(pairs=((words("pairing.code"), pairing.code),)),
            Note(markdown=words("pairing.note", code=pairing.code, until=until)),
        ),
        summary=words("pairing.summary", code=pairing.code),
    )


def paired_card(words: Words) -> Card:
    """A stranger was let in."""
    return Card(
        title=words("pairing.paired_title"),
        tone=Tone.GOOD,
        blocks=(Text(markdown=words("pairing.paired")),),
        summary=words("pairing.paired_title"),
    )


def let_in_card(pairing: Pairing, words: Words) -> Card:
    """What the owner is told."""
    name = formats.verbatim(pairing.name or "?", _NAME)
    summary = words("pairing.let_in", name=formats.line(pairing.name or "?", _NAME))
    return Card(blocks=(Text(markdown=words("pairing.let_in", name=name)),), summary=summary)


def refused_card(words: Words) -> Card:
    """A stranger was turned away."""
    text = words("pairing.refused")
    return Card(blocks=(Text(markdown=text),), summary=text)


def pairings_card(waiting: Sequence[tuple[str, str]], words: Words) -> Card:
    """Who waits to be let in: name and code each."""
    title = words("pairing.list_title", n=len(waiting))
    if not waiting:
        return Card(title=title, blocks=(Text(markdown=words("pairing.none")),), summary=title)
    rows = tuple((formats.line(name, _NAME), code) for name, code in waiting[:_LISTED])
    table = Table(columns=(words("pairing.name"), words("pairing.code")), rows=rows)
    left = len(waiting) - len(rows)
    more = (Note(markdown=words("pairing.more", n=left)),) if left else ()
    return Card(
        title=title,
        tone=Tone.WARN,
        blocks=(table, *more, Note(markdown=words("pairing.list_note"))),
        summary=title,
    )


def welcome_card(words: Words, *, group: bool = False, offline: bool = False) -> Card:
    """`offline`: there is no model, and whoever begins should know."""
    title = words("welcome.title")
    key = "welcome.group" if group else "welcome.text"
    return Card(
        title=title,
        tone=Tone.INFO,
        blocks=(
            Text(markdown=words(key)),
            Text(markdown=words("welcome.examples")),
            Buttons(items=(Button(label=words("button.tasks"), action=ListTasks()),)),
            Note(markdown=words("welcome.offline" if offline else "welcome.note")),
        ),
        summary=title,
    )
