"""Resolves model names, selects backends with fallbacks, decides which errors pass work to the next
backend, and reports their health."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from bot.engine.llm.api.access import ApiAccess, ApiProvider, LearnedToolForms, ToolForm
from bot.engine.llm.api.backend import ApiBackend
from bot.engine.llm.backend import OFFLINE_NAME as OFFLINE
from bot.engine.llm.backend import (
    Backend,
    BackendDenied,
    BackendError,
    BackendNotReady,
    BackendReadiness,
    BackendUnavailable,
    ContextTooLong,
    OutageKind,
    SelectedBackend,
)
from storage.records.system import AUTO_MODEL, BackendHealth, BackendReport, ModelChoice

# --- errors and cooldowns

DENIAL_SECONDS = 600.0
"""A refused key or an empty account needs a person to change it."""

OUTAGE_SECONDS = 60.0
MAX_COOLDOWN_SECONDS = 900.0
"""Upper bound for a service's `Retry-After`."""

_ACCOUNT_HINTS = frozenset({"backend.bad_key", "backend.no_credit"})
_NO_MODEL = "backend.no_model"
_MODEL_OUTAGES = frozenset({OutageKind.RATE_LIMITED, OutageKind.OVERLOADED})
"""Outages of one model; the service's other models may work."""


def fails_over(error: BackendError) -> bool:
    """Return True if another backend may succeed. A useless answer, a limit of the run and a
    spending cap are no reason for a failover."""
    return isinstance(error, BackendDenied | BackendUnavailable | ContextTooLong)


def is_about_account(error: BackendError) -> bool:
    """Return True if the service refused the account or the model's name, not the request."""
    return error.hint in _ACCOUNT_HINTS or error.hint == _NO_MODEL


@dataclass(frozen=True, slots=True)
class _Cooldown:
    problem: str
    until: float


class BackendCooldowns:
    """Backends and models that failed a short while ago, in this process.

    They are not used while another backend works; afterwards the first one is tried again. `clock`
    returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cooldowns: dict[tuple[str, str], _Cooldown] = {}

    def record_failure(self, backend: str, model: str, error: BackendError) -> None:
        """Skip the backend, or only this model of it, for a while if the error says that it is
        down."""
        match error:
            case BackendUnavailable(outage=outage, retry_after=wait):
                seconds = min(MAX_COOLDOWN_SECONDS, max(OUTAGE_SECONDS, wait or 0.0))
                is_model = outage in _MODEL_OUTAGES
            case BackendDenied() if is_about_account(error):
                seconds, is_model = DENIAL_SECONDS, error.hint == _NO_MODEL
            case _:
                return
        key = (backend, model if is_model else "")
        self._cooldowns[key] = _Cooldown(error.hint, self._clock() + seconds)

    def record_success(self, backend: str, model: str) -> None:
        self._cooldowns.pop((backend, model), None)
        self._cooldowns.pop((backend, ""), None)

    def problem_of(self, backend: str, model: str) -> str:
        """Return the text key of what is wrong with it; empty if nothing is known."""
        for key in ((backend, ""), (backend, model)):
            found = self._cooldowns.get(key)
            if found is not None and self._clock() < found.until:
                return found.problem
        return ""


class BackendSelector(Protocol):
    def select_backend(
        self,
        model: str,
        backend: str,
        fallbacks: Sequence[str] = (),
        *,
        keeps_history: bool = False,
    ) -> SelectedBackend:
        """Resolve a model and backend name; empty names select the default, and no `fallbacks` the
        configured ones. With `keeps_history`, only backends that can read the conversation are
        considered. Raises BackendDenied."""
        ...

    def select_next(
        self, failed: SelectedBackend, error: BackendError, *, keeps_history: bool = False
    ) -> SelectedBackend | None:
        """Return what follows in the chain after this error; None if nothing does."""
        ...

    def record_failure(self, failed: SelectedBackend, error: BackendError) -> None: ...

    def record_success(self, used: SelectedBackend) -> None: ...

    def shares_history(self, backend: str) -> bool:
        """Return True if a conversation can move between this backend and others like it."""
        ...

    async def end_idle(self, kept_for: str) -> None:
        """End the process that a coding CLI keeps for the next request of this work."""
        ...


# --- the registry

if TYPE_CHECKING:
    from bot.engine.llm.offline.backend import OfflineBackend

# Models by short name; the first is the backend's default.
_MODEL_NAMES: Mapping[ApiProvider, Mapping[str, str]] = {
    ApiProvider.ANTHROPIC: {
        "sonnet": "claude-sonnet-5-5",
        "opus": "claude-opus-5-5",
        "haiku": "claude-haiku-5-5",
    },
    ApiProvider.OPENAI: {"gpt": "gpt-5.2", "gpt-mini": "gpt-5-mini"},
}
_BACKEND_ALIASES = {"claude": ApiProvider.ANTHROPIC.value, "离线": OFFLINE}
_MODEL_PATTERNS = {
    re.compile(r"claude-.+"): ApiProvider.ANTHROPIC,
    re.compile(r"(?:gpt-|o\d).+"): ApiProvider.OPENAI,
}
_LOCAL_SERVERS = {"11434": "Ollama", "1234": "LM Studio"}
_ACP_PREFIX = "acp"
MODEL_NAME = re.compile(r"[\w.:/@+-]{1,120}")
_PRELOAD_DELAY = 3.0


class CodingCli(Backend, Protocol):
    """A coding CLI as a backend. `limitation` is the text key of what it cannot do here;
    `last_refusal` that of a setup problem which only running it revealed; both may be empty."""

    @property
    def limitation(self) -> str: ...

    @property
    def last_refusal(self) -> str: ...

    async def check_with_refusals(self) -> BackendReadiness:
        """Like `check`, but includes the last refusal."""
        ...

    def check_without_running(self) -> BackendReadiness:
        """Check readiness without starting any process."""
        ...

    async def probe(self) -> BackendReadiness:
        """Start the CLI and open a session to detect setup problems; calls no model."""
        ...


class CodingClis(Protocol):
    """The coding CLIs of this machine; `errors` are problems of their file, one sentence each."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def errors(self) -> tuple[str, ...]: ...

    def backend(self, name: str) -> CodingCli | None:
        """Return the CLI, always the same instance; None if it isn't configured."""
        ...

    async def end_idle(self, kept_for: str | None = None) -> None: ...


