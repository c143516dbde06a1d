"""Renders the health of backends, and the offline backend's note apart from its answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from cards.actions import OpenPage
from cards.catalog import TextCatalog, catalog_for
from cards.model import (
    Block,
    ButtonStyle,
    Card,
    CardButton,
    CardTone,
    NoteBlock,
    TextBlock,
    titled_card,
)
from storage.records.people import Language
from storage.records.system import BackendHealth, BackendReport

_MAX_FAULTS = 5
_BLANK_LINES = re.compile(r"\n{3,}")


def backends_card(report: BackendReport, words: TextCatalog, *, error: str = "") -> Card:
    """All backends: ready, or how to fix them; first the `error` about an unknown name, if any."""
    ready = sum(not backend.problem for backend in report.backends)
    notes = [words("backends.default", name=report.default)]
    if report.fallback:
        notes.append(words("backends.fallback", name=report.fallback))
    notes.append(words("backends.note"))
    blocks: list[Block] = [
        TextBlock("\n".join(_line(backend, words) for backend in report.backends)),
        *(TextBlock(f"⚠️ {fault}") for fault in report.file_errors[:_MAX_FAULTS]),
        NoteBlock("\n".join(notes)),
    ]
    title = error or words("backends.title")
    good = ready and not report.file_errors and not error
    return titled_card(
        title,
        *blocks,
        tone=CardTone.INFO if good else CardTone.WARN,
        summary=f"{title}: {words('backends.ready', n=ready)}",
    )


def setup_hint(backend: BackendHealth, words: TextCatalog) -> str:
    """The fix for its problem, in a sentence or two; empty if the backend is ready."""
    if not backend.problem:
        return ""
    name = backend.problem.removeprefix("backend.")
    if backend.facts and words.has(f"backend.how.{name}"):
        facts = {key: words.get_or_literal(fact) for key, fact in backend.facts.items()}
        return words(f"backend.how.{name}", **facts)
    return words.get_or_literal(backend.problem)


def strip_offline_note(text: str) -> str:
    """The text without the offline backend's note, in either language."""
    for note in _offline_notes():
        text = text.replace(note, "")
    return _BLANK_LINES.sub("\n\n", text).strip()


def offline_note_blocks(texts: Sequence[str], words: TextCatalog) -> list[Block]:
    """The offline backend's note, once, if one of `texts` contains it and none says as much."""
    told = any(map(needs_model, texts))
    if not told and any(note in text for note in _offline_notes() for text in texts):
        return [NoteBlock(words("offline.note"))]
    return []


def _line(backend: BackendHealth, words: TextCatalog) -> str:
    version = f" {backend.version}" if backend.version else ""
    mark = "⚠️" if backend.problem else "✅"
    note = words(backend.note) if backend.note else ""
    text = " · ".join(filter(None, (setup_hint(backend, words), note)))
    return f"- {mark} `{backend.name}`{version}" + (f": {text}" if text else "")


def needs_model(text: str) -> bool:
    """Whether the offline backend says in `text` that it cannot do this."""
    return any(each in text for each in _refusals())


def connect_button(words: TextCatalog) -> CardButton:
    return CardButton(words("button.connect"), OpenPage(page="setup"), style=ButtonStyle.PRIMARY)


@cache
def _offline_notes() -> tuple[str, ...]:
    return tuple(catalog_for(language)("offline.note") for language in Language)


@cache
def _refusals() -> tuple[str, ...]:
    keys = ("offline.cannot", "offline.cannot_answer")
    return tuple(catalog_for(language)(key) for language in Language for key in keys)
