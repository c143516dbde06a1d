"""Renders the diagnostics of a workflow file, as lines of text and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cards import formats
from cards.catalog import TextCatalog
from storage.records.workflows import Diagnostic

MAX_DIAGNOSTICS = 20
_MAX_MESSAGE = 300
_MAX_PLACE = 120
_GROUPS = ("workflows.fault", "workflow.fault", "workflow.warning")


def diagnostic_message(diagnostic: Diagnostic, words: TextCatalog) -> str:
    """The problem itself, without its place and suggestion."""
    facts = dict(diagnostic.facts)
    if (reason := f"workflow.expression.{facts.get('reason')}") and words.has(reason):
        facts["why"] = words(reason, **facts)
    keys = (f"{group}.{diagnostic.code}" for group in _GROUPS)
    known = next(filter(words.has, keys), None)
    if known is None:
        return " ".join((diagnostic.code, *map(str, facts.values())))
    return formats.single_line(words(known, **facts), _MAX_MESSAGE)


def diagnostic_text(diagnostic: Diagnostic, words: TextCatalog) -> str:
    """The node and field, the problem, the author's words, and a suggestion."""
    message = diagnostic_message(diagnostic, words)
    place = formats.single_line(
        ".".join(filter(None, (diagnostic.location, diagnostic.field))), _MAX_PLACE
    )
    parts = [f"`{place}`: {message}" if place else message]
    written = diagnostic.written.replace("`", "'")
    if written and written not in message and written != diagnostic.location:
        parts.append(words("workflow.written", text=written))
    if diagnostic.suggestion:
        meant = formats.single_line(diagnostic.suggestion, _MAX_PLACE)
        parts.append(words("workflow.meant", text=meant))
    return " ".join(parts)


def diagnostic_line(diagnostic: Diagnostic, words: TextCatalog) -> str:
    """One diagnostic with its line number, if known, and a mark for warnings."""
    text = diagnostic_text(diagnostic, words)
    if diagnostic.line:
        text = words("workflow.fault_line", line=diagnostic.line, text=text)
    return words("workflow.warning_line", text=text) if _is_warning(diagnostic) else text


def diagnostic_lines(
    diagnostics: Sequence[Diagnostic], words: TextCatalog, *, most: int = MAX_DIAGNOSTICS
) -> list[str]:
    """Diagnostics in the order of the text. The last line counts those left out."""
    lines = [diagnostic_line(each, words) for each in in_text_order(diagnostics)[:most]]
    if len(diagnostics) > most:
        lines.append(words("workflows.more_faults", n=len(diagnostics) - most))
    return lines


def in_text_order(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Sort by position; diagnostics without a position come last."""
    return sorted(diagnostics, key=lambda each: (not each.line, each.line, each.column))


def compiler_line(diagnostic: Diagnostic, words: TextCatalog, *, file: str) -> str:
    """`FILE:LINE:COLUMN: error: …`, a format that editors and CI can parse."""
    place = f"{file}:{diagnostic.line}:{diagnostic.column}" if diagnostic.line else file
    text = diagnostic_text(diagnostic, words)
    return f"{place}: {diagnostic.severity}: {text} [{diagnostic.code}]"


def diagnostic_data(diagnostic: Diagnostic, words: TextCatalog) -> dict[str, Any]:
    return {
        "severity": diagnostic.severity.value,
        "code": diagnostic.code,
        "file": diagnostic.file,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "location": diagnostic.location,
        "field": diagnostic.field,
        "written": diagnostic.written,
        "message": diagnostic_message(diagnostic, words),
        "suggestion": diagnostic.suggestion,
        "text": diagnostic_text(diagnostic, words),
    }


def _is_warning(diagnostic: Diagnostic) -> bool:
    return diagnostic.severity == "warning"
