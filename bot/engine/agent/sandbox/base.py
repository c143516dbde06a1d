"""What holds a command in: the protocol of all kinds of sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from bot.engine.agent.sandbox.view import View


class SandboxKind(StrEnum):
    """From strong to none. Where there is none, every command needs a person's consent."""

    BUBBLEWRAP = "bwrap"
    LANDLOCK = "landlock"
    NONE = "none"

    @property
    def confines(self) -> bool:
        return self is not SandboxKind.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command, held in. To be started in a session of its own; it ends, with all that it
    started, when its process is killed by TERM, or when ours dies."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path


class Sandbox(Protocol):
    @property
    def kind(self) -> SandboxKind: ...

    @property
    def view(self) -> View:
        """What can be seen in it besides the workspace."""
        ...

    def wrap(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        network: bool,
        env: Mapping[str, str],
        home: Path,
        readable: Sequence[Path] = (),
        writable: bool = True,
    ) -> Launch:
        """Hold `argv` in: it starts in `workspace` and may write there and in `home`, both
        absolute and there already, and nowhere else; with `writable` false only in `home`. It
        sees the system's own folders and `readable`, nobody else's files, no other processes,
        and no network unless `network`. `env` is all of its environment, and gets HOME and a
        TMPDIR. Blocking, but short."""
        ...


def temporary_for(home: Path) -> Path:
    """Beside it: what a command can write, it may have turned into a link to anywhere."""
    temporary = home.with_name(f"{home.name}.tmp")
    temporary.mkdir(exist_ok=True)
    return temporary
