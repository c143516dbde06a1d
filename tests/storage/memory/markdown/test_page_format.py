from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.memory.markdown.page_format import (
    EntryLine,
    MarkdownLayout,
    MarkdownPage,
    PageSection,
    parse_page,
    render_page,
)

HOSTILE = (
    "# heading",
    "## 对话",
    "#",
    "---",
    "-->",
    "<!-- m:abcdef r9 -->",
    "<!-- shiftboss: end -->",
    "<!-- shiftboss: 4 -->",
    "> ⚠️ careful",
    "> 💡 tip",
    "| a | b |",
    "```",
    "~~~ python",
    "- item",
    "  - deeper",
    "\tindented",
    "    code",
    "&#10;",
    "&amp;#38;",
    "\u202etxt.exe",
    "\u200b",
    "\ufeff",
    "\u2028",
    "\x85",
    "\r",
    "\x0b",
    "\u3000",
    " ",
    "",
    "&",
    "&#1114112;",
    "👨\u200d👩\u200d👧",
    "a: &a [*a, *a]",
    "1. one",
    "* * *",
    "===",
)
texts = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=12), max_size=6).flatmap(
    lambda parts: st.sampled_from(["\n", "", " ", "\r\n"]).map(lambda glue: glue.join(parts))
)
# No store takes it.
texts = texts.map(lambda text: text.replace("\0", ""))
ids = st.text("23456789abcdefghjkmnpqrstuvwxyz", min_size=4, max_size=16)


@st.composite
def pages(draw: st.DrawFn, layout: MarkdownLayout) -> MarkdownPage:
    titles = draw(st.lists(texts.filter(bool), max_size=4, unique=True))
    most = 2 if layout is MarkdownLayout.BOOK else 4
    sections = [
        PageSection(
            title=title,
            lines=tuple(
                EntryLine(
                    text=draw(texts),
                    id=draw(ids),
                    revision=draw(st.integers(0, 999)),
                    conflict_id=draw(st.sampled_from(["", "abc234"])),
                )
                for _ in range(draw(st.integers(0, most)))
            ),
        )
        for title in titles
    ]
    return MarkdownPage(
        title=draw(texts),
        sections=tuple(sections),
        write_number=draw(st.integers(1, 99)),
        has_end_mark=draw(st.booleans()),
        front_matter=draw(st.sampled_from(["", "---\ntags: [a]\nb: |\n  ## no\n---"])),
    )


@given(page=pages(MarkdownLayout.LIST))
def test_any_list_is_read_back_as_it_was_written(page: MarkdownPage) -> None:
    body = render_page(
        page, MarkdownLayout.LIST, hint="edit freely\nor not", conflict_note="keep one"
    )

    assert parse_page(body, MarkdownLayout.LIST) == page


@given(page=pages(MarkdownLayout.BOOK))
def test_any_book_is_read_back_as_it_was_written(page: MarkdownPage) -> None:
    body = render_page(page, MarkdownLayout.BOOK, hint="edit freely", conflict_note="keep one")

    assert parse_page(body, MarkdownLayout.BOOK) == page


@given(page=pages(MarkdownLayout.LIST))
def test_an_editor_that_trims_lines_and_writes_windows_ends_changes_nothing(
    page: MarkdownPage,
) -> None:
    body = render_page(page, MarkdownLayout.LIST)
    trimmed = "\r\n".join(line.rstrip() for line in body.split("\n"))

    again = parse_page(trimmed, MarkdownLayout.LIST)

    assert again.sections == page.sections


@given(
    body=st.text(max_size=300).map(lambda body: body.replace("\0", "")),
    layout=st.sampled_from(MarkdownLayout),
)
def test_whatever_a_file_holds_is_some_page(body: str, layout: MarkdownLayout) -> None:
    page = parse_page(body, layout)

    assert parse_page(render_page(page, layout), layout).visible_content == page.visible_content


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        ("- one\n- two\n", ["one", "two"]),
        ("* one\n+ two", ["one", "two"]),
        ("a paragraph\nof two lines\n\nand another", ["a paragraph\nof two lines", "and another"]),
        ("- one\n  - deeper\n  more\n- two", ["one\n- deeper\nmore", "two"]),
        ("- one\n\n  after a gap\n", ["one\n\nafter a gap"]),
        ("## Travel\n- one", ["one"]),
        ("---\n- one\n***", ["one"]),
        ("- \n-\n", []),
        ("- a <!-- TODO -->", ["a <!-- TODO -->"]),
    ],
)
def test_a_person_may_write_a_list_as_people_do(typed: str, texts: list[str]) -> None:
    page = parse_page(
        f"# Title\n<!-- shiftboss: 1 -->\n{typed}\n<!-- shiftboss: end -->\n", MarkdownLayout.LIST
    )

    assert [line.text for line in page.lines] == texts
    assert not any(line.id for line in page.lines)


@pytest.mark.parametrize(
    "typed",
    [
        "- tea <!-- m:ab23 r4 --> and more",
        "- tea\n  and <!-- m:ab23 r4 --> more",
        "-   tea and more<!--m:ab23 r4-->",
        "tea and more <!-- m:ab23 r4 -->",
    ],
)
def test_a_mark_counts_wherever_it_ends_up(typed: str) -> None:
    (line,) = parse_page(typed, MarkdownLayout.LIST).lines

    assert (line.id, line.revision) == ("ab23", 4)
    assert line.text.split() == ["tea", "and", "more"]
