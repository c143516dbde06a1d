from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from storage.memory.markdown.began import Began, digest
from storage.memory.markdown.merge import Edit, Merge, Written, adopted, merge
from storage.memory.markdown.page import Layout, Line, Page, Section


def page(*lines: tuple[str, str] | str, complete: bool = True, number: int = 1) -> Page:
    made = [
        Line(text=each) if isinstance(each, str) else Line(id=each[0], text=each[1], revision=1)
        for each in lines
    ]
    section = Section(title="Facts", lines=tuple(made))
    return Page(title="Memory", sections=(section,), number=number, complete=complete)


def stored(page: Page) -> dict[str, Line]:
    return {line.id: line for line in page.lines}


def began(page: Page) -> Began:
    found = Began.at(page, titled=True)
    assert Began.read(found.written()) == found
    return found


BASE = page(("aa", "tea"), ("bb", "cats"))


def test_nothing_changed_is_nothing_to_do() -> None:
    assert merge(began(BASE), BASE, stored(BASE)) == Merge()


def test_a_changed_line_is_an_edit_of_what_was_shown() -> None:
    disk = page(("aa", "coffee"), ("bb", "cats"))

    assert merge(began(BASE), disk, stored(BASE)).edits == (
        Edit(id="aa", text="coffee", before=digest("tea")),
    )


def test_a_new_line_is_new_under_its_heading() -> None:
    disk = page(("aa", "tea"), "dogs", ("bb", "cats"))

    assert merge(began(BASE), disk, stored(BASE)).added == (Written(text="dogs", section="Facts"),)


def test_a_removed_line_is_removed() -> None:
    found = merge(began(BASE), page(("bb", "cats")), stored(BASE))

    assert found == Merge(removed=("aa",))


def test_a_line_of_which_only_the_mark_is_left_is_removed() -> None:
    assert merge(began(BASE), page(("aa", " "), ("bb", "cats")), stored(BASE)).removed == ("aa",)


def test_what_the_store_has_added_since_is_not_missed() -> None:
    now = stored(page(("aa", "tea"), ("bb", "cats"), ("cc", "new")))

    assert merge(began(BASE), page(("bb", "cats")), now) == Merge(removed=("aa",))


def test_what_both_have_changed_is_a_clash_and_what_both_made_the_same_is_none() -> None:
    disk = page(("aa", "coffee"), ("bb", "dogs"))
    now = stored(page(("aa", "milk"), ("bb", "dogs")))

    found = merge(began(BASE), disk, now)

    assert found == Merge(clashes=(Edit(id="aa", text="coffee", before=digest("tea")),))


def test_what_only_the_store_has_changed_is_no_edit() -> None:
    now = stored(page(("aa", "milk"), ("bb", "cats")))

    assert merge(began(BASE), BASE, now) == Merge()


def test_what_was_changed_in_the_store_is_not_removed_by_who_has_not_seen_it() -> None:
    now = stored(page(("aa", "milk"), ("bb", "cats")))

    assert merge(began(BASE), page(("bb", "cats")), now) == Merge(kept=("aa",))


def test_what_was_forgotten_does_not_come_back_with_an_old_copy_of_the_file() -> None:
    now = stored(page(("bb", "cats")))

    assert merge(began(BASE), BASE, now) == Merge()


def test_what_somebody_wrote_over_a_forgotten_line_is_theirs() -> None:
    disk = page(("aa", "coffee"), ("bb", "cats"))

    found = merge(began(BASE), disk, stored(page(("bb", "cats"))))

    assert found == Merge(added=(Written(text="coffee", section="Facts", id="aa"),))


def test_a_line_from_another_file_is_new_here() -> None:
    disk = page(("aa", "tea"), ("bb", "cats"), ("zz", "from elsewhere"))

    found = merge(began(BASE), disk, stored(BASE))

    assert found == Merge(added=(Written(text="from elsewhere", section="Facts", id="zz"),))


def test_an_empty_or_torn_file_forgets_nothing() -> None:
    torn = page(("aa", "tea"), complete=False)
    headless = page(("aa", "tea"), number=0)

    for disk in (page(complete=False, number=0), torn, headless):
        found = merge(began(BASE), disk, stored(BASE))
        assert found.removed == ()
        assert "bb" in found.held


def test_without_what_it_began_from_nothing_is_removed_and_other_words_are_a_clash() -> None:
    disk = page(("aa", "coffee"))
    now = stored(BASE)

    assert merge(None, disk, now).edits == (Edit(id="aa", text="coffee", before=digest("tea")),)
    now["aa"] = replace(now["aa"], revision=7)
    assert merge(None, disk, now).clashes == (Edit(id="aa", text="coffee", before=""),)
    assert merge(None, disk, now).removed == ()


def test_most_of_a_file_is_forgotten_only_when_it_is_missing_twice() -> None:
    many = page(*[(f"a{n}", f"fact {n}") for n in range(20)])
    disk = page(("a0", "fact 0"))

    first = merge(began(many), disk, stored(many))
    again = merge(began(many), disk, stored(many), confirmed=frozenset(first.held))

    assert (len(first.held), first.removed) == (19, ())
    assert len(again.removed) == 19


def test_of_a_copied_line_the_changed_one_is_new() -> None:
    for disk in (
        page(("aa", "tea"), ("aa", "green tea"), ("bb", "cats")),
        page(("aa", "green tea"), ("aa", "tea"), ("bb", "cats")),
    ):
        found = merge(began(BASE), disk, stored(BASE))
        assert found == Merge(added=(Written(text="green tea", section="Facts"),))


def test_a_line_that_has_only_lost_its_mark_is_still_the_same() -> None:
    disk = page("tea", ("bb", "cats"))

    assert merge(began(BASE), adopted(began(BASE), disk, Layout.LIST), stored(BASE)) == Merge()


def test_a_chapter_that_has_lost_its_mark_is_known_by_its_heading() -> None:
    disk = page("coffee", ("bb", "cats"))

    found = merge(began(BASE), adopted(began(BASE), disk, Layout.BOOK), stored(BASE))

    assert found == Merge(edits=(Edit(id="aa", text="coffee", before=digest("tea")),))


WORDS = st.sampled_from(["tea", "milk", "rum", "cats", "dogs"])
STATE = st.dictionaries(st.sampled_from(["aa", "bb", "cc", "dd"]), WORDS)


@given(start=STATE, person=STATE, now=STATE, new=st.lists(WORDS, max_size=2))
def test_whatever_both_do_no_words_of_a_person_are_lost(
    start: dict[str, str], person: dict[str, str], now: dict[str, str], new: list[str]
) -> None:
    disk = page(*person.items(), *new)

    found = merge(began(page(*start.items())), disk, stored(page(*now.items())))

    kept = {each.text for each in (*found.edits, *found.clashes)}
    kept |= {each.text for each in found.added}
    for entry_id, text in person.items():
        assert text in kept or start.get(entry_id) == text or now.get(entry_id) == text
    assert {*new} <= kept
    assert not {each.id for each in found.edits} & {each.id for each in found.clashes}
    for entry_id in found.removed:
        assert entry_id not in person
        assert start[entry_id] == now[entry_id]
    for edit in found.edits:
        assert now[edit.id] == start.get(edit.id, now[edit.id])
