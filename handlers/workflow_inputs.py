"""Parses typed workflow inputs into values. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from storage.records.workflows import WorkflowInput, WorkflowInputValue

MAX_TEXT = 20_000

_PAIR = re.compile(r'(?:^|(?<=\s))(?P<name>[^\W\d]\w{0,63})=(?P<quoted>"(?:[^"\\]|\\.)*")?')
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_TRUE_WORDS = {"yes", "y", "true", "on", "1", "是", "对", "好", "要"}
_EXPECTED_KEYS = {
    "text": "long", "number": "number", "bool": "bool", "choice": "choice", "date": "date",
}  # fmt: skip
_DATE = re.compile(r"(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})日?")
_MAX_EXACT_INT = 2**53
_FALSE_WORDS = {"no", "n", "false", "off", "0", "否", "不", "不要", "不是"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidWorkflowInput:
    """A value that does not fit its input; `key` is a text under `workflows.wrong` that says what
    would."""

    input: WorkflowInput
    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowInputValues:
    """`texts` are the typed texts of `values` by input name; `missing` inputs are still required;
    `unknown` names belong to no input."""

    values: Mapping[str, WorkflowInputValue]
    texts: Mapping[str, str]
    missing: tuple[WorkflowInput, ...] = ()
    invalid: tuple[InvalidWorkflowInput, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not (self.missing or self.invalid or self.unknown)


def split_named_values(text: str) -> tuple[str, dict[str, str]]:
    """Split `topic=two words lang="en"` into values by name and the text before the first. A value
    extends to the next name unless quoted."""
    matches = list(_find_pairs(text))
    if not matches:
        return text.strip(), {}
    pairs: dict[str, str] = {}
    for pair, next_pair in zip(matches, [*matches[1:], None], strict=True):
        rest = text[pair.end() : next_pair.start() if next_pair else len(text)].strip()
        quoted = pair["quoted"]
        plain = _ESCAPED.sub(r"\1", quoted[1:-1]) if quoted else ""
        pairs[pair["name"]] = " ".join(filter(None, (plain, rest)))
    return text[: matches[0].start()].strip(), pairs


def parse_inputs(
    inputs: Sequence[WorkflowInput], texts: Mapping[str, str], free: str = ""
) -> WorkflowInputValues:
    """Parse inputs by name or title, ignoring case. `free` is unnamed text: it fills the first text
    input still missing."""
    names = {each.title.casefold(): each.name for each in inputs if each.title}
    names |= {each.name.casefold(): each.name for each in inputs}
    texts_by_name = {
        names[key.casefold()]: text for key, text in texts.items() if key.casefold() in names
    }
    unknown = [key for key in texts if key.casefold() not in names]
    if free:
        taker = next(
            (each for each in _free_text_inputs(inputs) if each.name not in texts_by_name), None
        )
        if taker is None:
            unknown.append(free[:60])
        else:
            texts_by_name[taker.name] = free
    values: dict[str, WorkflowInputValue] = {}
    invalid: list[InvalidWorkflowInput] = []
    for each in inputs:
        if not (text := texts_by_name.get(each.name, "").strip()):
            continue
        value = parse_value(each, text)
        if isinstance(value, InvalidWorkflowInput):
            invalid.append(value)
        else:
            values[each.name] = value
    invalid_names = {each.input.name for each in invalid}
    missing = (
        each
        for each in inputs
        if each.must_be_given and each.name not in values and each.name not in invalid_names
    )
    return WorkflowInputValues(
        values=values,
        texts={name: texts_by_name[name] for name in values},
        missing=tuple(missing),
        invalid=tuple(invalid),
        unknown=tuple(unknown),
    )


def parse_value(
    workflow_input: WorkflowInput, text: str
) -> WorkflowInputValue | InvalidWorkflowInput:
    word = text.casefold()
    value: WorkflowInputValue | None = None
    match workflow_input.kind:
        case "number":
            value = _parse_number(text)
        case "bool" if word in _TRUE_WORDS or word in _FALSE_WORDS:
            value = word in _TRUE_WORDS
        case "choice":
            value = next((each for each in workflow_input.options if each.casefold() == word), None)
        case "date":
            value = _parse_date(text)
        case "text":
            value = text if len(text) <= MAX_TEXT else None
    if value is None:
        return InvalidWorkflowInput(
            input=workflow_input, key=_EXPECTED_KEYS[workflow_input.kind], text=text
        )
    return value


def _parse_number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        return None
    return int(value) if value.is_integer() and abs(value) < _MAX_EXACT_INT else value


def _parse_date(text: str) -> str | None:
    """A date as 2026-11-27; None if it is none."""
    if (found := _DATE.fullmatch(text)) is None:
        return None
    try:
        return date(*map(int, found.groups())).isoformat()
    except ValueError:
        return None


def _free_text_inputs(inputs: Sequence[WorkflowInput]) -> list[WorkflowInput]:
    """Required inputs first."""
    texts = [each for each in inputs if each.kind == "text"]
    return sorted(texts, key=lambda each: not each.must_be_given)


def _find_pairs(text: str) -> list[re.Match[str]]:
    """Pairs outside the quotes of another value."""
    pairs: list[re.Match[str]] = []
    at = 0
    while (pair := _PAIR.search(text, at)) is not None:
        pairs.append(pair)
        at = pair.end()
    return pairs
