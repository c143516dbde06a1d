"""Editors that save again and again without reading the file in between: what they write on is
what they wrote before, and no change of somebody else."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from bot.engine.memory.mirror.places import Place
from storage.memory.markdown.merge import Edit, Merge, Written
from storage.memory.markdown.page import Page
from storage.records.memory.entries import Entry

_REMEMBERED = 20
"""Openings of one file."""
_TYPING = timedelta(minutes=1)
"""Within it what an editor takes out again was put in by itself."""
_COMPARED = 2_000
"""Pairs of lines; of more, all are lines of their own."""


@dataclass(slots=True)
class _Opening:
    """What was taken from it since, by entry."""

    at: datetime
    texts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Openings:
    """By the number that a file had when it was opened. Two editors that opened the same are told
    apart by what they write: one that goes on still has what it wrote before, and text with
    something put in or taken out in one place."""

    _files: dict[str, OrderedDict[int, _Opening]] = field(default_factory=dict)

    def taken(self, place: Place, disk: Page, entry_id: str, text: str, at: datetime) -> None:
        if not disk.number:
            return
        of_file = self._files.setdefault(place.path, OrderedDict())
        opening = of_file.setdefault(disk.number, _Opening(at))
        opening.texts[entry_id], opening.at = text, at
        while len(of_file) > _REMEMBERED:
            of_file.popitem(last=False)

    def gone_on(
        self, place: Place, disk: Page, found: Merge, by_id: Mapping[str, Entry], now: datetime
    ) -> Merge:
        """The same, with clashes and new lines as edits where somebody has only typed on."""
        opening = self._files.get(place.path, OrderedDict[int, _Opening]()).get(disk.number)
        if opening is None or not (found.clashes or found.added):
            return found
        before = {
            name: text
            for name, text in opening.texts.items()
            if name in by_id and by_id[name].text == text
        }
        there = {line.id: line.text for line in disk.lines if line.id}
        said = {line.text for line in disk.lines}
        kept = {name for name, text in before.items() if text in said}
        soon = now - opening.at <= _TYPING

        on = [
            each
            for each in found.clashes
            if each.id in before and _is_typed_on(before[each.id], each.text, soon=soon)
        ]
        free = {n: t for n, t in before.items() if n not in kept and n not in there}
        grown, added = _grown(free, found.added, soon=soon)
        others = before.keys() - {each.id for each in (*on, *grown)}
        if others and not others & kept:
            # Nothing of what was written there before: somebody else has opened the same.
            return found
        clashes = tuple(each for each in found.clashes if each not in on)
        return replace(found, edits=(*found.edits, *on, *grown), clashes=clashes, added=added)


def _grown(
    free: Mapping[str, str], added: Sequence[Written], *, soon: bool
) -> tuple[list[Edit], tuple[Written, ...]]:
    """Of lines that were new when they were saved last, those that say more now."""
    left = dict(free)
    edits, still_new = list[Edit](), list[Written]()
    tries = iter(range(_COMPARED))
    for each in added:
        name = "" if each.id else next(_names(left, each.text, tries, soon=soon), "")
        if not name:
            still_new.append(each)
            continue
        edits.append(Edit(id=name, text=each.text, before=""))
        del left[name]
    return edits, tuple(still_new)


def _names(
    free: Mapping[str, str], text: str, tries: Iterator[int], *, soon: bool
) -> Iterator[str]:
    for (name, old), _ in zip(free.items(), tries, strict=False):
        if _is_typed_on(old, text, soon=soon):
            yield name


def _is_typed_on(old: str, new: str, *, soon: bool) -> bool:
    """Whether one comes from the other by putting something in, or `soon` after by taking it out,
    in one place."""
    if not old or not new or (len(new) < len(old) and not soon):
        return False
    short, long = sorted((old, new), key=len)
    start = _alike(short, long)
    return start + _alike(short[start:][::-1], long[start:][::-1]) >= len(short)


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    most = min(len(one), len(other))
    return bisect_left(range(1, most + 1), True, key=lambda n: one[:n] != other[:n])
