"""Exceptions that people are told about, with the text that says what to do next."""

from __future__ import annotations


class UserError(Exception):
    """A refusal the person can act on, with the catalogue texts `error.<key>.title` (the problem)
    and `error.<key>.hint` (the next step)."""

    def __init__(self, key: str, **facts: object) -> None:
        self.key = key
        self.facts = facts
        super().__init__(key)


class UsageError(UserError):
    """A command lacks an argument."""

    def __init__(self, command: str) -> None:
        super().__init__("usage", command=command)


class BackendFailure(Exception):
    """A model or CLI failed. `hint` is a catalogue key for the fix, with `facts`."""

    def __init__(self, hint: str, **facts: object) -> None:
        self.hint = hint
        self.facts = facts
        super().__init__(hint)


class ActionForbidden(Exception):
    """This person may not do that."""
