"""Backends: how they are doing, and what one says of itself, set apart from what it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from cards.model import Block, Card, Note, Text, Tone
from cards.words import Words, words_for
from storage.records.people import Language
from storage.records.status import BackendHealth, BackendReport

_FAULTS = 5
_GAP = re.compile(r"\n{3,}")


def backends_card(report: BackendReport, words: Words, *, wrong: str = "") -> Card:
    """All that can do the work here: ready, or what is missing and how to get it; before it what
    was `wrong` with a name."""
    ready = sum(not backend.problem for backend in report.backends)
    notes = [words("backends.default", name=report.default)]
    if report.fallback:
        notes.append(words("backends.fallback", name=report.fallback))
    notes.append(words("backends.note"))
    blocks: list[Block] = [
        Text(markdown="\n".join(_line(backend, words) for backend in report.backends)),
        *(Text(markdown=f"⚠️ {fault}") for fault in report.faults[:_FAULTS]),
        Note(markdown="\n".join(notes)),
    ]
    title = wrong or words("backends.title")
    good = ready and not report.faults and not wrong
    return Card(
        title=title,
        tone=Tone.INFO if good else Tone.WARN,
        blocks=tuple(blocks),
        summary=f"{title}: {words('backends.ready', n=ready)}",
    )


def how(backend: BackendHealth, words: Words) -> str:
    """What is missing and how to get it, in a sentence or two; empty where it can work."""
    if not backend.problem:
        return ""
    name = backend.problem.removeprefix("backend.")
    if backend.facts and words.has(f"backend.how.{name}"):
        facts = {key: words.or_own(fact) for key, fact in backend.facts.items()}
        return words(f"backend.how.{name}", **facts)
    return words.or_own(backend.problem)


def without_note(text: str) -> str:
    """`text` without the offline backend's note on itself, in whichever language it stands."""
    for note in _notes():
        text = text.replace(note, "")
    return _GAP.sub("\n\n", text).strip()


def noted(texts: Sequence[str], words: Words) -> list[Block]:
    """The offline backend's note, once, if one of `texts` carries it."""
    if any(note in text for note in _notes() for text in texts):
        return [Note(markdown=words("offline.note"))]
    return []


def _line(backend: BackendHealth, words: Words) -> str:
    version = f" {backend.version}" if backend.version else ""
    mark = "⚠️" if backend.problem else "✅"
    note = words(backend.note) if backend.note else ""
    told = " · ".join(filter(None, (how(backend, words), note)))
    return f"- {mark} `{backend.name}`{version}" + (f": {told}" if told else "")


@cache
def _notes() -> tuple[str, ...]:
    return tuple(words_for(language)("offline.note") for language in Language)