class BackendRegistry:
    """Satisfies `handlers.ports.ModelPort` and `BackendSelector`; a service that loads
    the default's libraries."""

    def __init__(
        self,
        backends: Sequence[ApiBackend],
        clis: CodingClis,
        *,
        model: str,
        fallbacks: Sequence[str],
        base_urls: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`model` is the configured default, `backend:model`; empty selects the first ready
        backend.

        `fallbacks` stand in for a backend that is unavailable, in this order. `base_urls` are those
        of the model APIs by name, empty for the vendor's own."""
        self.also_preloaded: Sequence[str] = ()
        """Modules that the first answer needs besides, loaded after the backend's; of
        `module:function` the function is called, too."""
        self._api_backends = {backend.name: backend for backend in backends}
        self._clis = clis
        self._configured_model = model
        self._fallbacks = tuple(fallbacks)
        self._base_urls = dict(base_urls or {})
        self._cooldowns = BackendCooldowns(clock)
        self._default = self._resolve_setting(model) if model else self._first_ready()

    name = "models"

    @property
    def default(self) -> ModelChoice:
        """The default choice with its current readiness."""
        if self._configured_model and self._clis.backend(self._default.backend):
            return self._resolve_setting(self._configured_model)
        return self._default

    @property
    def base_urls(self) -> Mapping[str, str]:
        """Always the same object, which `adopt` changes."""
        return self._base_urls

    @property
    def fallback_choices(self) -> Sequence[ModelChoice]:
        """The configured fallbacks that are known."""
        found = map(self.resolve_choice, self._fallbacks)
        return [choice for choice in found if choice is not None]

    async def adopt(self, other: BackendRegistry) -> None:
        """Take over the model APIs, the default and the fallbacks of a registry that is not used
        by anyone else. New calls use them; running calls end on the connections they began with."""
        old = self._api_backends
        self._api_backends = other._api_backends
        self._configured_model = other._configured_model
        self._fallbacks = other._fallbacks
        self._base_urls.update(other._base_urls)
        self._cooldowns = other._cooldowns
        self._default = other._default
        for backend in old.values():
            await backend.retire()

    def list_choices(self) -> Sequence[ModelChoice]:
        """List the default and all choices that are ready."""
        ready = [
            self._choice(name, model)
            for name, backend in self._api_backends.items()
            if backend.is_configured
            for model in backend.models or ("",)
        ]
        installed = map(self._cli_choice, self._clis.names)
        ready += [choice for choice in installed if not choice.problem]
        rest = [*ready, ModelChoice(backend=OFFLINE, model="")]
        default = self.default
        return (default, *(choice for choice in rest if choice != default))

    def resolve_choice(self, name: str) -> ModelChoice | None:
        """Resolve a name such as `opus`, `offline`, `openai` or `anthropic:claude-…`; None if
        unknown.

        The choice's `problem` says why it is unavailable."""
        name = name.strip().removeprefix("@").strip()
        short = name.casefold()
        short = _BACKEND_ALIASES.get(short, short)
        if short == OFFLINE:
            return ModelChoice(backend=OFFLINE, model="")
        if short in self._api_backends:
            return self._choice(short, self._first_model(short))
        if cli := self._resolve_cli(name):
            return cli
        backend, colon, model = name.partition(":")
        if colon and backend.casefold() in self._api_backends and MODEL_NAME.fullmatch(model):
            return self._choice(backend.casefold(), model)
        return self._by_model_name(name)

    def has_own_tools(self, backend: str) -> bool:
        """Return True for backends that use their own tools instead of ours."""
        return self._clis.backend(backend) is not None

    def shares_history(self, backend: str) -> bool:
        """Return True for model APIs: one conversation continues on any of them."""
        return backend in self._api_backends

    def select_backend(
        self,
        model: str,
        backend: str,
        fallbacks: Sequence[str] = (),
        *,
        keeps_history: bool = False,
    ) -> SelectedBackend:
        """Select the backend or the first usable one of the chain: `fallbacks`, or the configured
        ones if there are none. Empty names mean the default. With `keeps_history`, only another
        model API may replace a model API.

        Raises BackendDenied with a hint."""
        choice = self._resolve_choice(model, backend)
        if choice is None:
            raise BackendDenied(f"no such model: {backend}:{model}", hint="backend.unknown")
        chain = tuple(fallbacks) or self._fallbacks
        problem = self._problem_of(choice)
        keeps_history = keeps_history and self.shares_history(choice.backend)
        if problem and (
            instead := self._stand_in(chain, choice.name, problem, keeps_history=keeps_history)
        ):
            return instead
        if choice.problem:
            raise BackendDenied(f"{choice.name} cannot be used", hint=choice.problem)
        return replace(self._select(choice), fallbacks=chain)

    def select_next(
        self, failed: SelectedBackend, error: BackendError, *, keeps_history: bool = False
    ) -> SelectedBackend | None:
        """Return what follows in the chain after `failed`; None if nothing usable does, or the
        error is no reason for a failover. `keeps_history` is that of `select_backend`.

        A coding CLI that has started is never replaced, because its side effects are unknown; its
        own session is resumed."""
        if not (failed.backend.accepts_tools or isinstance(error, BackendNotReady)):
            return None
        if not fails_over(error):
            return None
        keeps_history = keeps_history and self.shares_history(failed.backend.name)
        return self._stand_in(
            failed.fallbacks,
            failed.instead_of or failed.name,
            error.hint,
            keeps_history=keeps_history,
        )

    def record_failure(self, failed: SelectedBackend, error: BackendError) -> None:
        if not failed.backend.accepts_tools:
            return  # each CLI keeps its own refusals
        self._cooldowns.record_failure(failed.backend.name, failed.model, error)

    def record_success(self, used: SelectedBackend) -> None:
        self._cooldowns.record_success(used.backend.name, used.model)

    async def refresh_cli_health(self) -> None:
        """Detect the Node.js versions in advance, because `select_backend` must not block."""
        for name in self._clis.names:
            if cli := self._clis.backend(name):
                await cli.check()

    async def get_health(self, name: str) -> BackendHealth | None:
        """Return the health of a backend; None if unknown.

        Starts only a CLI that was refused earlier."""
        choice = self.resolve_choice(name)
        if choice is None:
            return None
        cli = self._clis.backend(choice.backend)
        # After a refusal, only running the CLI can tell.
        return await self._health(choice.backend, thorough=bool(cli and cli.last_refusal))

    async def report(self, name: str = "") -> BackendReport | None:
        """Report all backends, or probe the named one; None if unknown."""
        choice = self.resolve_choice(name) if name else None
        if name and choice is None:
            return None
        named = (
            [choice.backend]
            if choice
            else [
                *self._api_backends,
                OFFLINE,
                *self._clis.names,
            ]
        )
        return BackendReport(
            backends=tuple([await self._health(each, thorough=bool(name)) for each in named]),
            default=self.default.name,
            fallback=" → ".join(self._fallbacks),
            file_errors=self._clis.errors,
        )

    async def start(self, stack: AsyncExitStack) -> None:
        """Nothing to prepare; part of a service's protocol."""

    async def run(self) -> None:
        """Load the default backend's libraries after the start. Loaded with the first answer, they
        would cost it seconds of CPU, and a process that is killed early would start the message
        again each time."""
        await asyncio.sleep(_PRELOAD_DELAY)
        default = self.default
        backend = self._api_backends.get(default.backend)
        if backend is not None and backend.is_configured:
            await backend.preload(default.model)
        elif default.backend == OFFLINE:
            await asyncio.to_thread(_offline_backend)
        for module in self.also_preloaded:
            # One by one, so that messages are answered in between.
            await asyncio.to_thread(_load, module)

    async def end_idle(self, kept_for: str) -> None:
        await self._clis.end_idle(kept_for)

    async def aclose(self) -> None:
        for backend in self._api_backends.values():
            await backend.aclose()

    def _resolve_choice(self, model: str, backend: str) -> ModelChoice | None:
        # Without automatic selection, use the backend's first model.
        model = "" if model == AUTO_MODEL else model
        if not model and not backend:
            return self._default
        if not backend or not model or backend == OFFLINE:
            return self.resolve_choice(backend or model)
        return self.resolve_choice(f"{backend}:{model}")

    def _stand_in(
        self, chain: Sequence[str], instead_of: str, problem: str, *, keeps_history: bool = False
    ) -> SelectedBackend | None:
        """Return the first usable backend of the chain; None if there is none."""
        replaced = self.resolve_choice(instead_of)
        for at, name in enumerate(chain, 1):
            choice = self.resolve_choice(name)
            if choice is None or choice.name == instead_of or self._problem_of(choice):
                continue
            if keeps_history and not self.shares_history(choice.backend):
                continue
            return replace(
                self._select(choice),
                instead_of=instead_of,
                instead_of_label=replaced.label if replaced else "",
                fallback_reason=problem,
                fallbacks=tuple(chain[at:]),
            )
        return None

    def _problem_of(self, choice: ModelChoice) -> str:
        """Return the text key of why it can't work now; empty if it can."""
        cli = self._clis.backend(choice.backend)
        refused = choice.problem or (cli.last_refusal if cli else "")
        return refused or self._cooldowns.problem_of(choice.backend, choice.model)

    def _select(self, choice: ModelChoice) -> SelectedBackend:
        if choice.backend == OFFLINE:
            return SelectedBackend(backend=_offline_backend(), model=OFFLINE, label=choice.label)
        backend = self._clis.backend(choice.backend) or self._api_backends[choice.backend]
        return SelectedBackend(backend=backend, model=choice.model, label=choice.label)

    def _resolve_cli(self, name: str) -> ModelChoice | None:
        """Resolve `codex` and `codex:model`, with or without `acp:`."""
        name = name.removeprefix(f"{_ACP_PREFIX}:")
        backend, colon, model = name.partition(":")
        known = self._clis.backend(backend.casefold()) is not None
        if not known or bool(colon) != bool(model) or (model and not MODEL_NAME.fullmatch(model)):
            return None
        return self._cli_choice(backend.casefold(), model)

    def _cli_choice(self, name: str, model: str = "") -> ModelChoice:
        cli = self._clis.backend(name)
        return ModelChoice(
            backend=name, model=model, problem=cli.check_without_running().problem if cli else ""
        )

    async def _health(self, name: str, *, thorough: bool) -> BackendHealth:
        if cli := self._clis.backend(name):
            health = await (cli.probe() if thorough else cli.check_with_refusals())
            note = cli.limitation
        else:
            backend = _offline_backend() if name == OFFLINE else self._api_backends[name]
            health, note = await backend.check(), ""
        problem = health.problem or self._cooldowns.problem_of(name, "")
        instead = self._stand_in(self._fallbacks, name, problem)
        return BackendHealth(
            name=name,
            problem=problem,
            facts=health.facts,
            version=health.version,
            note=note,
            is_cli=cli is not None,
            fallback=instead.name if problem and instead is not None else "",
        )

    def _resolve_setting(self, setting: str) -> ModelChoice:
        """Resolve the configured default; an unusable one keeps its name and gets a problem."""
        choice = self.resolve_choice(setting)
        if choice is not None:
            return choice
        backend, _, model = setting.partition(":")
        return ModelChoice(backend=backend, model=model, problem="backend.unknown")

    def _first_ready(self) -> ModelChoice:
        for name, backend in self._api_backends.items():
            if backend.is_configured:
                return self._choice(name, self._first_model(name))
        return ModelChoice(backend=OFFLINE, model="")

    def _choice(self, backend: str, model: str) -> ModelChoice:
        model = _MODEL_NAMES[ApiProvider(backend)].get(model.casefold(), model)
        is_ready = self._api_backends[backend].is_configured
        problem = "" if is_ready else ApiProvider(backend).missing_key_hint
        service = ""
        if backend == ApiProvider.OPENAI and (url := self._base_urls.get(backend)):
            service = _service_name(url)
        return ModelChoice(backend=backend, model=model, problem=problem, service=service)

    def _first_model(self, backend: str) -> str:
        return next(iter(self._api_backends[backend].models), "")

    def _by_model_name(self, name: str) -> ModelChoice | None:
        for api, known in _MODEL_NAMES.items():
            if name.casefold() in known or name in known.values():
                return self._choice(api, name)
        for form, api in _MODEL_PATTERNS.items():
            if form.fullmatch(name) and MODEL_NAME.fullmatch(name):
                return self._choice(api, name)
        return None


def _service_name(base_url: str) -> str:
    """The program that listens at this address by default, or the address without its path."""
    address = urlsplit(base_url).netloc.rpartition("@")[2]
    return _LOCAL_SERVERS.get(address.rpartition(":")[2], address)


@cache
def _offline_backend() -> OfflineBackend:
    # Imported on first use: with a model, nobody needs its many patterns.
    from bot.engine.llm.offline.backend import OfflineBackend

    return OfflineBackend()


def _load(name: str) -> None:
    module, _, function = name.partition(":")
    loaded = import_module(module)
    if function:
        getattr(loaded, function)()


def build_registry(
    *,
    model: str = "",
    anthropic_key: str = "",
    anthropic_base_url: str = "",
    openai_key: str = "",
    openai_base_url: str = "",
    openai_tools: str = ToolForm.CALLED,
    max_silence: float = 300.0,
    clis: CodingClis,
    fallbacks: Sequence[str] = (),
    clock: Callable[[], float] = time.monotonic,
    tool_forms: LearnedToolForms | None = None,
) -> BackendRegistry:
    """Build the backends from settings, without loading libraries or opening connections."""
    claude = ApiAccess(
        provider=ApiProvider.ANTHROPIC,
        key=anthropic_key,
        base_url=anthropic_base_url,
        max_silence=max_silence,
    )
    gpt = ApiAccess(
        provider=ApiProvider.OPENAI,
        key=openai_key,
        base_url=openai_base_url,
        tool_form=ToolForm(openai_tools),
        max_silence=max_silence,
    )
    backends = (
        ApiBackend(claude, tuple(_MODEL_NAMES[ApiProvider.ANTHROPIC].values())),
        # A compatible service has its own models, which are requested when needed.
        ApiBackend(
            gpt,
            () if openai_base_url else tuple(_MODEL_NAMES[ApiProvider.OPENAI].values()),
            tool_forms=tool_forms,
        ),
    )
    return BackendRegistry(
        backends,
        clis,
        model=model,
        fallbacks=fallbacks,
        base_urls={claude.provider: claude.base_url, gpt.provider: gpt.base_url},
        clock=clock,
    )
