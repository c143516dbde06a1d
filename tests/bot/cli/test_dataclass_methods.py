"""Dataclasses with shared methods behave like those of the standard library."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, field, replace
from typing import Any

import pytest

import cards.model
from bot.cli import dataclass_methods

OURS = cards.model.__name__
"""Methods are shared by classes of our modules only."""

pytestmark = pytest.mark.parametrize(
    "dataclass",
    [dataclasses.dataclass, dataclass_methods.dataclass],
    ids=["standard", "shared"],
)


def make_point(dataclass: Any) -> Any:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Point:
        __module__ = OURS

        x: int
        token: str = field(default="", repr=False)
        note: str = field(default="", compare=False)

    return Point


def test_equality_and_hash_leave_out_what_is_not_compared(dataclass: Any) -> None:
    point = make_point(dataclass)

    assert point(x=1, note="a") == point(x=1, note="b")
    assert hash(point(x=1, note="a")) == hash(point(x=1, note="b"))
    assert point(x=1) != point(x=2)
    assert point(x=1) != (1, "", "")
    assert {point(x=1), point(x=1), replace(point(x=2), x=1)} == {point(x=1)}


def test_secrets_are_not_in_the_representation(dataclass: Any) -> None:
    shown = repr(make_point(dataclass)(x=1, token="secret"))

    assert shown == "make_point.<locals>.Point(x=1, note='')"


def test_a_representation_of_itself_ends(dataclass: Any) -> None:
    @dataclass
    class Ring:
        __module__ = OURS
        next: Any = None

    ring = Ring()
    ring.next = ring

    assert repr(ring).endswith("Ring(next=...)")


def test_fields_of_frozen_ones_cannot_change(dataclass: Any) -> None:
    point = make_point(dataclass)(x=1)

    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x


def test_others_can_change_and_have_no_hash(dataclass: Any) -> None:
    @dataclass(slots=True)
    class Counter:
        __module__ = OURS
        count: int = 0

    counter = Counter()
    counter.count += 1

    assert counter == Counter(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_a_class_keeps_its_own_methods_and_options(dataclass: Any) -> None:
    @dataclass(frozen=True)
    class Secret:
        __module__ = OURS
        value: str

        def __repr__(self) -> str:
            return "Secret"

    @dataclass(frozen=True, order=True)
    class Version:
        __module__ = OURS
        number: int

    @dataclass(eq=False)
    class Service:
        __module__ = OURS

    assert repr(Secret("a")) == "Secret"
    assert Secret("a") == Secret("a")
    versions: list[Any] = [Version(2), Version(1)]
    assert min(versions) == Version(1)
    assert Service() != Service()


def test_a_class_without_fields_equals_its_kind_only(dataclass: Any) -> None:
    @dataclass(frozen=True)
    class Nothing:
        __module__ = OURS

    class Other(Nothing):
        pass

    assert Nothing() == Nothing()
    assert Nothing() != Other()
