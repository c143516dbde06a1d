"""A choice of backends without a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.backend import BackendError, SelectedBackend


@dataclass(frozen=True)
class OnlyBackend:
    """Selects this one backend, and nothing in its place; satisfies
    `llm.backend_registry.BackendSelector`."""

    backend: Any
    model: str = ""

    def select_backend(
        self,
        model: str,
        backend: str,
        fallbacks: Sequence[str] = (),
        *,
        keeps_history: bool = False,
    ) -> SelectedBackend:
        first = next(iter(self.backend.models), "")
        return SelectedBackend(backend=self.backend, model=self.model or first)

    def select_next(
        self, failed: SelectedBackend, error: BackendError, *, keeps_history: bool = False
    ) -> None:
        return None

    def record_failure(self, failed: SelectedBackend, error: BackendError) -> None:
        pass

    def record_success(self, used: SelectedBackend) -> None:
        pass

    def shares_history(self, backend: str) -> bool:
        return False

    async def end_idle(self, kept_for: str) -> None:
        if isinstance(self.backend, AcpBackend):
            await self.backend.end_idle(kept_for)
