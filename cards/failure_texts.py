"""Recognises the sentences with which Shiftboss itself reports failures. They are no knowledge
about the world, so models never get them as memories."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from cards.catalog import catalog_for
from storage.records.people import Language

_SECTIONS = ("backend.", "offline.cannot", "offline.note", "offline.repeats")
_ADVICE = ("backend.how.", "backend.get.", "backend.fell_back")
_KEYS = (
    "error.backend.title",
    "error.store_unavailable.title",
    "error.unexpected.title",
    "helpers.broke_off",
    "helpers.cut_off",
    "helpers.stopped",
    "work.broke_off",
    "work.disk",
    "work.interrupted",
    "work.interrupted_long_ago",
    "work.interrupted_unsafe",
    "work.invalid_answer",
    "work.missing_files",
    "work.restarting",
    "work.restored",
    "work.spoilt_files",
    "work.tries_again",
    "work.unchanged_files",
    "work.unfilled_report",
    "work.unreachable",
    "work.untranslated_files",
    "workflow.one_step",
    "workflow.step_late",
    "workflow.stuck",
    "workflow.timed_out",
)
_WRAPPERS = ("work.too_many_errors", "work.too_many_tries")
"""Sentences that end with the reason of another."""
_LEAD = 32
"""Characters of a sentence that are compared: stored ones may be cut."""
_MIN_LEAD, _MIN_LEAD_HAN = 12, 5
_MARKS = "*_>⚠️❌- "


def is_failure_text(line: str) -> bool:
    """Whether a line is such a sentence, in either language, perhaps cut at its end."""
    plain = line.strip().lstrip(_MARKS)
    return plain.startswith(_leads()) or any(
        before in plain and plain.partition(before)[2].strip().startswith(_leads())
        for before in _wrapper_ends()
    )


def without_failure_texts(text: str) -> str:
    """The text without the lines that are such sentences."""
    lines = text.split("\n")
    kept = [line for line in lines if not is_failure_text(line)]
    return text if len(kept) == len(lines) else "\n".join(kept).strip()


@cache
def _leads() -> tuple[str, ...]:
    return tuple(sorted(_find_leads()))


def _find_leads() -> Iterator[str]:
    for language in Language:
        least = _MIN_LEAD_HAN if language is Language.CHINESE else _MIN_LEAD
        for text in catalog_for(language).templates((*_SECTIONS, *_KEYS), without=_ADVICE):
            lead = text.lstrip(_MARKS).partition("{")[0][:_LEAD]
            if len(lead) >= least:
                yield lead


@cache
def _wrapper_ends() -> tuple[str, ...]:
    """The words between the number of attempts and the reason."""
    return tuple(
        text.partition("{n}")[2].partition("{error}")[0]
        for language in Language
        for text in catalog_for(language).templates(_WRAPPERS)
    )
