from __future__ import annotations

import random

from storage.ids import ID_ALPHABET, IdGenerator


def test_ids_hold_nothing_that_looks_like_something_else() -> None:
    assert not set("0o1li") & set(ID_ALPHABET)
    assert len(set(ID_ALPHABET)) == len(ID_ALPHABET) == 31


def test_every_kind_of_id_has_its_length_and_case() -> None:
    ids = IdGenerator(random.Random(1).randrange)

    assert [len(ids.short_id()), len(ids.token()), len(ids.pairing_code()), len(ids(3))] == [
        6,
        12,
        8,
        3,
    ]
    assert ids.pairing_code().isupper()
    assert set(ids.token()) <= set(ID_ALPHABET)


def test_the_source_of_randomness_decides_alone() -> None:
    assert IdGenerator(lambda _: 0).short_id() == "222222"
    assert (
        IdGenerator(random.Random(3).randrange).token()
        == IdGenerator(random.Random(3).randrange).token()
    )


def test_without_a_source_ids_differ() -> None:
    ids = IdGenerator()

    assert len({ids.token() for _ in range(200)}) == 200
