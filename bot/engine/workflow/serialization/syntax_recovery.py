"""Continues reading behind a syntax error of YAML or JSON: describes the error more precisely than
the parser does, repairs or leaves out its line, and finds the other errors of the text.

A repair keeps the number of lines. Of a repaired line only the syntax error is reported. If
something was left out, issues that may come from the gap, such as a missing node, are not reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from bot.engine.workflow.field_reader import InvalidGraph, ValidationIssue
from bot.engine.workflow.serialization.data_parser import YAML_LOADER, parse_data

_MAX_FAULTS = 20
_MAX_PARSED = 3_000_000
"""Characters that are parsed in search of repairs; a large text is read on less often."""
_OTHER_SYNTAX = {"bad_json", "bad_yaml", "several_documents"}
_VALUE_LINE = re.compile(
    r"(?P<name>\s*(?:-\s+)*(?:[\w$.-]+|\"[^\"]*\"|'[^']*')\s*:\s+|\s*(?:-\s+)+)(?P<value>\S.*)"
)
_FULL_WIDTH_NAME = re.compile(r"\s*(?:-\s+)*[\"']?[A-Za-z]\w*[\"']?(?P<mark>[：﹕])")
_BLOCK_TEXT = re.compile(r"(?:.*[:：]|\s*-)\s+[|>][-+\d]*\s*")
_FULL_WIDTH_COMMA = re.compile(r"(?P<mark>[，、；])\s*[\"']?[A-Za-z]\w*[\"']?\s*[:：]")
_PLAIN_FIELD = re.compile(r"\s*(?:name|title|prompt|description|detail|label|persona|timeout)\s*:")
"""Fields that no other part of a workflow refers to."""
_ASCII_FOR = {"：": ": ", "﹕": ": ", "，": ", ", "、": ", ", "；": ", "}
_CLOSING = {"{": "}", "[": "]"}
_JSON_KINDS = (
    ("json_cut", re.compile("Unterminated string")),
    ("json_comma", re.compile("',' delimiter")),
    ("json_more", re.compile("Extra data")),
)
_LOCAL_KEYS = {
    "cron_or_time",
    "given_twice",
    "hole_in_command",
    "open_hole",
    "out_of_range",
    "reserved_name",
    "twice",
    "unknown_field",
    "unknown_type",
    "unknown_zone",
    "wrong_config",
}
_DEPTH_KEYS = {"unknown_output_field", "wrong_comparison", "not_an_option"}
"""About values that stand within others."""
_LOCAL_BEGINNINGS = ("bad_", "not_a_", "not_one_of", "not_plain")


@dataclass(frozen=True, slots=True)
class ReadableText:
    """A text that could be read in the end, with the same lines as the broken one. `faults` are all
    syntax errors, `repaired` the lines (from 1) that differ. `has_gaps` is set if something was
    left out, `is_moved` if lines were indented differently.
    """

    text: str
    faults: tuple[ValidationIssue, ...]
    repaired: frozenset[int]
    has_gaps: bool
    is_moved: bool
    shifts: Mapping[int, int]
    """By how many columns the author's text in a line stands further right."""

    def may_tell(self, issue: ValidationIssue, line: int) -> bool:
        """Whether an issue of this text at this line (0: nowhere) is certainly one of the author's
        text.
        """
        if line in self.repaired or (self.is_moved and issue.key in _DEPTH_KEYS):
            return False
        is_local = issue.key in _LOCAL_KEYS or issue.key.startswith(_LOCAL_BEGINNINGS)
        return (is_local and line > 0) if self.has_gaps else True


def is_broken(issue: ValidationIssue) -> bool:
    """Whether the issue may be one of syntax, behind which nothing was read."""
    return issue.key == "no_workflow" or _is_syntax_fault(issue)


def _is_syntax_fault(issue: ValidationIssue) -> bool:
    return issue.key in _OTHER_SYNTAX or issue.key.startswith("yaml_")


def recover_text(text: str) -> ReadableText:
    """Repair one error after the other. `text` cannot be read, or is not a mapping."""
    recovery = _Recovery(text.split("\n"), len(text) + 1)
    recovery.run()
    return ReadableText(
        "\n".join(recovery.lines),
        tuple(recovery.faults),
        frozenset(n + 1 for n in recovery.repaired),
        recovery.has_gaps,
        recovery.is_moved,
        recovery.shifts,
    )


