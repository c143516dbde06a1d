from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from storage.memory.markdown.page_format import (
    AddedLine,
    EntryLine,
    LineEdit,
    MarkdownLayout,
    MarkdownPage,
    MergeResult,
    PageDigest,
    PageSection,
    merge_page,
    restore_marks,
    text_digest,
)


def page(*lines: tuple[str, str] | str, complete: bool = True, number: int = 1) -> MarkdownPage:
    made = [
        EntryLine(text=each)
        if isinstance(each, str)
        else EntryLine(id=each[0], text=each[1], revision=1)
        for each in lines
    ]
    section = PageSection(title="Facts", lines=tuple(made))
    return MarkdownPage(
        title="Memory", sections=(section,), write_number=number, has_end_mark=complete
    )


def stored(page: MarkdownPage) -> dict[str, EntryLine]:
    return {line.id: line for line in page.lines}


def began(page: MarkdownPage) -> PageDigest:
    found = PageDigest.of_page(page, with_titles=True)
    assert PageDigest.from_json(found.to_json()) == found
    return found


BASE = page(("aa", "tea"), ("bb", "cats"))


def test_nothing_changed_is_nothing_to_do() -> None:
    assert merge_page(began(BASE), BASE, stored(BASE)) == MergeResult()


def test_a_changed_line_is_an_edit_of_what_was_shown() -> None:
    disk = page(("aa", "coffee"), ("bb", "cats"))

    assert merge_page(began(BASE), disk, stored(BASE)).edits == (
        LineEdit(id="aa", text="coffee", before=text_digest("tea")),
    )


def test_a_new_line_is_new_under_its_heading() -> None:
    disk = page(("aa", "tea"), "dogs", ("bb", "cats"))

    assert merge_page(began(BASE), disk, stored(BASE)).added == (
        AddedLine(text="dogs", section="Facts"),
    )


def test_a_removed_line_is_removed() -> None:
    found = merge_page(began(BASE), page(("bb", "cats")), stored(BASE))

    assert found == MergeResult(removed=("aa",))


def test_a_line_of_which_only_the_mark_is_left_is_removed() -> None:
    assert merge_page(began(BASE), page(("aa", " "), ("bb", "cats")), stored(BASE)).removed == (
        "aa",
    )


def test_what_the_store_has_added_since_is_not_missed() -> None:
    now = stored(page(("aa", "tea"), ("bb", "cats"), ("cc", "new")))

    assert merge_page(began(BASE), page(("bb", "cats")), now) == MergeResult(removed=("aa",))


def test_what_both_have_changed_is_a_clash_and_what_both_made_the_same_is_none() -> None:
    disk = page(("aa", "coffee"), ("bb", "dogs"))
    now = stored(page(("aa", "milk"), ("bb", "dogs")))

    found = merge_page(began(BASE), disk, now)

    assert found == MergeResult(
        conflicts=(LineEdit(id="aa", text="coffee", before=text_digest("tea")),)
    )


def test_what_only_the_store_has_changed_is_no_edit() -> None:
    now = stored(page(("aa", "milk"), ("bb", "cats")))

    assert merge_page(began(BASE), BASE, now) == MergeResult()


def test_what_was_changed_in_the_store_is_not_removed_by_who_has_not_seen_it() -> None:
    now = stored(page(("aa", "milk"), ("bb", "cats")))

    assert merge_page(began(BASE), page(("bb", "cats")), now) == MergeResult(
        changed_in_store=("aa",)
    )


def test_what_was_forgotten_does_not_come_back_with_an_old_copy_of_the_file() -> None:
    now = stored(page(("bb", "cats")))

    assert merge_page(began(BASE), BASE, now) == MergeResult()


def test_what_somebody_wrote_over_a_forgotten_line_is_theirs() -> None:
    disk = page(("aa", "coffee"), ("bb", "cats"))

    found = merge_page(began(BASE), disk, stored(page(("bb", "cats"))))

    assert found == MergeResult(added=(AddedLine(text="coffee", section="Facts", id="aa"),))


