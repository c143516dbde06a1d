"""Finds the values that a text asks to be replaced in a file, and checks afterwards that the new
one stands there and that the rest of the file is as before."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bot.engine.agent.requested_files import MAX_TEXT, find_files_to_change, split_sentences
from bot.engine.llm import workspace_files as folder

_MAX_BYTES = 200_000
_QUOTES = "`\"'“”‘’「」『』"
_PLAIN_VALUE = r"[A-Za-z0-9][A-Za-z0-9_.:/%+-]{0,80}(?<![.:,])"
_END = (
    r"(?=\s*(?:$|[,，.。;；!！)）\n]|里|中|的|并|然后"
    r"|(?:\s(?:in|inside|within|of|and|then|everywhere|for)\b)))"
)


def _value(name: str) -> str:
    quoted = rf"[{_QUOTES}](?P<{name}q>[^{_QUOTES}\n]{{1,100}})[{_QUOTES}]"
    return rf"(?:{quoted}|(?P<{name}>{_PLAIN_VALUE}))"


_OLD, _NEW = _value("old"), _value("new")
_FROM_TO = (
    r"\b(?:chang|set|updat|switch|modif|correct|bump|rais|lower|increas|decreas|edit)[a-z]*\b"
    r"(?:(?!\b(?:with|using|for|about|by)\b)[^\n,;]){1,100}?"
    rf"\bfrom\s+{_OLD}\s+to\s+{_NEW}"
)
_REPLACE = rf"\breplac(?:e|ing)\s+(?:all\s+|every\s+|each\s+)?{_OLD}\s+(?:with|by)\s+{_NEW}"
_CHINESE_FROM_TO = (
    rf"(?:从|由)\s*{_OLD}\s*(?:改|变|换|调|修改|更改|调整|更新|替换)?(?:成|为|到|至)\s*{_NEW}"
)
_CHINESE_REPLACE = rf"{_OLD}\s*(?:改成|改为|换成|替换为|替换成|修改为|更新为|调整为)\s*{_NEW}"
_FORMS = tuple(
    re.compile(form + _END, re.IGNORECASE)
    for form in (_FROM_TO, _REPLACE, _CHINESE_FROM_TO, _CHINESE_REPLACE)
)
_MORE_IS_ASKED = re.compile(
    r"\b(?:and|then|also|plus|as well)\b"
    r"|[，,；;、]\s*(?:并|再|然后|同时)|并且|然后|同时|以及",
    re.IGNORECASE,
)


FileMark: TypeAlias = tuple[int, int, str]
"""How often the old and the new value stand in a file, and a digest of all else but white space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueChange:
    """`old` is to become `new` in the file; `is_all` says that the text asks for nothing else."""

    file: str
    old: str
    new: str
    is_all: bool

    def read(self, workspace: Path) -> FileMark | None:
        """Look at the file; None if there is no such text. Blocks."""
        try:
            text = folder.read_text(workspace, self.file, limit=_MAX_BYTES)
        except folder.PathRefused:
            return None
        either = f"{_whole(self.old).pattern}|{_whole(self.new).pattern}"
        rest = "".join(re.sub(either, "\0", text).split())
        old, new = (len(_whole(value).findall(text)) for value in (self.old, self.new))
        return old, new, hashlib.sha256(rest.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def mark_files(workspace: Path, texts: Sequence[str]) -> Mapping[str, FileMark]:
    """The files in which the texts ask for values to be changed and the old ones stand, as they
    are before anybody works on them. Blocks."""
    marks = {each.file: each.read(workspace) for each in find_value_changes(texts)}
    return {name: mark for name, mark in marks.items() if mark is not None and mark[0]}


def find_wrong_values(
    workspace: Path, texts: Sequence[str], before: Mapping[str, FileMark]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the files without the value that was to stand there, and those in which more has
    changed, although nothing else was asked for. One that is gone or as before is not judged.
    Blocks."""
    absent: list[str] = []
    more: list[str] = []
    for each in find_value_changes(texts):
        was, now = before.get(each.file), each.read(workspace)
        if was is None or now is None or now == was:
            continue
        (old_before, new_before, rest_before), (old, new, rest) = was, now
        if new <= new_before and not (new and old < old_before):
            absent.append(f"{each.file} ({each.new})")
        elif each.is_all and rest != rest_before:
            more.append(each.file)
    return absent, more


def find_value_changes(texts: Sequence[str]) -> tuple[ValueChange, ...]:
    """Return the changes of one value in one file that the texts plainly ask for, the last one for
    each file. Each text speaks for itself."""
    found = (each for text in texts for each in _changes(text[:MAX_TEXT]))
    return tuple({each.file: each for each in found}.values())


def _changes(text: str) -> Iterator[ValueChange]:
    # A step's title is often said again below it.
    stripped = (each.strip(" \n.。") for each in split_sentences(text))
    sentences = [each for each in dict.fromkeys(stripped) if each]
    for sentence in sentences:
        files = find_files_to_change(sentence)
        found = [mark for form in _FORMS for mark in form.finditer(sentence)]
        values = {(_named(mark, "old"), _named(mark, "new")) for mark in found}
        if len(files) != 1 or len(values) != 1:
            continue
        old, new = values.pop()
        if old != new and files[0] not in {old, new}:
            is_all = len(sentences) == 1 and not _MORE_IS_ASKED.search(sentence)
            yield ValueChange(file=files[0], old=old, new=new, is_all=is_all)


def _named(mark: re.Match[str], name: str) -> str:
    return str(mark[f"{name}q"] or mark[name]).strip()


def _whole(value: str) -> re.Pattern[str]:
    """Not as a part of a longer number or word."""
    return re.compile(rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\w)")
