"""Loads the program's modules cheaply: they are most of what a start costs."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, ClassVar

_STANDARD = dataclasses.dataclass
_CLASSES_PER_COLLECTION = 40
_M_ARENA_MAX = -8
"""As in glibc's malloc.h."""
_COMPILE_REFUSALS = "_frozen_get_del_attr"
_SHARED = ("__eq__", "__hash__", "__repr__", "__setattr__", "__delattr__")


@contextmanager
def loading_modules() -> Iterator[None]:
    """Modules loaded inside take no part in garbage collection, then or later: a tenth of a start.
    Only what the dataclasses themselves leave is collected: with slots, each class is made twice.
    Frozen dataclasses share methods that the standard library compiles anew for each of some 700,
    which takes another fifth and 4 MiB. httpx's own command line, which would load rich and
    pygments (3 MiB), is left out."""
    _share_arena()
    gc.disable()
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None is "not there"
    dataclasses.dataclass = _dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = _STANDARD
        _collect_new()
        gc.enable()


def _share_arena() -> None:
    """By default, glibc gives each thread a heap of its own: 1 MiB at rest, 3 with a model."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


_made = count(1)


def _collect_new() -> None:
    """Collect what is unreachable of the newest objects, and exempt the others."""
    gc.collect(0)
    gc.freeze()


class _Frozen:
    __dataclass_fields__: ClassVar[Mapping[str, dataclasses.Field[Any]]]

    def __setattr__(self, name: str, value: object) -> None:
        _refuse(self, name, "assign to")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _refuse(self, name, "delete")
        object.__delattr__(self, name)


def _refuse(frozen: _Frozen, name: str, action: str) -> None:
    """A subclass that is no dataclass itself may have attributes of its own."""
    if "__dataclass_fields__" in vars(type(frozen)) or name in frozen.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot {action} field {name!r}")


def _dataclass(cls: type | None = None, /, **options: Any) -> Any:
    """`dataclasses.dataclass`; a frozen class without methods of its own gets shared ones."""
    if cls is None:
        return partial(_dataclass, **options)
    unusual = options.keys() & {"eq", "order", "repr", "unsafe_hash"}
    if not options.get("frozen") or unusual or any(name in vars(cls) for name in _SHARED):
        return _STANDARD(cls, **options)
    if next(_made) % _CLASSES_PER_COLLECTION == 0:
        _collect_new()
    # The standard docstring, the signature, costs as much as `__init__`.
    cls.__doc__ = cls.__doc__ or cls.__name__
    with _without_refusals():
        made: Any = _STANDARD(cls, **options, eq=False, repr=False)
    made.__setattr__ = _Frozen.__setattr__
    made.__delattr__ = _Frozen.__delattr__
    fields = dataclasses.fields(made)
    made.__repr__ = _repr([each.name for each in fields if each.repr])
    made.__eq__ = _eq(_values([each.name for each in fields if each.compare]))
    hashed = [each for each in fields if (each.compare if each.hash is None else each.hash)]
    made.__hash__ = _hash(_values([each.name for each in hashed]))
    return made


@contextmanager
def _without_refusals() -> Iterator[None]:
    """The standard library has no public way to make a frozen class without the two methods that
    refuse changes. A version with another name for what compiles them only compiles in vain."""
    compile_refusals = vars(dataclasses).get(_COMPILE_REFUSALS)
    setattr(dataclasses, _COMPILE_REFUSALS, lambda *_: ())
    try:
        yield
    finally:
        setattr(dataclasses, _COMPILE_REFUSALS, compile_refusals)


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """Reads these attributes as a tuple: those of a tuple are compared by identity first."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda fact: tuple(getattr(fact, name) for name in names)


def _repr(names: list[str]) -> Callable[[object], str]:
    @recursive_repr()
    def represent(self: object) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({values})"

    return represent


def _eq(values: Callable[[object], tuple[Any, ...]]) -> Callable[[object, object], bool]:
    def is_equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return is_equal


def _hash(values: Callable[[object], tuple[Any, ...]]) -> Callable[[object], int]:
    return lambda self: hash(values(self))
