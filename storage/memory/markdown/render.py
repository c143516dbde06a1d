"""A page as the text of its file."""

from __future__ import annotations

from collections.abc import Iterator

from storage.memory.markdown.escape import HINT, NOTE, escaped, in_a_line
from storage.memory.markdown.page import Layout, Line, Page, Section

END = "<!-- shiftboss: end -->"
_INDENT = "  "


def render(page: Page, layout: Layout, *, hint: str = "", rivals: str = "") -> str:
    """`hint` tells people how the file is edited, `rivals` what two versions mean that stand one
    below the other; neither is read back."""
    return "\n".join((*_lines(page, layout, hint, rivals), ""))


def _lines(page: Page, layout: Layout, hint: str, rivals: str) -> Iterator[str]:
    if page.front:
        yield page.front
    yield f"# {in_a_line(page.title)}".rstrip()
    yield f"<!-- shiftboss: {page.number} -->"
    if hint:
        yield ""
        yield from (f"{HINT}{line}" for line in hint.split("\n"))
    for section in page.sections:
        yield ""
        yield from (_book if layout is Layout.BOOK else _list)(section, rivals)
    if page.complete:
        yield ""
        yield END


def _list(section: Section, rivals: str) -> Iterator[str]:
    if section.title:
        yield f"## {in_a_line(section.title)}"
        yield ""
    for line in section.lines:
        if line.rival and rivals:
            yield f"{NOTE}{rivals}"
        first, *rest = escaped(line.text)
        yield f"- {first}{_mark(line)}"
        yield from (f"{_INDENT}{each}" if each else "" for each in rest)


def _book(section: Section, rivals: str) -> Iterator[str]:
    """Every line has the section's title."""
    for number, line in enumerate(section.lines or (Line(text=""),)):
        if number:
            yield ""
        yield f"## {in_a_line(section.title)}{_mark(line)}"
        if line.rival and rivals:
            yield f"{NOTE}{rivals}"
        if line.text:
            yield ""
            yield from escaped(line.text, at_edge=True)


def _mark(line: Line) -> str:
    if not line.id:
        return ""
    rival = f" or {line.rival}" if line.rival else ""
    return f" <!-- m:{line.id} r{line.revision}{rival} -->"
