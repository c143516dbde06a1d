"""Validation issues, and checks of single values that several node types share."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bot.engine.workflow.expressions.evaluator import check_expression
from bot.engine.workflow.expressions.operations import ExpressionError

_VARIABLE_NAME = re.compile(r"[^\W\d]\w{0,63}")
_MAX_SECONDS = 366 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationIssue:
    """One issue. `where` is the node or edge, empty for the whole workflow; `field` is the part of
    it. `key` names a text under `workflow.fault` in the catalogue, filled with `facts`."""

    key: str
    where: str = ""
    field: str = ""
    facts: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        place = ".".join(filter(None, (self.where, self.field)))
        facts = ", ".join(f"{name} {value!r}" for name, value in self.facts.items())
        return " ".join(filter(None, (place + ":" if place else "", self.key, facts)))


class InvalidGraph(ValueError):
    """The workflow cannot run. `issues` lists every reason."""

    def __init__(self, issues: Iterable[ValidationIssue]) -> None:
        self.issues = tuple(issues)
        super().__init__("; ".join(map(str, self.issues)))


def expression_issues(text: str, field: str) -> Iterator[ValidationIssue]:
    """Check that an expression is present and valid."""
    if not text.strip():
        yield ValidationIssue(key="missing", field=field)
        return
    try:
        check_expression(text)
    except ExpressionError as error:
        facts = {"text": text[:80], "why": str(error)}
        yield ValidationIssue(key="bad_expression", field=field, facts=facts)


def variable_name_issues(name: str, field: str) -> Iterator[ValidationIssue]:
    """Check a variable name."""
    if not _VARIABLE_NAME.fullmatch(name):
        yield ValidationIssue(key="bad_name", field=field, facts={"name": name[:40]})


def duration_issues(
    seconds: float | None, field: str, *, where: str = "", zero: bool = False
) -> Iterator[ValidationIssue]:
    """Check that a duration is positive and at most a year; `zero` also allows 0. None is valid."""
    if seconds is None or 0 < seconds <= _MAX_SECONDS or (zero and seconds == 0):
        return
    yield ValidationIssue(key="bad_duration", where=where, field=field)


def range_issues(
    n: int, field: str, least: int, most: int, *, where: str = ""
) -> Iterator[ValidationIssue]:
    """Check that a number lies between `least` and `most`."""
    if not least <= n <= most:
        facts = {"least": least, "most": most}
        yield ValidationIssue(key="out_of_range", where=where, field=field, facts=facts)
