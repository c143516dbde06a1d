from __future__ import annotations

import random

from storage.ids import ALPHABET, Ids


def test_ids_hold_nothing_that_looks_like_something_else() -> None:
    assert not set("0o1li") & set(ALPHABET)
    assert len(set(ALPHABET)) == len(ALPHABET) == 31


def test_every_kind_of_id_has_its_length_and_case() -> None:
    ids = Ids(random.Random(1).randrange)

    assert [len(ids.task()), len(ids.token()), len(ids.code()), len(ids(3))] == [6, 12, 8, 3]
    assert ids.code().isupper()
    assert set(ids.token()) <= set(ALPHABET)


def test_the_source_of_randomness_decides_alone() -> None:
    assert Ids(lambda _: 0).task() == "222222"
    assert Ids(random.Random(3).randrange).token() == Ids(random.Random(3).randrange).token()


def test_without_a_source_ids_differ() -> None:
    ids = Ids()

    assert len({ids.token() for _ in range(200)}) == 200
