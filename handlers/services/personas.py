"""What a chat needs to say who does its work."""

from __future__ import annotations

from typing import Protocol

from storage.records.personas import Roster


class Personas(Protocol):
    async def roster(self) -> Roster:
        """Everybody there is now, the default first, and the files that are not used."""
        ...
