"""One `__eq__`, `__hash__`, `__repr__` and `__setattr__` for all dataclasses of Shiftboss.

Python makes these from text for each dataclass anew: for the 700 that a start loads, 7 MiB."""

from __future__ import annotations

import dataclasses
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Never

_OUR_PACKAGES = frozenset({"bot", "cards", "handlers", "storage"})
_OPTIONS = frozenset({"frozen", "slots", "kw_only"})
"""Others change the meaning of the methods."""

_make_dataclass = dataclasses.dataclass


def share_dataclass_methods() -> None:
    """In our modules that are imported from now on, for as long as the process lives."""
    dataclasses.dataclass = dataclass


def dataclass(cls: type | None = None, /, **options: Any) -> Any:
    """`dataclasses.dataclass`, with the same results."""

    def decorate(found: type) -> Any:
        is_ours = found.__module__.partition(".")[0] in _OUR_PACKAGES
        if not is_ours or options.keys() - _OPTIONS or _FROZEN.keys() & vars(found).keys():
            return _make_dataclass(**options)(found)
        made: Any = _make_dataclass(**options, eq=False, repr=False)(found)
        for name, method in (_FROZEN if options.get("frozen") else _MUTABLE).items():
            setattr(made, name, method)
        return made

    return decorate if cls is None else decorate(cls)


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name in _shown(self.__class__))
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    kind: Any = self.__class__
    if other.__class__ is not kind:
        return NotImplemented
    compared = _compared(kind)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(_compared(self.__class__)(self))


def _refuse_value(_self: Any, name: str, _value: object) -> Never:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(_self: Any, name: str) -> Never:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


_MUTABLE = {"__repr__": _repr, "__eq__": _eq, "__hash__": None}
_FROZEN = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse_value,
    "__delattr__": _refuse_deletion,
}


@cache
def _shown(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.repr)


@cache
def _compared(cls: Any) -> attrgetter[Any]:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    # With the class it is a tuple in any case; of one name it would not be, of none it fails.
    return attrgetter("__class__", *names)