@dataclass(frozen=True, slots=True)
class _Fault:
    """A syntax error that is reported at `line`. The parser stopped at `stop`, inside the
    collection or text that was opened at `opened`. All lines count from 0.
    """

    issue: ValidationIssue
    line: int
    stop: tuple[int, int]
    opened: tuple[int, int] | None = None


@dataclass(slots=True)
class _Recovery:
    lines: list[str]
    size: int
    faults: list[ValidationIssue] = field(default_factory=list)
    repaired: set[int] = field(default_factory=set)
    has_gaps: bool = False
    is_moved: bool = False
    shifts: dict[int, int] = field(default_factory=dict)
    _parsed: int = 0
    _soundness: tuple[int, int] = (0, 0)

    def run(self) -> None:
        fault = self._find(self.lines)
        while fault is not None and len(self.faults) < _MAX_FAULTS:
            self.faults.append(fault.issue)
            fault = self._repair(fault)
        if fault is not None:
            # What follows is not read, so that it is not told wrongly.
            self._take(_blank(self.lines, fault.line, len(self.lines)), is_gap=True)

    def _repair(self, fault: _Fault) -> _Fault | None:
        """The next error; the same one if there is nothing left to try."""
        best: tuple[tuple[int, ...], list[str], _Fault | None] | None = None
        for lines in _exact_repairs(self.lines, fault):
            if lines == self.lines or self._parsed >= _MAX_PARSED:
                continue
            left = self._find(lines)
            reached = (len(lines) if left is None else left.line, *self._soundness)
            if reached[0] > fault.line and (best is None or reached > best[0]):
                best = reached, lines, left
        if best is not None:
            _, lines, left = best
            if fault.issue.key == "yaml_full_width":
                self._tell_each(lines, fault.line)
            self._take(lines, is_gap=self._changes_names(lines, fault), key=fault.issue.key)
            return left
        for lines in _gaps(self.lines, fault):
            if self._parsed >= _MAX_PARSED:
                break
            left = self._find(lines)
            if left is None or left.line > fault.line:
                self._take(lines, is_gap=True)
                return left
        self._take(_blank(self.lines, fault.line, len(self.lines)), is_gap=True)
        return None

    def _changes_names(self, lines: Sequence[str], fault: _Fault) -> bool:
        """Whether a repair makes the names of nodes and values uncertain."""
        if fault.issue.key == "json_cut":
            return True
        return any(
            "".join(old.split()) != "".join(new.split()) and not _PLAIN_FIELD.match(old)
            for old, new in zip(self.lines, lines, strict=True)
            if fault.issue.key != "yaml_full_width"
        )

    def _tell_each(self, lines: Sequence[str], told: int) -> None:
        """Report the other full-width characters that a repair replaces."""
        for n, (old, new) in enumerate(zip(self.lines, lines, strict=True)):
            other = _full_width(self.lines, n) if old != new and n != told else None
            if other is not None and len(self.faults) < _MAX_FAULTS:
                self.faults.append(other.issue)

    def _take(self, lines: list[str], *, is_gap: bool, key: str = "") -> None:
        for n, (old, new) in enumerate(zip(self.lines, lines, strict=True)):
            shift = _indent(old) - _indent(new)
            self.is_moved |= shift != 0
            if key == "yaml_tab" and old.lstrip() == new.lstrip():
                self.shifts[n + 1] = self.shifts.get(n + 1, 0) + shift
            elif old != new and not (key == "json_comma" and new == f"{old.rstrip()},"):
                self.repaired.add(n)
        self.lines, self.has_gaps = lines, self.has_gaps or is_gap

    def _find(self, lines: Sequence[str]) -> _Fault | None:
        self._parsed += self.size
        fault, self._soundness = _find_fault("\n".join(lines), lines)
        return fault


def _find_fault(text: str, lines: Sequence[str]) -> tuple[_Fault | None, tuple[int, int]]:
    """The first syntax error, as precisely as it is known; without one, a measure of how sound the
    text is: few wrong values, many groups.
    """
    try:
        data, notes = parse_data(text)
    except InvalidGraph as bad:
        return _exact_fault(bad, text, lines), (0, 0)
    if isinstance(data, str):
        marks = (_full_width(lines, n) for n in range(len(lines)))
        return next(filter(None, marks), None), (0, 0)
    return None, (-len(notes), _count_groups(data))


