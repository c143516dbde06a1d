"""Words that anybody may have said, in a file that people edit: nothing in them is taken for the
file's own marks, nothing is invisible, and reading gives back every character."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_REFERENCE = re.compile(r"&#([1-9]\d{0,6});")
_LITERAL = re.compile(r"&(?=#[1-9]\d{0,6};)")
_COMMENT = re.compile(r"<(?=!--)")
_HEADING = re.compile(r"#(?=#?(?:\s|$))")
_HIGHEST = 0x10FFFF
_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
# Parts of emoji and of scripts, and the one that is seen.
_SEEN = frozenset("\t\u200c\u200d")

NOTE = "> ⚠️ "
HINT = "> 💡 "
"""How a line begins that the program has written for whoever reads the file."""


def escaped(text: str, *, at_edge: bool = False) -> list[str]:
    """The text as lines of a file, at least one. `at_edge`: they stand at the left edge, where a
    heading or a note would be taken for one."""
    body = text.strip("\n")
    before = len(text) - len(text.lstrip("\n"))
    after = len(text) - len(body) - before
    if not body:
        return [_newlines(len(text))]
    lines = [_line(each, at_edge=at_edge) for each in body.split("\n")]
    lines[0] = _newlines(before) + _kept_space(lines[0])
    lines[-1] += _newlines(after)
    return lines


def in_a_line(text: str) -> str:
    """The same for a text that has one line only: a heading."""
    return _newlines(1).join(_kept_space(_line(each)) for each in text.split("\n"))


def restored(lines: Sequence[str]) -> str:
    """What `escaped` was given; of what a person typed, spaces at the ends of lines go."""
    return _REFERENCE.sub(_meant, "\n".join(line.rstrip() for line in lines))


def _line(line: str, *, at_edge: bool = False) -> str:
    line = _COMMENT.sub("&#60;", _LITERAL.sub("&#38;", line))
    line = "".join(_reference(each) if _is_unseen(each) else each for each in line)
    if line and line[-1].isspace():
        line = line[:-1] + _reference(line[-1])
    if at_edge and (_HEADING.match(line) or line.startswith((NOTE.rstrip(), HINT.rstrip()))):
        line = _reference(line[0]) + line[1:]
    return line


def _kept_space(line: str) -> str:
    return _reference(line[0]) + line[1:] if line and line[0].isspace() else line


def _is_unseen(character: str) -> bool:
    return character not in _SEEN and unicodedata.category(character) in _UNSEEN


def _reference(character: str) -> str:
    return f"&#{ord(character)};"


def _newlines(count: int) -> str:
    return "&#10;" * count


def _meant(found: re.Match[str]) -> str:
    number = int(found[1])
    return chr(number) if number <= _HIGHEST else found[0]
