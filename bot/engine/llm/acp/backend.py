"""Provides coding CLIs as backends; the protocol library is imported at the first run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bot.engine.llm.acp import runtime
from bot.engine.llm.acp.agent_config import AcpAgentConfig, AcpAgentsFile
from bot.engine.llm.acp.process import is_setup_error, not_ready_error
from bot.engine.llm.acp.runtime import AcpRuntime, find_login_files
from bot.engine.llm.backend import (
    BackendError,
    BackendNotReady,
    BackendReadiness,
    BackendRun,
    RunPurpose,
    RunRequest,
)

if TYPE_CHECKING:
    from bot.engine.llm.acp.run import AcpRun

REFUSAL_TTL = 600.0
"""Seconds until a refused CLI is tried again, because logins may be undetectable."""

_LoginStamp: TypeAlias = tuple[tuple[str, int], ...]


class RefusalMemory:
    """Remembers a CLI's last setup failure in this process."""

    def __init__(self, root: Path, clock: Callable[[], float]) -> None:
        self._root = root
        self._clock = clock
        self._last: tuple[str, float, _LoginStamp] | None = None

    def record(self, problem: str, agent: AcpAgentConfig) -> None:
        """Record a failure; `problem` is a text key."""
        self._last = (problem, self._clock(), _login_stamp(self._root, agent))

    def forget(self) -> None:
        self._last = None

    def current(self, agent: AcpAgentConfig) -> str:
        """Return the recorded problem; empty once it expired or a login file changed."""
        if self._last is None:
            return ""
        problem, at, stamp = self._last
        if self._clock() - at >= REFUSAL_TTL or _login_stamp(self._root, agent) != stamp:
            self._last = None
            return ""
        return problem


def _login_stamp(root: Path, agent: AcpAgentConfig) -> _LoginStamp:
    found: list[tuple[str, int]] = []
    for path in find_login_files(root, agent):
        try:
            found.append((str(path), path.stat().st_mtime_ns))
        except OSError:
            continue
    return tuple(sorted(found))


class AcpBackend:
    """One CLI; `config` is called at each use because the file may change."""

    accepts_tools = False
    models: tuple[str, ...] = ()

    def __init__(self, config: Callable[[], AcpAgentConfig], runtime: AcpRuntime) -> None:
        self._get_config = config
        self._runtime = runtime
        self._refusals = RefusalMemory(runtime.root, runtime.clock)

    @property
    def name(self) -> str:
        return self._get_config().name

    @property
    def limitation(self) -> str:
        return self._get_config().limitation

    @asynccontextmanager
    async def run(self, request: RunRequest) -> AsyncIterator[BackendRun]:
        found = await self.check()
        if found.problem:
            raise not_ready_error(found, self.name)
        run_class = await asyncio.to_thread(_load_run_class)
        run = run_class(self._get_config(), request, self._runtime)
        try:
            yield run
        except BackendNotReady as refused:
            self._refusals.record(refused.hint, self._get_config())
            raise
        finally:
            await run.aclose()

    async def end_idle(self, kept_for: str | None = None) -> None:
        """End the process that is kept for this work; by default for any."""
        await self._runtime.idle.end(kept_for)

    @property
    def last_refusal(self) -> str:
        """Text key of a setup problem that only running the CLI revealed; empty if none.

        It expires after some minutes, a login or a successful probe."""
        return self._refusals.current(self._get_config())

    async def check(self) -> BackendReadiness:
        return await asyncio.to_thread(self._check_agent, ask=True)

    async def check_with_refusals(self) -> BackendReadiness:
        """Like `check`, but includes the last refusal."""
        found = await self.check()
        if found.problem or not self.last_refusal:
            return found
        return runtime.readiness_after_refusal(
            found, self.last_refusal, self._get_config(), self._runtime.root
        )

    def check_without_running(self) -> BackendReadiness:
        """Check readiness without starting any process."""
        return self._check_agent(ask=False)

    async def probe(self) -> BackendReadiness:
        """Start the CLI and open a session to detect setup problems; calls no model."""
        found = await self.check()
        if found.problem:
            return found
        agent, root = self._get_config(), self._runtime.root
        from bot.engine.llm.acp.run import probe_version  # slow to import

        request = RunRequest(purpose=RunPurpose.CHAT, prompt="", system="", model="", language="en")
        try:
            async with self._runtime.slots:
                version = await probe_version(agent, request, self._runtime)
        except BackendError as error:
            if is_setup_error(error):
                self._refusals.record(error.hint, agent)
            return runtime.readiness_after_refusal(found, error.hint, agent, root)
        self._refusals.forget()
        return replace(found, version=version)

    def _check_agent(self, *, ask: bool) -> BackendReadiness:
        shared = self._runtime
        node = shared.node_versions.detect if ask else shared.node_versions.get_cached
        return runtime.check_agent(self._get_config(), shared.root, shared.environ, node)


def _load_run_class() -> type[AcpRun]:
    # The import takes a second of CPU, so it runs on first use and in a thread.
    from bot.engine.llm.acp.run import AcpRun

    return AcpRun


class AcpBackends:
    def __init__(self, file: AcpAgentsFile, runtime: AcpRuntime) -> None:
        self._file = file
        self._runtime = runtime
        self._backends: dict[str, AcpBackend] = {}
        self._last_configs: dict[str, AcpAgentConfig] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._file.current().by_name)

    @property
    def errors(self) -> tuple[str, ...]:
        """Problems found in the file, one sentence each."""
        return self._file.current().errors

    async def end_idle(self, kept_for: str | None = None) -> None:
        """End the process that is kept for this work; by default for any."""
        await self._runtime.idle.end(kept_for)

    def config(self, name: str) -> AcpAgentConfig:
        """Return the current configuration, or the last known one if the entry was removed."""
        agent = self._file.current().by_name.get(name) or self._last_configs[name]
        self._last_configs[name] = agent
        return agent

    def backend(self, name: str) -> AcpBackend | None:
        """Return the backend for `name`, always the same instance; None if it isn't configured."""
        if name not in self._file.current().by_name:
            return None
        if name not in self._backends:
            self.config(name)
            self._backends[name] = AcpBackend(partial(self.config, name), self._runtime)
        return self._backends[name]
