"""Tracks each model's context window and allocates it between prompt, history and answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Protocol

from bot.engine.llm.backend import MAX_ANSWER_TOKENS

log = logging.getLogger(__name__)

MIN_WINDOW = 2_000
"""Learned windows are never smaller."""
_SAFETY_SHARE = 0.8
"""Share of the remaining window used for history, because token counts are estimates."""
_MIN_HISTORY_TOKENS = 500
_ANSWER_DIVISOR = 4
"""An answer may fill 1/4 of the window."""
_SHRINK_FACTOR = 0.75
_GUESS_FACTOR = 0.5
_STEPS = 16
_MAX_SESSIONS = 1_024

LEARNED_TTL = timedelta(days=30)
"""Learned windows expire because services change the models behind a name."""
_STORE_KEY = "windows.learnt"

_ModelKey = tuple[str, str]


class WindowStore(Protocol):
    """Persists learned windows; satisfied by `storage.key_value.KeyValueStore`."""

    async def get(self, name: str) -> Any: ...

    async def put(self, name: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _LearnedWindow:
    """A window learned from a service; `configured` is the configured value at that time."""

    window: int
    configured: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBudget:
    """`history_tokens` limits the session history (None: window unknown), `answer_tokens` the
    answer."""

    history_tokens: int | None = None
    answer_tokens: int = MAX_ANSWER_TOKENS


@dataclass(slots=True, kw_only=True)
class ContextWindows:
    """Context windows by model, in tokens.

    `configured` holds the user's values by model name or glob; `published` is called once per model
    and returns 0 for unknown ones. A learned window takes precedence for 30 days, unless the
    configured value changes in the meantime."""

    configured: Mapping[str, int]
    published: Callable[[str, str], Awaitable[int]]
    store: WindowStore
    now: Callable[[], datetime]
    _published_cache: dict[_ModelKey, int] = field(default_factory=dict)
    _learned: dict[_ModelKey, _LearnedWindow] = field(default_factory=dict)
    _is_loaded: bool = False
    _session_models: dict[str, _ModelKey] = field(default_factory=dict)

    async def get(self, backend: str, model: str) -> int:
        """Return the window in tokens; 0 if unknown."""
        key = (backend, model)
        learnt = (await self._load_learned()).get(key)
        if learnt is not None and self._is_valid(key, learnt):
            return learnt.window
        if key not in self._published_cache:
            self._published_cache[key] = self._configured_window(*key) or await self.published(*key)
        return self._published_cache[key]

    async def get_for_session(self, session_id: str, backend: str, model: str) -> int:
        """Return the window of the model last used in the session; by default that of `model`."""
        return await self.get(*self._session_models.get(session_id, (backend, model)))

    async def allocate(
        self, session_id: str, backend: str, model: str, prompt_tokens: int
    ) -> ContextBudget:
        """Divide the window for a call whose prompt, without history, takes `prompt_tokens`."""
        self._session_models.pop(session_id, None)
        self._session_models[session_id] = (backend, model)
        if len(self._session_models) > _MAX_SESSIONS:
            del self._session_models[next(iter(self._session_models))]
        window = await self.get(backend, model)
        if not window:
            return ContextBudget()
        answer = min(MAX_ANSWER_TOKENS, window // _ANSWER_DIVISOR)
        left = int((window - answer - prompt_tokens) * _SAFETY_SHARE)
        # In steps, so that the included history doesn't change with the length of each question.
        step = max(1, window // _STEPS)
        return ContextBudget(
            history_tokens=max(_MIN_HISTORY_TOKENS, left - left % step), answer_tokens=answer
        )

    async def learn(
        self, backend: str, model: str, *, stated_window: int, sent_tokens: int, had_started: bool
    ) -> None:
        """Learn from a call that was rejected as too long.

        `sent_tokens` is our estimate of its size and `stated_window` the window named in the error
        (0: none). If the window was already known and the run had not started, our estimates are
        too low, so the window shrinks. `had_started` means that input read during the run may have
        caused the overflow."""
        known = await self.get(backend, model)
        window = stated_window or int(sent_tokens * _GUESS_FACTOR)
        if known and window >= known:
            window = known if had_started else int(known * _SHRINK_FACTOR)
        noted = await self._load_learned()
        noted[backend, model] = _LearnedWindow(
            window=max(MIN_WINDOW, window),
            configured=self._configured_window(backend, model),
            at=self.now(),
        )
        rows = [
            [*key, each.window, each.configured, each.at.isoformat()]
            for key, each in noted.items()
            if self._is_valid(key, each)
        ]
        await self.store.put(_STORE_KEY, rows)
        log.info("learned the context window of %s %s: %d tokens", backend, model, window)

    async def _load_learned(self) -> dict[_ModelKey, _LearnedWindow]:
        if not self._is_loaded:
            kept = {
                (backend, model): _LearnedWindow(
                    window=window, configured=configured, at=datetime.fromisoformat(at)
                )
                for backend, model, window, configured, at in await self.store.get(_STORE_KEY) or ()
            }
            # Windows learned since the start are newer.
            self._learned, self._is_loaded = kept | self._learned, True
        return self._learned

    def _is_valid(self, key: _ModelKey, learnt: _LearnedWindow) -> bool:
        return (
            self.now() - learnt.at < LEARNED_TTL
            and self._configured_window(*key) == learnt.configured
        )

    def _configured_window(self, backend: str, model: str) -> int:
        names = (model.lower(), f"{backend}:{model}".lower())
        for pattern, window in self.configured.items():
            if any(fnmatchcase(name, pattern.lower()) for name in names):
                return window
        return 0
