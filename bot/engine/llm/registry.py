"""Which backends there are, which are ready, and what the names mean that people type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bot.engine.llm.access import Access, Api
from bot.engine.llm.acp.backend import AcpBackend
from bot.engine.llm.acp.clis import Clis
from bot.engine.llm.api import ApiBackend
from bot.engine.llm.base import BackendDenied, Chosen
from bot.engine.llm.offline import NAME as OFFLINE
from bot.engine.llm.offline import OfflineBackend
from storage.records.status import AUTO, BackendHealth, BackendReport, ModelChoice

# Each backend's models by the names people use; the first is its default.
_KNOWN: Mapping[Api, Mapping[str, str]] = {
    Api.ANTHROPIC: {
        "sonnet": "claude-sonnet-5-5",
        "opus": "claude-opus-5-5",
        "haiku": "claude-haiku-5-5",
    },
    Api.OPENAI: {"gpt": "gpt-5.2", "gpt-mini": "gpt-5-mini"},
}
_ALSO = {"claude": Api.ANTHROPIC.value, "离线": OFFLINE}
_BELONGS = {re.compile(r"claude-.+"): Api.ANTHROPIC, re.compile(r"(?:gpt-|o\d).+"): Api.OPENAI}
_ACP = "acp"
_MODEL_NAME = re.compile(r"[\w.:/@+-]{1,120}")


class Registry:
    """Satisfies `handlers.ports.Models` and what the engine's desk needs."""

    def __init__(
        self,
        backends: Sequence[ApiBackend],
        offline: OfflineBackend,
        model: str,
        *,
        clis: Clis | None = None,
        fallback: str = "",
    ) -> None:
        """`model` is the program's own choice, `backend:model`; empty takes the first backend
        that is ready. `fallback` stands in for a coding CLI that cannot work."""
        self._apis = {backend.name: backend for backend in backends}
        self._offline = offline
        self._clis = clis
        self._setting = model
        self._fallback = fallback
        self._default = self._meant_by(model) if model else self._first_ready()

    @property
    def default(self) -> ModelChoice:
        """What was set; how a coding CLI is doing changes."""
        if self._setting and self._cli(self._default.backend) is not None:
            return self._meant_by(self._setting)
        return self._default

    def choices(self) -> Sequence[ModelChoice]:
        """All that is ready to work, and the default first, ready or not."""
        ready = [
            self._choice(name, model)
            for name, backend in self._apis.items()
            if backend.is_configured
            for model in backend.models or ("",)
        ]
        clis = [self._cli_choice(name) for name in (self._clis.names if self._clis else ())]
        ready += [choice for choice in clis if not choice.problem]
        rest = [*ready, ModelChoice(backend=OFFLINE, model="")]
        default = self.default
        return (default, *(choice for choice in rest if choice != default))

    def pick(self, name: str) -> ModelChoice | None:
        """What a person means by `opus`, `offline`, `openai` or `anthropic:claude-…`; None if
        nothing. Its problem says why it cannot be used now."""
        name = name.strip().removeprefix("@").strip()
        short = name.casefold()
        short = _ALSO.get(short, short)
        if short == OFFLINE:
            return ModelChoice(backend=OFFLINE, model="")
        if short in self._apis:
            return self._choice(short, self._first_model(short))
        if cli := self._cli_named(name):
            return cli
        backend, colon, model = name.partition(":")
        if colon and backend.casefold() in self._apis and _MODEL_NAME.fullmatch(model):
            return self._choice(backend.casefold(), model)
        return self._by_model_name(name)

    def brings_tools(self, backend: str) -> bool:
        """True for one that uses tools of its own and none that it is given."""
        cli = self._cli(backend)
        return cli is not None and not cli.caps.tools

    def choose(self, model: str, backend: str) -> Chosen:
        """Who works when these are chosen; empty ones mean the default. Raises BackendDenied
        whose hint says what to do."""
        choice = self._chosen(model, backend)
        if choice is None:
            raise BackendDenied(f"no such model: {backend}:{model}", hint="backend.unknown")
        cli = self._cli(choice.backend)
        problem = choice.problem or (cli.refused if cli else "")
        if problem and cli is not None and (instead := self._stands_in()):
            return replace(self._of(instead), instead_of=choice.name, why=problem)
        if choice.problem:
            raise BackendDenied(f"{choice.name} cannot be used", hint=choice.problem)
        return self._of(choice)

    async def look_around(self) -> None:
        """What takes a program to find out, Node.js's version, is known from now on: `choose`
        has no time to ask."""
        for name in self._cli_names:
            if cli := self._cli(name):
                await cli.check()

    async def ready(self, name: str) -> BackendHealth | None:
        """Whether what a person means by this can work, looked at without starting anything but a
        CLI that has refused its work. None if it means nothing."""
        choice = self.pick(name)
        if choice is None:
            return None
        cli = self._cli(choice.backend)
        # Where it has refused its work, only asking it again can tell.
        return await self._health(choice.backend, thorough=cli is not None and bool(cli.refused))

    async def report(self, name: str = "") -> BackendReport | None:
        """How all are doing; or this one, which is started where that costs nothing. None if
        there is none of that name."""
        choice = self.pick(name) if name else None
        if name and choice is None:
            return None
        named = [choice.backend] if choice else [*self._apis, OFFLINE, *self._cli_names]
        return BackendReport(
            backends=tuple([await self._health(each, thorough=bool(name)) for each in named]),
            default=self.default.name,
            fallback=self._fallback,
            faults=self._clis.faults if self._clis else (),
        )

    async def aclose(self) -> None:
        for backend in self._apis.values():
            await backend.aclose()

    def _chosen(self, model: str, backend: str) -> ModelChoice | None:
        # Whoever cannot choose by what was said takes the backend's first model.
        model = "" if model == AUTO else model
        if not model and not backend:
            return self._default
        if not backend or not model:
            return self.pick(model or backend)
        return self.pick(backend) if backend == OFFLINE else self.pick(f"{backend}:{model}")

    def _stands_in(self) -> ModelChoice | None:
        """For a coding CLI that cannot work; None where nobody does."""
        instead = self.pick(self._fallback) if self._fallback else None
        if instead is None or instead.problem:
            return None
        cli = self._cli(instead.backend)
        return None if cli is not None and cli.refused else instead

    def _of(self, choice: ModelChoice) -> Chosen:
        if choice.backend == OFFLINE:
            return Chosen(backend=self._offline, model=OFFLINE)
        cli = self._cli(choice.backend)
        return Chosen(backend=cli or self._apis[choice.backend], model=choice.model)

    @property
    def _cli_names(self) -> Sequence[str]:
        return self._clis.names if self._clis else ()

    def _cli(self, name: str) -> AcpBackend | None:
        return self._clis.backend(name) if self._clis else None

    def _cli_named(self, name: str) -> ModelChoice | None:
        """`codex`, `codex:model`, and both with `acp:` before."""
        name = name.removeprefix(f"{_ACP}:")
        backend, colon, model = name.partition(":")
        if self._cli(backend.casefold()) is None or bool(colon) != bool(model):
            return None
        if model and not _MODEL_NAME.fullmatch(model):
            return None
        return self._cli_choice(backend.casefold(), model)

    def _cli_choice(self, name: str, model: str = "") -> ModelChoice:
        cli = self._cli(name)
        return ModelChoice(backend=name, model=model, problem=cli.seen().problem if cli else "")

    async def _health(self, name: str, *, thorough: bool) -> BackendHealth:
        instead = self._stands_in()
        if cli := self._cli(name):
            health = await (cli.try_out() if thorough else cli.known())
            note = self._clis.agent(name).limited if self._clis else ""
        else:
            backend = self._offline if name == OFFLINE else self._apis[name]
            health, note = await backend.check(), ""
        return BackendHealth(
            name=name,
            problem=health.problem,
            facts=health.facts,
            version=health.version,
            note=note,
            is_cli=cli is not None,
            instead=instead.name if cli is not None and instead is not None else "",
        )

    def _meant_by(self, setting: str) -> ModelChoice:
        """The setting's choice; one that cannot be used keeps its name and has a problem."""
        choice = self.pick(setting)
        if choice is not None:
            return choice
        backend, _, model = setting.partition(":")
        return ModelChoice(backend=backend, model=model, problem="backend.unknown")

    def _first_ready(self) -> ModelChoice:
        for name, backend in self._apis.items():
            if backend.is_configured:
                return self._choice(name, self._first_model(name))
        return ModelChoice(backend=OFFLINE, model="")

    def _choice(self, backend: str, model: str) -> ModelChoice:
        model = _KNOWN[Api(backend)].get(model.casefold(), model)
        problem = "" if self._apis[backend].is_configured else Api(backend).missing
        return ModelChoice(backend=backend, model=model, problem=problem)

    def _first_model(self, backend: str) -> str:
        return next(iter(self._apis[backend].models), "")

    def _by_model_name(self, name: str) -> ModelChoice | None:
        for api, known in _KNOWN.items():
            if name.casefold() in known or name in known.values():
                return self._choice(api, name)
        for form, api in _BELONGS.items():
            if form.fullmatch(name) and _MODEL_NAME.fullmatch(name):
                return self._choice(api, name)
        return None


def registry(
    *,
    model: str = "",
    anthropic_key: str = "",
    anthropic_base_url: str = "",
    openai_key: str = "",
    openai_base_url: str = "",
    openai_tools: str = "called",
    clis: Clis | None = None,
    fallback: str = "",
) -> Registry:
    """The backends as the settings want them. Loads no library and opens no connection."""
    claude = Access(api=Api.ANTHROPIC, key=anthropic_key, base_url=anthropic_base_url)
    gpt = Access(
        api=Api.OPENAI,
        key=openai_key,
        base_url=openai_base_url,
        written_calls=openai_tools == "written",
    )
    backends = (
        ApiBackend(claude, tuple(_KNOWN[Api.ANTHROPIC].values())),
        # A compatible service has models of its own: ask it, when one is needed.
        ApiBackend(gpt, () if openai_base_url else tuple(_KNOWN[Api.OPENAI].values())),
    )
    return Registry(backends, OfflineBackend(), model, clis=clis, fallback=fallback)
