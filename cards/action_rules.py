"""What all actions of buttons have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from storage.records.people import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRules:
    """Rules common to all: `single_use` tokens settle at the first press; `needs` is the least
    role that may press; `command` is what to type where there are no buttons."""

    single_use: ClassVar[bool] = True
    needs: ClassVar[Role] = Role.MEMBER

    @property
    def command(self) -> str:
        return ""
