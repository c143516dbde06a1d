"""Where workers' commands run, what reaches them, and what is taken out of what they say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bot.config.settings import Settings
from bot.engine.agent.masking import Masking
from bot.engine.agent.sandbox.base import Sandbox
from bot.engine.agent.sandbox.homes import Homes
from bot.engine.agent.sandbox.probe import Machine, SandboxHere
from bot.engine.agent.sandbox.view import environment
from bot.engine.agent.tools.exec import Shell
from bot.transports.web.token import read_token


def build_sandbox(settings: Settings) -> SandboxHere:
    """Found out when it is first asked for. Nothing of our own is to be seen in it."""
    return SandboxHere(
        Machine(
            extra=settings.tools_seen,
            secrets=(settings.home, Path.cwd() / ".env", settings.home / ".env"),
        )
    )


def build_masking(settings: Settings) -> Masking:
    return Masking((*settings.secrets, read_token(settings.home)))


def build_shell(settings: Settings, sandbox: SandboxHere, masking: Masking) -> Shell:
    def env(held: Sandbox) -> Mapping[str, str]:
        view = held.view if held.kind.confines else None
        told = environment(os.environ, passed=settings.tools_passed, view=view)
        return {name: value for name, value in told.items() if not masking.holds(value)}

    return Shell(
        sandbox=sandbox,
        homes=Homes(settings.home / "shell"),
        env=env,
        network=settings.tools_network,
    )
