"""What somebody typed for a workflow's inputs, as the values it is run with. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.records.workers.workflows import Value, WorkflowInput

MOST_TEXT = 20_000

_PAIR = re.compile(r'(?:^|(?<=\s))(?P<name>[^\W\d]\w{0,63})=(?P<quoted>"(?:[^"\\]|\\.)*")?')
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_YES = {"yes", "y", "true", "on", "1", "是", "对", "好", "要"}
_WANTS = {"text": "long", "number": "number", "bool": "bool", "choice": "choice"}
_EXACT = 2**53
_NO = {"no", "n", "false", "off", "0", "否", "不", "不要", "不是"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A value that does not fit its input: `key` says what would, under `workflows.wrong`."""

    input: WorkflowInput
    key: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """`said` is what was typed for each of `values`, by the input's name; `missing` has to be
    given still; `unknown` are names that no input has."""

    values: Mapping[str, Value]
    said: Mapping[str, str]
    missing: tuple[WorkflowInput, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        return not (self.missing or self.wrong or self.unknown)


def pairs_in(text: str) -> tuple[str, dict[str, str]]:
    """`topic=two words lang="en"` by name, and what stands before the first of them. A value
    goes on to the next name, or has quotes around it."""
    found = list(_outside_quotes(text))
    if not found:
        return text.strip(), {}
    pairs: dict[str, str] = {}
    for here, after in zip(found, [*found[1:], None], strict=True):
        rest = text[here.end() : after.start() if after else len(text)].strip()
        quoted = here["quoted"]
        plain = _ESCAPED.sub(r"\1", quoted[1:-1]) if quoted else ""
        pairs[here["name"]] = " ".join(filter(None, (plain, rest)))
    return text[: found[0].start()].strip(), pairs


def given(inputs: Sequence[WorkflowInput], texts: Mapping[str, str], free: str = "") -> Given:
    """Names count in any case, titles too. `free` is what was said without a name: the first
    text that is wanted and not there."""
    names = {each.title.casefold(): each.name for each in inputs if each.title}
    names |= {each.name.casefold(): each.name for each in inputs}
    said = {names[key.casefold()]: text for key, text in texts.items() if key.casefold() in names}
    unknown = [key for key in texts if key.casefold() not in names]
    if free:
        taker = next((each for each in _takers(inputs) if each.name not in said), None)
        if taker is None:
            unknown.append(free[:60])
        else:
            said[taker.name] = free
    values: dict[str, Value] = {}
    wrong: list[Wrong] = []
    for each in inputs:
        if not (text := said.get(each.name, "").strip()):
            continue
        value = value_of(each, text)
        if isinstance(value, Wrong):
            wrong.append(value)
        else:
            values[each.name] = value
    refused = {each.input.name for each in wrong}
    missing = (
        each
        for each in inputs
        if each.is_open and each.name not in values and each.name not in refused
    )
    return Given(
        values=values,
        said={name: said[name] for name in values},
        missing=tuple(missing),
        wrong=tuple(wrong),
        unknown=tuple(unknown),
    )


def value_of(wanted: WorkflowInput, text: str) -> Value | Wrong:
    word = text.casefold()
    value: Value | None = None
    match wanted.kind:
        case "number":
            value = _number(text)
        case "bool" if word in _YES or word in _NO:
            value = word in _YES
        case "choice":
            value = next((each for each in wanted.options if each.casefold() == word), None)
        case "text":
            value = text if len(text) <= MOST_TEXT else None
    if value is None:
        return Wrong(input=wanted, key=_WANTS[wanted.kind], text=text)
    return value


def _number(text: str) -> int | float | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        return None
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def _takers(inputs: Sequence[WorkflowInput]) -> list[WorkflowInput]:
    """Those that are wanted go first."""
    texts = [each for each in inputs if each.kind == "text"]
    return sorted(texts, key=lambda each: not each.is_open)


def _outside_quotes(text: str) -> list[re.Match[str]]:
    """Pairs, but none that stands inside the quotes of another."""
    found: list[re.Match[str]] = []
    at = 0
    while (pair := _PAIR.search(text, at)) is not None:
        found.append(pair)
        at = pair.end()
    return found
