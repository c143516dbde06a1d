"""Defines the bases of all actions of buttons and forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from storage.records.people import PersonRole


@dataclass(frozen=True, slots=True, kw_only=True)
class CardAction:
    """Base of all actions.

    `single_use` tokens are used up by the first press; `required_role` is the least role that may
    press; `typed` is the command to type where there are no buttons, with fields of the action.
    """

    single_use: ClassVar[bool] = True
    required_role: ClassVar[PersonRole] = PersonRole.MEMBER
    typed: ClassVar[str] = ""

    @property
    def command(self) -> str:
        return self.typed.format(self=self).rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReusableAction(CardAction):
    """Base of the actions whose button may be pressed any number of times."""

    single_use: ClassVar[bool] = False
