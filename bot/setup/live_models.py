"""Builds the backends of models, whose settings can change while they are used, and the sandbox
that coding CLIs and commands run in. Loads nothing else of the engine."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bot.config.channels import is_configured
from bot.config.settings import Settings
from bot.engine.llm.acp.agent_config import AcpAgentsFile
from bot.engine.llm.acp.backend import AcpBackends
from bot.engine.llm.acp.idle_process import IdleProcess
from bot.engine.llm.acp.runtime import AcpRuntime
from bot.engine.llm.api.access import LearnedToolForms
from bot.engine.llm.backend_registry import BackendRegistry, build_registry
from bot.engine.sandbox.backends import SandboxDetector, sandboxed_launcher
from bot.engine.sandbox.spec import Sandbox
from storage.records.people import Channel

if TYPE_CHECKING:
    from bot.engine.agent.conversation.model_choice import AutoModelChoice


def build_sandbox_detector(settings: Settings) -> SandboxDetector:
    # Shiftboss' own files are hidden in the sandbox.
    own_files = (settings.home, Path.cwd() / ".env", settings.home / ".env")
    return SandboxDetector(
        extra=settings.readable_folders, secrets=own_files, processes=settings.tools_processes
    )


class LiveModels:
    """Model APIs, coding CLIs and offline rules, whose settings can change while they are used.
    `settings` are those in use."""

    def __init__(
        self,
        settings: Settings,
        sandbox: Callable[[], Awaitable[Sandbox]],
        tool_forms: LearnedToolForms,
    ) -> None:
        self._tool_forms = tool_forms
        self._cli_environ = _cli_environment(settings)
        runtime = AcpRuntime(
            root=settings.home,
            environ=self._cli_environ,
            slots=asyncio.Semaphore(settings.cli_slots),
            new_id=lambda: secrets.token_hex(8),
            approval_wait=settings.cli_patience_minutes * 60,
            max_run_seconds=settings.cli_hours * 3600,
            launch=sandboxed_launcher(sandbox),
            idle=IdleProcess(settings.cli_warm_seconds),
        )
        self._acp_backends = AcpBackends(AcpAgentsFile(settings.home), runtime)
        self.registry = self.prepare(settings)
        self.settings = settings

    def get_small_model(self) -> str:
        return self.settings.model_small

    def get_vision_model(self) -> str:
        return self.settings.vision_model

    @cached_property
    def auto_choice(self) -> AutoModelChoice:
        return _build_auto_choice(self.settings, self.registry)

    def prepare(self, settings: Settings) -> BackendRegistry:
        """A registry with these settings, which they can be tested with."""
        registry = build_registry(
            model=settings.default_model,
            anthropic_key=settings.anthropic_api_key.get_secret_value(),
            anthropic_base_url=settings.anthropic_base_url,
            openai_key=settings.openai_api_key.get_secret_value(),
            openai_base_url=settings.openai_base_url,
            openai_tools=settings.openai_tools,
            max_silence=settings.model_silence,
            clis=self._acp_backends,
            fallbacks=settings.fallbacks,
            tool_forms=self._tool_forms,
        )
        registry.also_preloaded = READS_MESSAGES
        if is_configured(Channel.TELEGRAM, settings):
            registry.also_preloaded += (TELEGRAM_TEXT,)
        if is_configured(Channel.FEISHU, settings):
            registry.also_preloaded += FEISHU_TOOLS
        return registry

    async def apply(self, settings: Settings) -> None:
        """Use these settings for all calls that begin from now on."""
        await self._acp_backends.end_idle()
        environ = _cli_environment(settings)
        for name in self._cli_environ.keys() - environ.keys():
            del self._cli_environ[name]
        self._cli_environ.update(environ)
        await self.registry.adopt(self.prepare(settings))
        self.settings = settings
        chosen = _build_auto_choice(settings, self.registry)
        self.auto_choice.models_by_size = chosen.models_by_size
        self.auto_choice.enabled_by_default = chosen.enabled_by_default

    async def aclose(self) -> None:
        await self._acp_backends.end_idle()
        await self.registry.aclose()


READS_MESSAGES = (
    "bot.engine.memory.consent_rules",
    "bot.engine.memory.explicit_statements",
    "bot.engine.memory.past_facts",
    "bot.engine.schedule.time_phrases",
    "bot.engine.agent.request_check",
    "bot.engine.agent.requested_values",
    "bot.engine.memory.ending_patterns:load_patterns",
    "cards.card_json:load_adapters",
    "storage.messages.inbox:incoming_adapter",
    "markdown_it.tree",
)
"""Tables of patterns with which each message is read, and what a card is made with: half of the
time of a first answer."""

TELEGRAM_TEXT = "telegramify_markdown"
FEISHU_TOOLS = ("bot.transports.feishu.bitable", "bot.transports.feishu.document_reader")


def _cli_environment(settings: Settings) -> dict[str, str]:
    """Environment for coding CLIs; keys may be in `.env` only."""
    ours = {
        "ANTHROPIC_API_KEY": settings.anthropic_api_key.get_secret_value(),
        "ANTHROPIC_BASE_URL": settings.anthropic_base_url,
        "OPENAI_API_KEY": settings.openai_api_key.get_secret_value(),
        "OPENAI_BASE_URL": settings.openai_base_url,
    }
    return {**os.environ, **{name: value for name, value in ours.items() if value}}


def _build_auto_choice(settings: Settings, models: BackendRegistry) -> AutoModelChoice:
    # Imported here: the status of a Shiftboss that does not run needs no choice of models.
    from bot.engine.agent.conversation.model_choice import (
        AutoModelChoice,
        ModelSize,
        list_models_by_size,
    )

    configured = {
        ModelSize.SMALL: settings.model_small,
        ModelSize.MIDDLE: settings.model_middle,
        ModelSize.LARGE: settings.model_large,
    }
    return AutoModelChoice(
        models_by_size=list_models_by_size(
            models, configured, openai_is_compatible=bool(settings.openai_base_url)
        ),
        default_backend=lambda: models.default.backend,
        enabled_by_default=not settings.model or settings.default_model != settings.model,
    )
