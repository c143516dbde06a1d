"""The check of the sandbox."""

from __future__ import annotations

from typing import Any

from bot.engine.autonomy.checks.workers import SandboxHealthCheck
from bot.engine.sandbox.backends import SupervisedSandbox
from bot.engine.sandbox.spec import FilesystemView, ProcessLimits, SandboxKind
from tests.bot.engine.autonomy.checks.health_world import found_by


def check_of(kind: SandboxKind, *, is_root: bool) -> SandboxHealthCheck:
    limits = ProcessLimits(memory=1, processes=1, user=0)
    view = FilesystemView(readable=())

    async def detect() -> Any:
        return SupervisedSandbox(kind=kind, view=view, limits=limits)

    return SandboxHealthCheck(detect=detect, is_root=is_root)


async def test_what_does_not_confine_commands_is_found() -> None:
    none = await found_by(check_of(SandboxKind.NONE, is_root=False))
    root = await found_by(check_of(SandboxKind.LANDLOCK, is_root=True))

    assert {*none} == {"sandbox_none", "limits_watched"}
    assert {*root} == {"commands_as_root"}
    assert root["commands_as_root"].is_told
    assert not none["limits_watched"].is_told
