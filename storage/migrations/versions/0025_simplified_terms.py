"""The index of memories has traditional Chinese characters under their simplified forms, so that a
search finds both. A term is a character or a pair: its postings move to the other form."""

from __future__ import annotations

import sys
from array import array
from collections import Counter

import sqlalchemy as sa
from alembic import op

from storage.search.chinese import simplify_han

revision = "0025"
down_revision = "0024"

_POSTINGS = sa.table(
    "memory_postings",
    sa.column("scope_id", sa.Integer),
    sa.column("block", sa.Integer),
    sa.column("term", sa.String),
    sa.column("data", sa.LargeBinary),
)
_P = _POSTINGS.c
_COUNT_BITS, _MAX_COUNT = 5, 31


def upgrade() -> None:
    connection = op.get_bind()
    keys = connection.execute(sa.select(_P.scope_id, _P.block, _P.term))
    for scope, block, term in [key for key in keys if simplify_han(key.term) != key.term]:
        place = (_P.scope_id == scope) & (_P.block == block)
        old, new = place & (_P.term == term), place & (_P.term == simplify_han(term))
        data = connection.execute(sa.select(_P.data).where(old)).scalar_one()
        known = connection.execute(sa.select(_P.data).where(new)).scalar()
        connection.execute(sa.delete(_POSTINGS).where(old))
        if known is None:
            key = {"scope_id": scope, "block": block, "term": simplify_han(term)}
            connection.execute(sa.insert(_POSTINGS).values(**key, data=bytes(data)))
        else:
            joined = _join(bytes(known), bytes(data))
            connection.execute(sa.update(_POSTINGS).where(new).values(data=joined))


def _join(one: bytes, other: bytes) -> bytes:
    """The postings of both, in order: an entry's offset and how often it has the term."""
    counts: Counter[int] = Counter()
    for data in (one, other):
        for each in _swapped(array("H", data)):
            counts[each >> _COUNT_BITS] += each & _MAX_COUNT
    joined = [at << _COUNT_BITS | min(times, _MAX_COUNT) for at, times in sorted(counts.items())]
    return _swapped(array("H", joined)).tobytes()


def _swapped(packed: array[int]) -> array[int]:
    """Stored with the low byte first."""
    if sys.byteorder == "big":
        packed.byteswap()
    return packed
