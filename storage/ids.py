"""Generates ids that people can read and type, and tokens, from an injected random source."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from storage.errors import AmbiguousId, NotFound

# Without 0, o, 1, l and i, which look alike.
ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"

SHORT_ID_LENGTH = 6
TOKEN_LENGTH = 12
PAIRING_CODE_LENGTH = 8
MAX_CANDIDATES = 5
_LONGEST_PREFIX = 64


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


_Record = TypeVar("_Record", bound=_Identified)


class IdGenerator:
    """`below(n)` must return a uniformly distributed number from 0 to n - 1."""

    def __init__(self, random_below: Callable[[int], int] = secrets.randbelow) -> None:
        self._random_below = random_below

    def __call__(self, length: int) -> str:
        return "".join(ID_ALPHABET[self._random_below(len(ID_ALPHABET))] for _ in range(length))

    def short_id(self) -> str:
        """A short id for people to type; the database enforces uniqueness."""
        return self(SHORT_ID_LENGTH)

    def token(self) -> str:
        """An unguessable token, unique in practice."""
        return self(TOKEN_LENGTH)

    def pairing_code(self) -> str:
        """A pairing code in upper case."""
        return self(PAIRING_CODE_LENGTH).upper()


def normalize_code(typed: str) -> str:
    """A code of `pairing_code` as a person typed it: case, spaces and dashes do not count."""
    return "".join(char for char in typed.upper() if char.isalnum())


def parse_id_prefix(noun: str, prefix: str) -> str:
    """An id or the beginning of one as a person typed it. Raises NotFound if it cannot be one."""
    wanted = prefix.strip().lower()
    if not wanted.isalnum() or len(wanted) > _LONGEST_PREFIX:
        raise NotFound(noun, prefix)
    return wanted


def single_match(found: Sequence[_Record], wanted: str, noun: str, prefix: str) -> _Record:
    """The record with the id `wanted`, or the only one whose id begins with it. `prefix` is what
    the person typed. Raises NotFound and AmbiguousId."""
    matches = [each for each in found if each.id == wanted] or found
    if not matches:
        raise NotFound(noun, prefix)
    if len(matches) > 1:
        raise AmbiguousId(prefix, tuple(each.id for each in matches[:MAX_CANDIDATES]))
    return matches[0]
