"""What people need to see and choose of the models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage.records.status import BackendHealth, BackendReport, ModelChoice


class Models(Protocol):
    def choices(self) -> Sequence[ModelChoice]:
        """All that is configured, the default first."""
        ...

    def pick(self, name: str) -> ModelChoice | None:
        """What a person means by `opus`, `offline`, `openai` or `anthropic:claude-…`."""
        ...

    async def ready(self, name: str) -> BackendHealth | None:
        """Whether what a person means by this can work, looked at without starting anything. None
        if it means nothing."""
        ...

    async def report(self, name: str = "") -> BackendReport | None:
        """How all backends are doing; or this one, tried out. None if there is none of that
        name."""
        ...
