"""Remembers which models write their tool calls as text instead of making them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

log = logging.getLogger(__name__)

LEARNED_TTL = timedelta(days=30)
"""Services change the models behind a name."""
_STORE_KEY = "tools.written"
_MAX_MODELS = 200


class ToolFormStore(Protocol):
    """Satisfied by `storage.key_value.KeyValueStore`."""

    async def get(self, name: str) -> Any: ...

    async def put(self, name: str, value: Any) -> None: ...


@dataclass(slots=True, kw_only=True)
class LearnedToolForms:
    """Models, by service and name, that have shown that they need the written form."""

    store: ToolFormStore
    now: Callable[[], datetime]
    _learned: dict[tuple[str, str], datetime] | None = field(default=None, init=False)

    async def is_written(self, service: str, model: str) -> bool:
        at = (await self._load()).get((service, model))
        return at is not None and self.now() - at < LEARNED_TTL

    async def learn_written(self, service: str, model: str) -> None:
        learned = await self._load()
        learned[service, model] = self.now()
        kept = sorted(learned.items(), key=lambda each: each[1])[-_MAX_MODELS:]
        await self.store.put(_STORE_KEY, [[*key, at.isoformat()] for key, at in kept])
        log.info("%s writes its tool calls: it is asked to write them from now on", model)

    async def _load(self) -> dict[tuple[str, str], datetime]:
        if self._learned is None:
            rows = await self.store.get(_STORE_KEY) or ()
            self._learned = {
                (service, model): datetime.fromisoformat(at) for service, model, at in rows
            }
        return self._learned
