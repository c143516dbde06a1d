"""Merges what a row says on both sides with the values on which they last agreed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from storage.records.bitable import SyncedValue


class CellMerge(StrEnum):
    """AGREED: both sides say the same. PUSH: only the store has changed. ORDER: a person has
    changed what people may order. RESTORE: a person has changed what only Shiftboss writes.
    OURS and THEIRS: both have changed it, and the later change stands."""

    AGREED = "agreed"
    PUSH = "push"
    ORDER = "order"
    RESTORE = "restore"
    OURS = "ours"
    THEIRS = "theirs"

    @property
    def is_pushed(self) -> bool:
        """Whether the store's value belongs into the table."""
        return self in {CellMerge.PUSH, CellMerge.RESTORE, CellMerge.OURS}

    @property
    def is_ordered(self) -> bool:
        """Whether the table's value becomes an order of the person who wrote it."""
        return self in {CellMerge.ORDER, CellMerge.THEIRS}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMerge:
    """The outcome for each column that both sides have. `push` are values for the table, `orders`
    values that people ordered, `agreed` is what both sides say by now."""

    outcomes: Mapping[str, CellMerge]
    push: Mapping[str, SyncedValue]
    orders: Mapping[str, SyncedValue]
    agreed: Mapping[str, SyncedValue]

    def keys(self, outcome: CellMerge) -> tuple[str, ...]:
        return tuple(key for key, each in self.outcomes.items() if each is outcome)


def merge_cell(
    base: SyncedValue,
    local: SyncedValue,
    remote: SyncedValue,
    *,
    may_order: bool,
    remote_is_later: bool,
) -> CellMerge:
    """`base` is the value of the last agreement."""
    if local == remote:
        return CellMerge.AGREED
    if remote == base:
        return CellMerge.PUSH
    if not may_order:
        return CellMerge.RESTORE
    if local == base:
        return CellMerge.ORDER
    return CellMerge.THEIRS if remote_is_later else CellMerge.OURS


def merge_row(
    base: Mapping[str, SyncedValue],
    local: Mapping[str, SyncedValue],
    remote: Mapping[str, SyncedValue],
    *,
    orderable: Collection[str],
    waiting: Collection[str],
    later: Collection[str],
) -> RowMerge:
    """Merge each column of `local` by itself, so that changes of different columns both stand. A
    missing value is an empty one. Columns in `waiting`, whose orders are not carried out yet, stay
    as they are. `later` are those that the table changed after the store, if both did."""
    outcomes: dict[str, CellMerge] = {}
    for key, ours in local.items():
        if key in waiting:
            continue
        outcomes[key] = merge_cell(
            base.get(key),
            ours,
            remote.get(key),
            may_order=key in orderable,
            remote_is_later=key in later,
        )
    return RowMerge(
        outcomes=outcomes,
        push={key: local[key] for key, each in outcomes.items() if each.is_pushed},
        orders={key: remote.get(key) for key, each in outcomes.items() if each.is_ordered},
        agreed={key: local[key] for key, each in outcomes.items() if each is CellMerge.AGREED},
    )