def _count_groups(data: Any) -> int:
    inside = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return sum(map(_count_groups, inside)) + isinstance(data, dict | list)


def _exact_fault(bad: InvalidGraph, text: str, lines: Sequence[str]) -> _Fault | None:
    issue, cause = bad.issues[0], bad.__cause__
    if not _is_syntax_fault(issue):
        return None
    line, column = (int(str(issue.facts.get(name, 1))) - 1 for name in ("line", "column"))
    line = min(line, len(lines) - 1)
    fault = _Fault(issue, line, (line, column))
    if issue.key == "bad_json":
        return _tell_json(fault, lines)
    if isinstance(cause, yaml.YAMLError):
        fault = replace(
            fault,
            stop=_place(getattr(cause, "problem_mark", None), lines) or fault.stop,
            opened=_place(getattr(cause, "context_mark", None), lines),
        )
    return _tell_yaml(fault, text, lines)


def _place(mark: Any, lines: Sequence[str]) -> tuple[int, int] | None:
    """The place of a mark. YAML knows more line ends than editors, and one line behind the last."""
    return (min(mark.line, len(lines) - 1), mark.column) if mark is not None else None


def _told(fault: _Fault, key: str, line: int, column: int, **facts: object) -> _Fault:
    facts = {"line": line + 1, "column": column + 1, **facts}
    return replace(fault, issue=ValidationIssue(key=key, facts=facts), line=line)


def _tell_json(fault: _Fault, lines: Sequence[str]) -> _Fault:
    line, column = fault.stop
    rest = lines[line][column:]
    why = str(fault.issue.facts.get("why", ""))
    key = next((key for key, words in _JSON_KINDS if words.search(why)), "bad_json")
    if rest.startswith(("//", "/*", "#")):
        key = "json_comment"
    elif not rest and not "".join(lines[line + 1 :]).strip():
        key = "json_cut"
    return _told(fault, key, line, column)


def _tell_yaml(fault: _Fault, text: str, lines: Sequence[str]) -> _Fault:
    value = _VALUE_LINE.fullmatch(_line(lines, fault.line))
    if value and value["value"].startswith("{{"):
        return _told(fault, "yaml_template", fault.line, value.start("value"))
    if fault.issue.key == "yaml_quote":
        return fault
    if fault.issue.key in {"yaml_indent", "yaml_colon"}:
        found = _tell_what_is_behind(fault, text, lines)
        if found is not None and found.issue.key != "yaml_after_bracket":
            return found
    else:
        found = None
    near = (_full_width(lines, n) for n in (fault.line, fault.stop[0], fault.stop[0] - 1))
    wide = next(filter(None, near), None)
    return found or fault if wide is None else replace(wide, stop=fault.stop, opened=fault.opened)


def _tell_what_is_behind(fault: _Fault, text: str, lines: Sequence[str]) -> _Fault | None:
    """Report that something follows on the line where a quote or a bracket was closed."""
    line, column = fault.stop
    last = _last_event(text)
    if last is None or last.end_mark.line != line:
        return None
    first = last.start_mark
    if isinstance(last, yaml.ScalarEvent) and last.style in {"'", '"'}:
        if first.line < line:
            return _told(fault, "yaml_quote_late", first.line, first.column, end=line + 1)
        return _told(fault, "yaml_after_quote", line, column)
    if _line(lines, line)[column : column + 1] in {"}", "]"}:
        return _told(fault, "yaml_unopened", line, column)
    is_end = isinstance(last, yaml.MappingEndEvent | yaml.SequenceEndEvent)
    if is_end and first.index < last.end_mark.index:
        return _told(fault, "yaml_after_bracket", line, column)
    return None


def _full_width(lines: Sequence[str], n: int) -> _Fault | None:
    """A full-width colon or comma where YAML needs an ASCII one."""
    line = _line(lines, n)
    found = _FULL_WIDTH_NAME.match(line) or _find_wide_comma(line)
    if found is None:
        return None
    mark, column = found["mark"], found.start("mark")
    facts = {"line": n + 1, "column": column + 1, "mark": mark, "plain": _ASCII_FOR[mark].strip()}
    return _Fault(ValidationIssue(key="yaml_full_width", facts=facts), n, (n, column))


