"""The three-way merge of a row: its laws, for all values on all three sides."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.sync.merge import CellMerge, RowMerge, merge_row
from storage.records.bitable import SyncedValue

KEYS = ("title", "status", "cost", "result")
ORDERABLE = frozenset(("title", "status"))
CELLS = st.fixed_dictionaries({key: st.sampled_from((None, "a", "b", "c")) for key in KEYS})
LATER = st.sets(st.sampled_from(KEYS))

Cells = Mapping[str, SyncedValue]


def merged(base: Cells, local: Cells, remote: Cells, later: set[str]) -> RowMerge:
    return merge_row(base, local, remote, orderable=ORDERABLE, waiting=(), later=later)


def applied(
    local: Cells, remote: Cells, merge: RowMerge, obeyed: bool
) -> tuple[Cells, Cells, Cells]:
    """Both sides and their agreement after the pushes, and the orders, if they are `obeyed`."""
    new_remote = {**remote, **merge.push}
    new_local = {**local, **(merge.orders if obeyed else {})}
    return new_local, new_remote, {key: new_remote[key] for key in KEYS}


@settings(max_examples=60, deadline=None)
@given(base=CELLS, local=CELLS, remote=CELLS, later=LATER, obeyed=st.booleans())
def test_two_rounds_make_both_sides_equal_and_the_third_does_nothing(
    base: Cells, local: Cells, remote: Cells, later: set[str], obeyed: bool
) -> None:
    local, remote, base = applied(local, remote, merged(base, local, remote, later), obeyed)
    local, remote, base = applied(local, remote, merged(base, local, remote, later), obeyed)

    assert local == remote
    again = merged(base, local, remote, later)
    assert (again.push, again.orders) == ({}, {})


@settings(max_examples=60, deadline=None)
@given(base=CELLS, local=CELLS, remote=CELLS, later=LATER)
def test_a_column_that_one_side_changed_stands_as_that_side_made_it(
    base: Cells, local: Cells, remote: Cells, later: set[str]
) -> None:
    merge = merged(base, local, remote, later)

    for key in KEYS:
        if remote[key] == base[key] != local[key]:
            assert merge.push[key] == local[key]
        if local[key] == base[key] != remote[key] and key in ORDERABLE:
            assert merge.orders[key] == remote[key]
        if key not in ORDERABLE:
            assert key not in merge.orders


@settings(max_examples=40, deadline=None)
@given(base=CELLS, local=CELLS, remote=CELLS, later=LATER)
def test_each_cell_is_pushed_or_ordered_or_neither_but_never_both(
    base: Cells, local: Cells, remote: Cells, later: set[str]
) -> None:
    merge = merged(base, local, remote, later)

    assert not merge.push.keys() & merge.orders.keys()
    for key, outcome in merge.outcomes.items():
        assert (key in merge.push) == outcome.is_pushed
        assert (key in merge.orders) == outcome.is_ordered
        assert (outcome is CellMerge.AGREED) == (local[key] == remote[key])


def test_of_two_changes_of_a_column_the_later_one_stands() -> None:
    base, local, remote = {"title": "a"}, {"title": "b"}, {"title": "c"}

    theirs = merged(base, local, remote, {"title"})
    ours = merged(base, local, remote, set())

    assert theirs.outcomes == {"title": CellMerge.THEIRS}
    assert ours.outcomes == {"title": CellMerge.OURS}


def test_a_column_whose_order_is_not_carried_out_stays_as_it_is() -> None:
    merge = merge_row(
        {"title": "a"},
        {"title": "a"},
        {"title": "b"},
        orderable=ORDERABLE,
        waiting={"title": 7},
        later=(),
    )

    assert merge.outcomes == {}
