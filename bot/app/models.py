"""What can do the work: the model APIs, the coding CLIs, and the rules that need neither."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from bot.config.settings import Settings
from bot.engine.agent.sandbox.base import Sandbox
from bot.engine.llm.acp.agents_file import AgentsFile
from bot.engine.llm.acp.clis import Clis
from bot.engine.llm.acp.house import House
from bot.engine.llm.acp.machine.process import Launch, Launcher, plain_launcher
from bot.engine.llm.registry import Registry, registry
from storage.records.status import AUTO

SandboxOf: TypeAlias = Callable[[], Awaitable[Sandbox]]


def build_models(settings: Settings, sandbox: SandboxOf | None = None) -> Registry:
    """Without a `sandbox` the coding CLIs are not held in."""
    house = House(
        root=settings.home,
        around=_around(settings),
        slots=asyncio.Semaphore(settings.cli_slots),
        new_id=lambda: secrets.token_hex(8),
        patience=settings.cli_patience_minutes * 60,
        longest=settings.cli_hours * 3600,
        launch=held_in(sandbox) if sandbox is not None else plain_launcher,
    )
    return registry(
        model=program_model(settings.model),
        anthropic_key=settings.anthropic_api_key.get_secret_value(),
        anthropic_base_url=settings.anthropic_base_url,
        openai_key=settings.openai_api_key.get_secret_value(),
        openai_base_url=settings.openai_base_url,
        openai_tools=settings.openai_tools,
        clis=Clis(AgentsFile(settings.home), house),
        fallback=settings.fallback,
    )


def program_model(setting: str) -> str:
    """What the program itself works with where each message has its model chosen: `auto` leaves
    that to it, and `anthropic:auto` to that backend."""
    backend, _, model = setting.rpartition(":")
    return backend if model == AUTO else setting


def _around(settings: Settings) -> Mapping[str, str]:
    """What CLIs may be passed by name: keys may stand in `.env`, and not in the environment."""
    ours = {
        "ANTHROPIC_API_KEY": settings.anthropic_api_key.get_secret_value(),
        "ANTHROPIC_BASE_URL": settings.anthropic_base_url,
        "OPENAI_API_KEY": settings.openai_api_key.get_secret_value(),
        "OPENAI_BASE_URL": settings.openai_base_url,
    }
    return {**os.environ, **{name: value for name, value in ours.items() if value}}


def held_in(sandbox_of: SandboxOf) -> Launcher:
    """Starts CLIs in the sandbox that commands run in, with the network."""

    async def launch(
        argv: Sequence[str],
        *,
        workspace: Path,
        home: Path,
        env: Mapping[str, str],
        readable: Sequence[Path],
        writable: bool,
    ) -> Launch:
        sandbox = await sandbox_of()

        def wrap() -> Launch:
            return sandbox.wrap(
                argv,
                workspace=workspace.resolve(),
                network=True,
                env=env,
                home=home.resolve(),
                readable=readable,
                writable=writable,
            )

        return await asyncio.to_thread(wrap)

    return launch
