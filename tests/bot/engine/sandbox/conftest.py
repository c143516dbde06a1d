"""Each sandbox that this machine can have, over a workspace with secrets around it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.engine.sandbox import backends, supervisor
from bot.engine.sandbox.backends import BubblewrapSandbox, SupervisedSandbox
from bot.engine.sandbox.process_runner import ProcessResult, run_process
from bot.engine.sandbox.spec import (
    Sandbox,
    SandboxedCommand,
    SandboxKind,
    build_view,
    command_environment,
    default_limits,
    unused_user_id,
)

SECRET = "s3cret-beside-the-workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxCell:
    """A sandbox with its workspace; `secret` is the bait beside it, `house` our own home."""

    sandbox: Sandbox
    workspace: Path
    home: Path
    secret: Path
    house: Path
    around: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    async def run(
        self,
        command: str,
        *,
        seconds: float = 60,
        network: bool = False,
        writable: bool = True,
        most_processes: int = 1000,
        most_printed: int = 100_000_000,
        readable: tuple[Path, ...] = (),
    ) -> ProcessResult:
        launch = self.sandbox.wrap(
            SandboxedCommand(
                argv=("bash", "-c", command),
                workspace=self.workspace,
                network=network,
                env=command_environment(self.around, view=self.sandbox.view),
                home=self.home,
                writable=writable,
                readable=readable,
            )
        )
        return await run_process(
            launch, seconds=seconds, max_processes=most_processes, max_output=most_printed
        )

    async def says(self, command: str, *, network: bool = False) -> str:
        return (await self.run(command, network=network)).head.decode("utf-8", "replace")


def build_cell(kind: SandboxKind, root: Path, *, keeps_root: bool = False) -> SandboxCell:
    """Skips the test where this machine has no such sandbox. Commands of root run as another user
    in it unless `keeps_root`."""
    house, workspace = root / "house", root / "house" / "work" / "t1"
    home = root / "house" / "shell" / "t1"
    for folder in (workspace, home):
        folder.mkdir(parents=True)
    secret = root / "secret.txt"
    secret.write_text(SECRET)
    (house / ".env").write_text(f"TELEGRAM_BOT_TOKEN={SECRET}")
    view, limits = build_view(secrets=(house,)), default_limits()
    if os.geteuid() == 0 and kind.confines and not keeps_root:
        limits = default_limits(user=unused_user_id())
    sandbox: Sandbox = SupervisedSandbox(kind=kind, view=view, limits=limits)
    if kind is SandboxKind.BUBBLEWRAP:
        candidates = [
            BubblewrapSandbox(program=program, view=view, limits=limits)
            for program in backends._find_bubblewraps()
        ]
        sandbox = next((each for each in candidates if backends.is_confining(each)), sandbox)
        if sandbox.kind is not SandboxKind.BUBBLEWRAP or not isinstance(sandbox, BubblewrapSandbox):
            pytest.skip("no bubblewrap can run here")
    if kind is SandboxKind.LANDLOCK and supervisor.landlock_abi() < supervisor.MIN_LANDLOCK_ABI:
        pytest.skip("this kernel has no Landlock that will do")
    return SandboxCell(sandbox=sandbox, workspace=workspace, home=home, secret=secret, house=house)


@pytest.fixture(params=[SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK], ids=str)
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> SandboxCell:
    return build_cell(request.param, tmp_path.resolve())


@pytest.fixture(params=list(SandboxKind), ids=str)
def any_cell(request: pytest.FixtureRequest, tmp_path: Path) -> SandboxCell:
    """Also where nothing confines."""
    return build_cell(request.param, tmp_path.resolve())
