"""What a person has changed in a file, told from what the store has changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from storage.memory.markdown.began import Began, digest
from storage.memory.markdown.page import Layout, Line, Page

FEW = 5
"""So many lines may always be removed at once."""

_MOST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A line without a mark, or one that belongs to another file; `section` is what it stands
    under, `id` the mark that it brought along."""

    text: str
    section: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """`before` is the digest of what the entry said when the person began."""

    id: str
    text: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """`clashes` were changed by both sides in different ways: neither may be lost. `removed` says
    the same in the store as the person saw it; `kept` has changed there meanwhile, so that nobody
    wanted it gone as it is now. `held`: lines are missing, and nobody knows that this is meant."""

    edits: tuple[Edit, ...] = ()
    clashes: tuple[Edit, ...] = ()
    added: tuple[Written, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.edits or self.clashes or self.added or self.removed)


def merge(
    base: Began | None,
    disk: Page,
    stored: Mapping[str, Line],
    *,
    confirmed: frozenset[str] = frozenset(),
) -> Merge:
    """`base` is the page as it was when the person opened it, None where nobody knows: then only
    what is there counts, never what is missing. `stored` is what this file may show, by id.
    `confirmed` is what was `held` before: missing once more, it is meant."""
    known = base.lines if base is not None else {}
    own, added = _told_apart(disk, known)
    under = {line.id: each.title for each in disk.sections for line in each.lines}
    edits: list[Edit] = []
    clashes: list[Edit] = []
    for entry_id, line in own.items():
        found = _changed(line, known.get(entry_id), stored.get(entry_id))
        if isinstance(found, Written):
            added.append(replace(found, section=under.get(entry_id, "")))
        elif found is not None:
            to = clashes if _moved_on(found, stored[entry_id]) else edits
            to.append(found)
    missing = [each for each in known if each in stored and each not in own]
    gone = tuple(each for each in missing if digest(stored[each].text) == known[each])
    sure = _is_meant(disk, gone, known, confirmed)
    return Merge(
        edits=tuple(edits),
        clashes=tuple(clashes),
        added=tuple(added),
        removed=gone if sure else (),
        kept=tuple(each for each in missing if each not in gone) if sure else (),
        held=() if sure else gone,
    )


def adopted(base: Began, disk: Page, layout: Layout) -> Page:
    """The page with marks given back that were taken off without meaning it: a line that says what
    it said, or a chapter under its heading, is the one that it was."""
    there = {line.id for line in disk.lines}
    lost = {
        base.titles.get(each, "") if layout is Layout.BOOK else said: each
        for each, said in base.lines.items()
        if each not in there
    }
    if not lost:
        return disk
    sections = []
    for section in disk.sections:
        lines = []
        for line in section.lines:
            name = section.title if layout is Layout.BOOK else digest(line.text)
            unmarked = not line.id and bool(line.text.strip())
            known = lost.pop(name, "") if unmarked else ""
            lines.append(replace(line, id=known) if known else line)
        sections.append(replace(section, lines=tuple(lines)))
    return replace(disk, sections=tuple(sections))


def _told_apart(disk: Page, known: Mapping[str, str]) -> tuple[dict[str, Line], list[Written]]:
    """Lines by their marks, and those that are new. Of two with one mark the one that was changed
    is new: whoever copies a line wants another one like it."""
    own: dict[str, Line] = {}
    added: list[Written] = []
    for section in disk.sections:
        for line in section.lines:
            if not line.text.strip():
                continue
            twin = own.get(line.id) if line.id else None
            if line.id and twin is None:
                own[line.id] = line
                continue
            new = line
            if twin is not None and known.get(line.id) == digest(line.text) != digest(twin.text):
                own[line.id], new = line, twin
            if twin is None or new.text != own[line.id].text:
                added.append(Written(text=new.text, section=section.title))
    return own, added


def _changed(line: Line, before: str | None, now: Line | None) -> Edit | Written | None:
    if now is None:
        # Gone from the store: what is as it was goes from the file as well; what a person has
        # written since, or brought from another file, is theirs.
        return None if digest(line.text) == before else Written(text=line.text, id=line.id)
    if line.text == now.text or digest(line.text) == before:
        return None
    if before is None:
        # Nobody knows what it said; as long as the entry is the one that was shown, it was that.
        before = digest(now.text) if line.revision == now.revision else ""
    return Edit(id=line.id, text=line.text, before=before)


def _moved_on(edit: Edit, now: Line) -> bool:
    return edit.before != digest(now.text)


def _is_meant(
    disk: Page, gone: Iterable[str], known: Mapping[str, str], confirmed: frozenset[str]
) -> bool:
    """Whether lines that are missing were taken out: not where the file has lost its first or last
    mark, and not where most of it is missing, unless the very same is missing once more."""
    missing = frozenset(gone)
    if not missing:
        return True
    if not disk.complete or not disk.number:
        return False
    return len(missing) <= max(FEW, len(known) * _MOST) or missing == confirmed
