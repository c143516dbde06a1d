"""Dataclasses that are made while the program loads are like the standard library's."""

from __future__ import annotations

import dataclasses
import gc
import pickle
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from bot.app.loading import loading_modules

_MODULE = '''
from __future__ import annotations
from dataclasses import dataclass, field

@dataclass(frozen=True, slots=True, kw_only=True)
class Chair:
    """A seat."""
    legs: int
    color: str = "red"
    notes: list[str] = field(default_factory=list, compare=False, repr=False)

@dataclass(frozen=True)
class Stool:
    legs: float
    mark: object = field(default=None, hash=False)

class Throne(Stool):
    pass

@dataclass(frozen=True)
class Nothing: ...

@dataclass(frozen=True, slots=True)
class One:
    value: object

@dataclass(frozen=True, slots=True)
class Padded(One):
    more: int = 0

@dataclass(frozen=True)
class Named:
    name: str
    def __eq__(self, other): return True
    def __hash__(self): return 7
    def __repr__(self): return "me"

@dataclass(frozen=True, order=True)
class Size:
    value: int

@dataclass
class Open:
    value: int
'''


@pytest.fixture(params=["standard", "loading"])
def furniture(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A module of dataclasses, made in both ways."""
    module = type(sys)("furniture")
    sys.modules["furniture"] = module
    with loading_modules() if request.param == "loading" else nullcontext():
        exec(_MODULE, vars(module))
    yield module
    del sys.modules["furniture"]


def test_facts_with_equal_values_are_equal_and_hash_alike(furniture: Any) -> None:
    chair, again = furniture.Chair(legs=4), furniture.Chair(legs=4, notes=["old"])
    nan = float("nan")

    assert chair == again
    assert hash(chair) == hash(again)
    assert chair != furniture.Chair(legs=3)
    assert furniture.Stool(4) != chair
    assert furniture.Stool(4) != furniture.Throne(4)
    assert hash(furniture.Stool(4, [])) == hash(furniture.Stool(4))
    assert furniture.One(nan) == furniture.One(nan)
    assert furniture.One(1) != furniture.Padded(1)
    assert furniture.Nothing() == furniture.Nothing()
    assert hash(furniture.Nothing()) == hash(furniture.Nothing())
    with pytest.raises(TypeError, match="unhashable"):
        hash(furniture.One([]))


def test_a_fact_shows_its_fields(furniture: Any) -> None:
    loop = furniture.One([])
    loop.value.append(loop)

    assert repr(furniture.Chair(legs=4)) == "Chair(legs=4, color='red')"
    assert repr(furniture.Nothing()) == "Nothing()"
    assert repr(furniture.Throne(4)) == "Throne(legs=4, mark=None)"
    assert repr(furniture.Padded(1)) == "Padded(value=1, more=0)"
    assert repr(loop) == "One(value=[...])"


def test_a_fact_cannot_be_changed_but_copied(furniture: Any) -> None:
    stool, throne = furniture.Stool(4), furniture.Throne(4)

    for fact in (stool, throne, furniture.Chair(legs=4)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="assign to field 'legs'"):
            fact.legs = 3
        with pytest.raises(dataclasses.FrozenInstanceError, match="delete field 'legs'"):
            del fact.legs
    with pytest.raises(dataclasses.FrozenInstanceError):
        stool.king = "Arthur"
    throne.king = "Arthur"
    del throne.king
    assert dataclasses.replace(stool, legs=3) == furniture.Stool(3)
    assert dataclasses.asdict(furniture.One(1)) == {"value": 1}
    assert pickle.loads(pickle.dumps(furniture.Chair(legs=4))) == furniture.Chair(legs=4)


def test_classes_with_ways_of_their_own_keep_them(furniture: Any) -> None:
    open_one = furniture.Open(1)
    open_one.value = 2

    assert furniture.Named("a") == furniture.Named("b")
    assert (hash(furniture.Named("a")), repr(furniture.Named("a"))) == (7, "me")
    assert furniture.Size(1) < furniture.Size(2)
    assert open_one == furniture.Open(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(open_one)
    assert furniture.Chair.__doc__ == "A seat."


def test_frozen_classes_share_methods_until_all_is_loaded() -> None:
    standard = dict(vars(dataclasses))

    with loading_modules():
        chair: type = dataclasses.dataclass(frozen=True)(type("Chair", (), {}))
        stool: type = dataclasses.dataclass(frozen=True)(type("Stool", (), {}))
        assert not gc.isenabled()

    assert chair.__setattr__ is stool.__setattr__
    assert chair.__delattr__ is stool.__delattr__
    assert vars(dataclasses) == standard
    assert gc.isenabled()
