"""What can be wrong with an expression."""

from __future__ import annotations


class ExpressionError(ValueError):
    """It has no value."""


class BadExpression(ExpressionError):
    """It is not part of the language, or cannot be worked out."""


class UnknownName(ExpressionError):
    """It speaks of something that nobody knows here."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"nobody knows {name!r}")
