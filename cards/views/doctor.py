"""The card of the doctor: one line for each subject, fine or what to do."""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from cards import formats, model
from cards.actions import ProveButtons
from cards.catalog import TextCatalog
from cards.views.self_checks import (
    GRADE_SYMBOLS,
    GRADE_TONES,
    finding_text,
    next_step_text,
    repair_line,
)
from storage.records.self_checks import CheckResult, HealthReport

_MAX_SHOWN = 12


def doctor_card(report: HealthReport, words: TextCatalog, *, zone: ZoneInfo) -> model.Card:
    problems = sum(1 for each in report.results for found in each.findings if found.points)
    lines = [line for each in report.results for line in _lines(each, words)]
    lines += [repair_line(each, words) for each in report.repairs]
    return model.titled_card(
        words("doctor.title", n=problems) if problems else words("doctor.all_fine"),
        model.TextBlock("\n".join(lines)),
        model.ButtonsBlock((model.CardButton(words("doctor.button"), ProveButtons()),)),
        model.NoteBlock(words("doctor.note", at=formats.date_time(report.at, zone))),
        tone=GRADE_TONES[report.grade],
    )


def buttons_proven_text(milliseconds: int, words: TextCatalog) -> str:
    return words("doctor.proven", ms=milliseconds)


def _lines(result: CheckResult, words: TextCatalog) -> Sequence[str]:
    name = words(f"self.check.{result.name}")
    remarks = [finding_text(each, words) for each in result.findings if not each.points]
    problems = [each for each in result.findings if each.points]
    head = f"- {GRADE_SYMBOLS[result.grade]} **{name}**"
    if not problems:
        return (f"{head}: {' '.join(remarks) or words('doctor.fine')}",)
    lines = [
        f"{head}: {finding_text(each, words)} → {next_step_text(each, words)}"
        for each in problems[:_MAX_SHOWN]
    ]
    return (*lines, *(f"- {each}" for each in remarks))