def _find_wide_comma(line: str) -> re.Match[str] | None:
    """Between the entries of a collection within the line."""
    opened = re.search(r"[{\[]", line)
    return None if opened is None else _FULL_WIDTH_COMMA.search(line, opened.end())


def _last_event(text: str) -> Any:
    """The last one before the error."""
    last: Any = None
    with suppress(yaml.YAMLError):
        for event in yaml.parse(text, Loader=YAML_LOADER):
            last = event
    return last


def _line(lines: Sequence[str], n: int) -> str:
    return lines[n] if 0 <= n < len(lines) else ""


def _exact_repairs(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    """Repaired texts that their author may have meant."""
    key = fault.issue.key
    if (repair := _REPAIRS.get(key)) is not None:
        yield from repair(lines, fault)
    if key.startswith("yaml_"):
        yield _with(lines, fault.line, _quoted(lines[fault.line]))


def _without_tab(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    for width in (1, 2, 4, 8):
        yield [_without_tabs(each, width) for each in lines]
    yield from _moved(lines, fault)
    yield _with(lines, fault.line, lines[fault.line].replace("\t", " "))


def _moved(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    for width in _other_indents(lines, fault.line, fault.opened):
        yield _indented(lines, fault.line, width)
        yield _with(lines, fault.line, " " * width + lines[fault.line].lstrip())


def _with_ascii_marks(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    yield _with_plain_names(lines)
    yield _with(lines, fault.line, _with_plain_marks(lines[fault.line]))


def _without_mark(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    line, column = fault.stop
    yield _with(lines, line, f"{lines[line][:column]} {lines[line][column + 1 :]}")


def _without_comment(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    line, column = fault.stop
    yield _with(lines, line, lines[line][:column])


def _gaps(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    """Texts without the line of the error; without the item or the section around it; and without
    everything that follows.
    """
    first, last = sorted((fault.line, fault.stop[0]))
    if fault.issue.key == "several_documents":
        yield _blank(lines, fault.line, len(lines))
    yield _blank(lines, fault.line, fault.line + 1)
    start, end = _block_around(lines, fault.line, is_item=True)
    yield _blank(lines, start, end)
    if last < len(lines) - 1:
        yield _blank(lines, first, last + 1)
    start, end = _block_around(lines, fault.line, is_item=False)
    yield _blank(lines, start, end)


def _with(lines: list[str], n: int, line: str) -> list[str]:
    return [*lines[:n], line, *lines[n + 1 :]]


def _blank(lines: list[str], start: int, end: int) -> list[str]:
    return [*lines[:start], *("" for _ in lines[start:end]), *lines[end:]]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _block_around(lines: Sequence[str], n: int, *, is_item: bool) -> tuple[int, int]:
    """The item of a list that the line belongs to, or the section of the whole text."""
    width = _indent(lines[n])
    start = n
    while start > 0:
        here = lines[start]
        begins = here.lstrip().startswith("- ") if is_item else here[:1].strip() not in {"", "#"}
        if begins and _indent(here) <= width:
            break
        start -= 1
    width = _indent(lines[start])
    rest = range(start + 1, len(lines))
    end = next((m for m in rest if lines[m].strip() and _indent(lines[m]) <= width), len(lines))
    return start, max(end, n + 1)


def _without_tabs(line: str, width: int) -> str:
    at = _indent(line)
    return line[:at].replace("\t", " " * width) + line[at:]


def _with_plain_marks(line: str) -> str:
    name = _FULL_WIDTH_NAME.match(line)
    if name is not None:
        line = f"{line[: name.start('mark')]}: {line[name.end('mark') :]}"
    if _find_wide_comma(line):
        for mark, plain in _ASCII_FOR.items():
            line = line.replace(mark, plain)
    return line


def _with_plain_names(lines: Sequence[str]) -> list[str]:
    """The lines with ASCII punctuation in all fields of the file, except in blocks of text."""
    changed, block = [], -1
    for line in lines:
        if block >= 0 and line.strip() and _indent(line) <= block:
            block = -1
        changed.append(_with_plain_marks(line) if block < 0 else line)
        if block < 0 and _BLOCK_TEXT.fullmatch(line):
            block = _indent(line)
    return changed


def _quoted(line: str) -> str:
    found = _VALUE_LINE.fullmatch(line.rstrip())
    if found is None:
        return line
    return found["name"] + json.dumps(found["value"], ensure_ascii=False)


def _closed_quotes(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    n, column = fault.line, int(str(fault.issue.facts["column"])) - 1
    line = lines[n].rstrip()
    mark = line[column : column + 1]
    body = line.rstrip("}], ")
    if len(body) > column + 1 and body != line:
        yield _with(lines, n, body + mark + line[len(body) :])
    yield _with(lines, n, line + mark)


def _closed_brackets(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    if fault.opened is None:
        return
    (first, column), (line, at) = fault.opened, fault.stop
    closing = _CLOSING.get(lines[first][column : column + 1], "")
    here = lines[line]
    yield _with(lines, line, here[:at] + closing + here[at:])
    before, _, word = here[:at].rpartition(" ")
    if before and word:
        before = before.rstrip()
        yield _with(lines, line, f"{before},{here[len(before) :]}")
    yield _with(lines, line, f"{here[:at]},{here[at:]}")
    for n in dict.fromkeys((first, max(first, line - 1))):
        yield _with(lines, n, lines[n].rstrip().rstrip(",") + closing)


def _other_indents(lines: list[str], n: int, opened: tuple[int, int] | None) -> Iterable[int]:
    """Where the line may belong: beside what was opened, or beside the lines above it."""
    own, widths = _indent(lines[n]), set() if opened is None else {opened[1]}
    for near in (*lines[max(0, n - 40) : n], *lines[n + 1 : n + 2]):
        if near.strip():
            widths |= {_indent(near), len(near) - len(near.lstrip(" -"))}
    return sorted(widths - {own}, key=lambda width: abs(width - own))[:6]


def _indented(lines: list[str], n: int, width: int) -> list[str]:
    """The text with this line, and the following lines that are indented at least as much, at
    another indentation.
    """
    own, changed = _indent(lines[n]), list(lines)
    for m in range(n, len(lines)):
        if lines[m].strip() and _indent(lines[m]) < own:
            break
        changed[m] = " " * (width + _indent(lines[m]) - own) + lines[m].lstrip()
    return changed


def _with_comma(lines: list[str], fault: _Fault) -> Iterator[list[str]]:
    """The text with a comma behind the value before that place."""
    line, column = fault.stop
    before = lines[line][:column].rstrip()
    while not before and line > 0:
        line -= 1
        before = lines[line].rstrip()
    yield _with(lines, line, f"{before},{lines[line][len(before) :]}")


def _closed_json(lines: list[str], _fault: _Fault) -> Iterator[list[str]]:
    """The text with the quote and the brackets that are open at its end closed."""
    opened: list[str] = []
    is_text = is_escaped = False
    for mark in "\n".join(lines):
        if is_text:
            is_text = is_escaped or mark != '"'
            is_escaped = mark == "\\" and not is_escaped
        elif mark == '"':
            is_text = True
        elif mark in _CLOSING:
            opened.append(_CLOSING[mark])
        elif mark in "}]" and opened:
            opened.pop()
    last = next((n for n in range(len(lines) - 1, -1, -1) if lines[n].strip()), 0)
    end = re.sub(r"[,:]\s*$", "", lines[last].rstrip() + '"' * is_text)
    yield _with(lines, last, end + "".join(reversed(opened)))


_REPAIRS: Mapping[str, Callable[[list[str], _Fault], Iterator[list[str]]]] = {
    "json_comma": _with_comma,
    "json_comment": _without_comment,
    "json_cut": _closed_json,
    "yaml_bracket": _closed_brackets,
    "yaml_colon": _moved,
    "yaml_control": _without_mark,
    "yaml_full_width": _with_ascii_marks,
    "yaml_indent": _moved,
    "yaml_quote": _closed_quotes,
    "yaml_quote_late": _closed_quotes,
    "yaml_tab": _without_tab,
    "yaml_unopened": _without_mark,
}
