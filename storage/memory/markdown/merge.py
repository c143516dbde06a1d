"""Merges a person's edits of a Markdown page with concurrent changes in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from storage.memory.markdown.page_format import EntryLine, MarkdownLayout, MarkdownPage

_DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDigest:
    """The page as last written, as digests only, so no forgotten text is retained.

    `lines` has the digest of each entry's text and `titles` that of its heading, by entry id.
    `removed` lists entries no longer shown because a person removed their lines.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    removed: Sequence[str] = ()

    @classmethod
    def of_page(cls, page: MarkdownPage, *, with_titles: bool) -> PageDigest:
        """`with_titles`: headings count, as in a book layout."""
        lines = {line.id: text_digest(line.text) for line in page.lines if line.id}
        titles = {line.id: each.title for each in page.sections for line in each.lines if line.id}
        return cls(lines=lines, titles=titles if with_titles else {})

    @classmethod
    def from_json(cls, text: str) -> PageDigest:
        """Parses the result of `to_json`."""
        known = json.loads(text)
        return cls(lines=known["lines"], titles=known["titles"], removed=known.get("gone", ()))

    def to_json(self) -> str:
        known: dict[str, object] = {"lines": self.lines, "titles": self.titles}
        known |= {"gone": list(self.removed)} if self.removed else {}
        return json.dumps(known, ensure_ascii=False)


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]


FREE_REMOVALS = 5
"""This many lines may always be removed at once."""

_MAX_REMOVED_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedLine:
    """A line without a mark, or with the mark `id` of another file; `section` is its heading."""

    text: str
    section: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEdit:
    """`before` is the digest of the entry's text when the person started editing."""

    id: str
    text: str
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """`conflicts` were changed differently on both sides, and neither may be lost. `removed` were
    deleted by the person and are unchanged in the store; those `changed_in_store` must stay.
    `unconfirmed` lines are missing, perhaps unintentionally."""

    edits: tuple[LineEdit, ...] = ()
    conflicts: tuple[LineEdit, ...] = ()
    added: tuple[AddedLine, ...] = ()
    removed: tuple[str, ...] = ()
    changed_in_store: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()


def merge_page(
    base: PageDigest | None,
    disk: MarkdownPage,
    stored: Mapping[str, EntryLine],
    *,
    confirmed: frozenset[str] = frozenset(),
) -> MergeResult:
    """Compare the file with its base and the store.

    `base` is the page as last written, or None if unknown: missing lines are then ignored. `stored`
    has the entries this file may show, by id. `confirmed` are the ids last reported as unconfirmed:
    if they are still missing, they count as removed.
    """
    known = base.lines if base is not None else {}
    own, added = _split_own_and_added(disk, known)
    under = {line.id: each.title for each in disk.sections for line in each.lines}
    edits: list[LineEdit] = []
    clashes: list[LineEdit] = []
    for entry_id, line in own.items():
        found = _line_change(line, known.get(entry_id), stored.get(entry_id))
        if isinstance(found, AddedLine):
            added.append(replace(found, section=under.get(entry_id, "")))
        elif found is not None:
            to = clashes if _is_conflict(found, stored[entry_id]) else edits
            to.append(found)
    missing = [each for each in known if each in stored and each not in own]
    gone = tuple(each for each in missing if text_digest(stored[each].text) == known[each])
    sure = _is_removal_intended(disk, gone, known, confirmed)
    return MergeResult(
        edits=tuple(edits),
        conflicts=tuple(clashes),
        added=tuple(added),
        removed=gone if sure else (),
        changed_in_store=tuple(each for each in missing if each not in gone) if sure else (),
        unconfirmed=() if sure else gone,
    )


def restore_marks(base: PageDigest, disk: MarkdownPage, layout: MarkdownLayout) -> MarkdownPage:
    """The page with accidentally removed marks restored, for lines whose text, or chapters whose
    heading, is unchanged."""
    there = {line.id for line in disk.lines}
    lost = {
        base.titles.get(each, "") if layout is MarkdownLayout.BOOK else said: each
        for each, said in base.lines.items()
        if each not in there
    }
    if not lost:
        return disk
    sections = []
    for section in disk.sections:
        lines = []
        for line in section.lines:
            name = section.title if layout is MarkdownLayout.BOOK else text_digest(line.text)
            unmarked = not line.id and bool(line.text.strip())
            known = lost.pop(name, "") if unmarked else ""
            lines.append(replace(line, id=known) if known else line)
        sections.append(replace(section, lines=tuple(lines)))
    return replace(disk, sections=tuple(sections))


def _split_own_and_added(
    disk: MarkdownPage, known: Mapping[str, str]
) -> tuple[dict[str, EntryLine], list[AddedLine]]:
    """Lines by mark, and new lines. If two lines share a mark, the changed one is new: it was
    copied."""
    own: dict[str, EntryLine] = {}
    added: list[AddedLine] = []
    for section in disk.sections:
        for line in section.lines:
            if not line.text.strip():
                continue
            twin = own.get(line.id) if line.id else None
            if line.id and twin is None:
                own[line.id] = line
                continue
            new = line
            if twin is not None and known.get(line.id) == text_digest(line.text) != text_digest(
                twin.text
            ):
                own[line.id], new = line, twin
            if twin is None or new.text != own[line.id].text:
                added.append(AddedLine(text=new.text, section=section.title))
    return own, added


def _line_change(
    line: EntryLine, before: str | None, now: EntryLine | None
) -> LineEdit | AddedLine | None:
    if now is None:
        # Gone from the store: an unchanged line is removed from the file too; anything a person
        # wrote since, or moved here from another file, stays.
        return None if text_digest(line.text) == before else AddedLine(text=line.text, id=line.id)
    if line.text == now.text or text_digest(line.text) == before:
        return None
    if before is None:
        # Its text is unknown; if the revision is the one shown, it is the stored text.
        before = text_digest(now.text) if line.revision == now.revision else ""
    return LineEdit(id=line.id, text=line.text, before=before)


def _is_conflict(edit: LineEdit, now: EntryLine) -> bool:
    return edit.before != text_digest(now.text)


def _is_removal_intended(
    disk: MarkdownPage,
    missing_ids: Iterable[str],
    known: Mapping[str, str],
    confirmed: frozenset[str],
) -> bool:
    """Whether missing lines were removed on purpose: not if the first or last mark of the file is
    gone, and not if most lines are missing, unless the same ones were missing before."""
    missing = frozenset(missing_ids)
    if not missing:
        return True
    if not disk.has_end_mark or not disk.write_number:
        return False
    return (
        len(missing) <= max(FREE_REMOVALS, len(known) * _MAX_REMOVED_SHARE) or missing == confirmed
    )
