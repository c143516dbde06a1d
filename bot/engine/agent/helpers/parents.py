"""What helpers need to know of whoever sent them off, and how their results get there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from bot.engine.agent.team import Choice
from storage.db import Transaction
from storage.records.helpers import Helper
from storage.records.people import Language


class Parents(Protocol):
    """A task or a chat. Parents that are helpers themselves take the reports of theirs."""

    async def workspace(self, helper: Helper) -> Path:
        """Where the parent works, and its helper too."""
        ...

    async def choices(self, helper: Helper) -> Sequence[Choice]:
        """What people chose for the parent: backend and model."""
        ...

    async def language(self, helper: Helper) -> Language: ...

    async def wants(self, helper: Helper) -> bool:
        """False once the parent has ended for good: nobody waits for the result."""
        ...

    async def hold(self, tx: Transaction, helper: Helper) -> None:
        """To be called first in a transaction that delivers."""
        ...

    async def deliver(self, tx: Transaction, helper: Helper) -> Callable[[], None]:
        """Hand over what the helper, that has ended in this transaction, has to report, with
        whatever follows for the parent. The answer is to be called after the commit."""
        ...

    async def catch_up(self) -> bool:
        """Hand over what could not be handed over when it was ready. True if some of it still
        cannot be."""
        ...