def test_a_line_from_another_file_is_new_here() -> None:
    disk = page(("aa", "tea"), ("bb", "cats"), ("zz", "from elsewhere"))

    found = merge_page(began(BASE), disk, stored(BASE))

    assert found == MergeResult(added=(AddedLine(text="from elsewhere", section="Facts", id="zz"),))


def test_an_empty_or_torn_file_forgets_nothing() -> None:
    torn = page(("aa", "tea"), complete=False)
    headless = page(("aa", "tea"), number=0)

    for disk in (page(complete=False, number=0), torn, headless):
        found = merge_page(began(BASE), disk, stored(BASE))
        assert found.removed == ()
        assert "bb" in found.unconfirmed


def test_without_what_it_began_from_nothing_is_removed_and_other_words_are_a_clash() -> None:
    disk = page(("aa", "coffee"))
    now = stored(BASE)

    assert merge_page(None, disk, now).edits == (
        LineEdit(id="aa", text="coffee", before=text_digest("tea")),
    )
    now["aa"] = replace(now["aa"], revision=7)
    assert merge_page(None, disk, now).conflicts == (LineEdit(id="aa", text="coffee", before=""),)
    assert merge_page(None, disk, now).removed == ()


def test_most_of_a_file_is_forgotten_only_when_it_is_missing_twice() -> None:
    many = page(*[(f"a{n}", f"fact {n}") for n in range(20)])
    disk = page(("a0", "fact 0"))

    first = merge_page(began(many), disk, stored(many))
    again = merge_page(began(many), disk, stored(many), confirmed=frozenset(first.unconfirmed))

    assert (len(first.unconfirmed), first.removed) == (19, ())
    assert len(again.removed) == 19


def test_of_a_copied_line_the_changed_one_is_new() -> None:
    for disk in (
        page(("aa", "tea"), ("aa", "green tea"), ("bb", "cats")),
        page(("aa", "green tea"), ("aa", "tea"), ("bb", "cats")),
    ):
        found = merge_page(began(BASE), disk, stored(BASE))
        assert found == MergeResult(added=(AddedLine(text="green tea", section="Facts"),))


def test_a_line_that_has_only_lost_its_mark_is_still_the_same() -> None:
    disk = page("tea", ("bb", "cats"))

    assert (
        merge_page(began(BASE), restore_marks(began(BASE), disk, MarkdownLayout.LIST), stored(BASE))
        == MergeResult()
    )


def test_a_chapter_that_has_lost_its_mark_is_known_by_its_heading() -> None:
    disk = page("coffee", ("bb", "cats"))

    found = merge_page(
        began(BASE), restore_marks(began(BASE), disk, MarkdownLayout.BOOK), stored(BASE)
    )

    assert found == MergeResult(
        edits=(LineEdit(id="aa", text="coffee", before=text_digest("tea")),)
    )


WORDS = st.sampled_from(["tea", "milk", "rum", "cats", "dogs"])
STATE = st.dictionaries(st.sampled_from(["aa", "bb", "cc", "dd"]), WORDS)


@given(start=STATE, person=STATE, now=STATE, new=st.lists(WORDS, max_size=2))
def test_whatever_both_do_no_words_of_a_person_are_lost(
    start: dict[str, str], person: dict[str, str], now: dict[str, str], new: list[str]
) -> None:
    disk = page(*person.items(), *new)

    found = merge_page(began(page(*start.items())), disk, stored(page(*now.items())))

    kept = {each.text for each in (*found.edits, *found.conflicts)}
    kept |= {each.text for each in found.added}
    for entry_id, text in person.items():
        assert text in kept or start.get(entry_id) == text or now.get(entry_id) == text
    assert {*new} <= kept
    assert not {each.id for each in found.edits} & {each.id for each in found.conflicts}
    for entry_id in found.removed:
        assert entry_id not in person
        assert start[entry_id] == now[entry_id]
    for edit in found.edits:
        assert now[edit.id] == start.get(edit.id, now[edit.id])
