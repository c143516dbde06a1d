"""Defines how a model API is accessed, and remembers which models write text instead of making the
tool calls that they are asked for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

log = logging.getLogger(__name__)


LEARNED_TTL = timedelta(days=30)
"""Services change the models behind a name."""
_STORE_KEY = "tools.written"
_MAX_MODELS = 200
_ENOUGH = 2
"""One written call may be an example or a slip."""


class ApiProvider(StrEnum):
    """The wire format; also the backend's name."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"

    @property
    def missing_key_hint(self) -> str:
        """Text key of the hint for a missing API key."""
        return f"backend.no_{self}_key"


class ToolForm(StrEnum):
    """How models are to call tools: natively, as text that follows a JSON schema, or natively until
    one shows that it writes its calls. Written calls are read in any case."""

    AUTO = "auto"
    CALLED = "called"
    WRITTEN = "written"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAccess:
    """Connection settings of an API.

    An empty `base_url` means the provider's own. If the model sends nothing for `silence_notice`
    seconds, people get a notice; after `max_silence` seconds the call fails."""

    provider: ApiProvider
    key: str
    base_url: str = ""
    max_silence: float = 300.0
    silence_notice: float = 30.0
    tool_form: ToolForm = ToolForm.CALLED

    @property
    def is_configured(self) -> bool:
        """A compatible service may need no key."""
        return bool(self.key or (self.provider is ApiProvider.OPENAI and self.base_url))

    @property
    def learns_tool_form(self) -> bool:
        """The models of the providers themselves call tools natively."""
        is_compatible = self.provider is ApiProvider.OPENAI and bool(self.base_url)
        return self.tool_form is ToolForm.AUTO and is_compatible

    def __repr__(self) -> str:
        return f"Access({self.provider}, {self.base_url or 'default'})"


class ToolFormStore(Protocol):
    """Satisfied by `storage.key_value.KeyValueStore`."""

    async def get(self, name: str) -> Any: ...

    async def put(self, name: str, value: Any) -> None: ...


@dataclass(slots=True, kw_only=True)
class LearnedToolForms:
    """Models, by service and name, that have shown that they need the written form: twice they
    wrote a call, or words where only a call was asked for, and have made none natively since the
    program started."""

    store: ToolFormStore
    now: Callable[[], datetime]
    _learned: dict[tuple[str, str], datetime] | None = field(default=None, init=False)
    _written: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    _calling: set[tuple[str, str]] = field(default_factory=set, init=False)

    async def is_written(self, service: str, model: str) -> bool:
        at = (await self._load()).get((service, model))
        return at is not None and self.now() - at < LEARNED_TTL

    async def observe(self, service: str, model: str, form: ToolForm) -> None:
        """Take note of how a model has called a tool."""
        key, learned = (service, model), await self._load()
        if form is ToolForm.CALLED:
            self._calling.add(key)
            if learned.pop(key, None) is not None:
                await self._save(learned)
            return
        self._written[key] += 1
        if key in self._calling or self._written[key] < _ENOUGH:
            return
        learned[key] = self.now()
        del self._written[key]
        await self._save(learned)
        log.info("%s writes its tool calls: it is asked to write them from now on", model)

    async def _save(self, learned: Mapping[tuple[str, str], datetime]) -> None:
        kept = sorted(learned.items(), key=lambda each: each[1])[-_MAX_MODELS:]
        await self.store.put(_STORE_KEY, [[*key, at.isoformat()] for key, at in kept])

    async def _load(self) -> dict[tuple[str, str], datetime]:
        if self._learned is None:
            rows = await self.store.get(_STORE_KEY) or ()
            self._learned = {
                (service, model): datetime.fromisoformat(at) for service, model, at in rows
            }
        return self._learned
