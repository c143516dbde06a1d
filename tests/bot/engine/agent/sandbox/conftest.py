"""Each sandbox that this machine can have, over a workspace with secrets around it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.engine.agent.sandbox import keeper, probe
from bot.engine.agent.sandbox.base import Sandbox, SandboxKind
from bot.engine.agent.sandbox.bwrap import Bubblewrap
from bot.engine.agent.sandbox.kept import Kept
from bot.engine.agent.sandbox.limits import limits_here
from bot.engine.agent.sandbox.processes import Ended, run
from bot.engine.agent.sandbox.view import environment, view_of

SECRET = "s3cret-beside-the-workspace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
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
    ) -> Ended:
        launch = self.sandbox.wrap(
            ("bash", "-c", command),
            workspace=self.workspace,
            network=network,
            env=environment(self.around, view=self.sandbox.view),
            home=self.home,
            writable=writable,
        )
        return await run(
            launch, seconds=seconds, most_processes=most_processes, most_printed=most_printed
        )

    async def says(self, command: str, *, network: bool = False) -> str:
        return (await self.run(command, network=network)).head.decode("utf-8", "replace")


def cell_of(kind: SandboxKind, root: Path) -> Cell:
    """Skips the test where this machine has no such sandbox."""
    house, workspace = root / "house", root / "house" / "work" / "t1"
    home = root / "house" / "shell" / "t1"
    for folder in (workspace, home):
        folder.mkdir(parents=True)
    secret = root / "secret.txt"
    secret.write_text(SECRET)
    (house / ".env").write_text(f"TELEGRAM_BOT_TOKEN={SECRET}")
    view, limits = view_of(secrets=(house,)), limits_here()
    sandbox: Sandbox = Kept(kind=kind, view=view, limits=limits)
    if kind is SandboxKind.BUBBLEWRAP:
        candidates = [
            Bubblewrap(program=program, view=view, limits=limits)
            for program in probe._bubblewraps()
        ]
        sandbox = next((each for each in candidates if probe.holds(each)), sandbox)
        if sandbox.kind is not SandboxKind.BUBBLEWRAP or not isinstance(sandbox, Bubblewrap):
            pytest.skip("no bubblewrap can run here")
    if kind is SandboxKind.LANDLOCK and keeper.landlock_abi() < keeper.LEAST_ABI:
        pytest.skip("this kernel has no Landlock that will do")
    return Cell(sandbox=sandbox, workspace=workspace, home=home, secret=secret, house=house)


@pytest.fixture(params=[SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK], ids=str)
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    return cell_of(request.param, tmp_path.resolve())


@pytest.fixture(params=list(SandboxKind), ids=str)
def any_cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    """Also where nothing confines."""
    return cell_of(request.param, tmp_path.resolve())
