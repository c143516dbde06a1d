"""Ids people can read, type and say, from an injected source of randomness."""

from __future__ import annotations

import secrets
from collections.abc import Callable

# Without 0 and o, 1, l and i, which look alike.
ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"

TASK_LENGTH = 6
TOKEN_LENGTH = 12
CODE_LENGTH = 8


class Ids:
    """`below(n)` returns a number from 0 to n - 1, all equally likely."""

    def __init__(self, below: Callable[[int], int] = secrets.randbelow) -> None:
        self._below = below

    def __call__(self, length: int) -> str:
        return "".join(ALPHABET[self._below(len(ALPHABET))] for _ in range(length))

    def task(self) -> str:
        """Short, for what people type; unique once the store has taken it."""
        return self(TASK_LENGTH)

    def token(self) -> str:
        """Long enough that nobody guesses one and no two are ever alike."""
        return self(TOKEN_LENGTH)

    def code(self) -> str:
        """For pairing: upper case, so that it reads as a code."""
        return self(CODE_LENGTH).upper()
