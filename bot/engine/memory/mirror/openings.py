"""Editors that save again and again without reading the file in between: what they write on is
what they wrote before, and no change of somebody else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bot.engine.memory.mirror.places import Place
from storage.memory.markdown.merge import Edit, Merge, Written
from storage.memory.markdown.page import Page
from storage.records.memory.entries import Entry

_REMEMBERED = 20
"""Openings of one file."""


@dataclass(slots=True)
class Openings:
    """By the number that a file had when it was opened: what was taken from it since, by entry.
    Two editors that opened the same are told apart by what they write: only text with something
    put in or taken out in one place goes on from another."""

    _files: dict[str, OrderedDict[int, dict[str, str]]] = field(default_factory=dict)

    def taken(self, place: Place, disk: Page, entry_id: str, text: str) -> None:
        if not disk.number:
            return
        of_file = self._files.setdefault(place.path, OrderedDict())
        of_file.setdefault(disk.number, {})[entry_id] = text
        while len(of_file) > _REMEMBERED:
            of_file.popitem(last=False)

    def gone_on(self, place: Place, disk: Page, found: Merge, by_id: Mapping[str, Entry]) -> Merge:
        """The same, with clashes and new lines as edits where somebody has only typed on."""
        openings = self._files.get(place.path, OrderedDict[int, dict[str, str]]())
        before = {
            name: text
            for name, text in openings.get(disk.number, {}).items()
            if name in by_id and by_id[name].text == text
        }
        if not before:
            return found
        on = [each for each in found.clashes if _is_typed_on(before.get(each.id), each.text)]
        clashes = tuple(each for each in found.clashes if each not in on)
        grown, added = _grown(before, disk, found.added)
        edits = (*found.edits, *on, *grown)
        return replace(found, edits=edits, clashes=clashes, added=added)


def _grown(
    before: Mapping[str, str], disk: Page, added: Sequence[Written]
) -> tuple[list[Edit], tuple[Written, ...]]:
    """Of lines that were new when they were saved last, those that say more now."""
    there = {line.id for line in disk.lines} | {line.text for line in disk.lines}
    free = {name: text for name, text in before.items() if not {name, text} & there}
    edits, still_new = [], []
    for each in added:
        name = next((n for n, text in free.items() if _is_typed_on(text, each.text)), "")
        if each.id or not name:
            still_new.append(each)
            continue
        edits.append(Edit(id=name, text=each.text, before=""))
        del free[name]
    return edits, tuple(still_new)


def _is_typed_on(old: str | None, new: str) -> bool:
    """Whether one comes from the other by putting something in, or taking it out, in one place."""
    if not old or not new:
        return False
    short, long = sorted((old, new), key=len)
    start = _alike(short, long)
    return start + _alike(short[start:][::-1], long[start:][::-1]) >= len(short)


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
