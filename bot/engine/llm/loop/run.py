"""What the runs of all backends have in common; see `base.Run`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator

from bot.engine.llm.base import RunResult, Usage
from bot.engine.llm.events import AgentEvent


class OneRun(ABC):
    """Its events can be had once, and its result after them."""

    def __init__(self) -> None:
        self._result: RunResult | None = None
        self._events = self._go()

    @abstractmethod
    def _go(self) -> AsyncGenerator[AgentEvent, None]:
        """Do all of it, and leave the result in `_result`. Raises BackendError."""

    @property
    @abstractmethod
    def spent(self) -> Usage: ...

    @property
    def events(self) -> AsyncIterator[AgentEvent]:
        return self._events

    @property
    def result(self) -> RunResult:
        if self._result is None:
            raise RuntimeError("the run has not ended: iterate its events first")
        return self._result

    async def aclose(self) -> None:
        await self._events.aclose()
