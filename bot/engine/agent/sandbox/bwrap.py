"""Bubblewrap: the command gets a file system, processes and a network of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.engine.agent.sandbox.base import Launch, SandboxKind, temporary_for
from bot.engine.agent.sandbox.limits import Limits
from bot.engine.agent.sandbox.view import View, common_git_folder

HARDENED = ("--unshare-user", "--disable-userns")
"""What newer versions, and machines that allow it, can do besides."""

# A repository's hooks and settings are programs that somebody else would run, outside. More can
# be said in new files, so in a folder that is not ours all of it is closed.
_GIT_PROGRAMS = ("hooks", "config", "config.worktree", "info/attributes", "modules")
_SETTINGS = tuple(
    f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs", "mtrr")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """`program` is the binary; `flags` what it was found to support. In `limits` each process is
    held by the shell that becomes the command."""

    program: Path
    view: View
    limits: Limits
    flags: tuple[str, ...] = HARDENED
    kind: SandboxKind = SandboxKind.BUBBLEWRAP

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
        temporary = temporary_for(home)
        options = [
            *("--unshare-all", *self.flags, "--cap-drop", "ALL"),
            *("--die-with-parent", "--new-session"),
            *(("--share-net",) if network else ()),
            *self._seen(readable, network=network),
            *("--dev", "/dev", "--proc", "/proc"),
            *_machine_settings(),
            *("--bind", str(temporary), "/tmp"),  # noqa: S108 - its own, bound there
            *("--symlink", "/tmp", "/var/tmp"),  # noqa: S108 - as before
            *_seen_in_temporary(readable),
            *("--bind", str(home), str(home)),
            *_bound(workspace, writable=writable, ours=self._is_ours(workspace)),
            *self._hidden_in(workspace),
            *self._closed(),
            *("--chdir", str(workspace)),
        ]
        command = ("/bin/sh", "-c", self.limits.shell, "sh", *argv)
        return Launch(
            argv=(str(self.program), *options, "--", *command),
            env={**env, "HOME": str(home), "TMPDIR": "/tmp"},  # noqa: S108 - as before
            cwd=workspace,
        )

    def _seen(self, readable: Sequence[Path], *, network: bool) -> Iterator[str]:
        for path in self.view.readable:
            yield from ("--ro-bind", str(path), str(path))
        for path, target in self.view.links:
            yield from ("--symlink", target, str(path))
        for path in self._hidden:
            yield from _nothing_at(path)
        if network:
            resolver = os.path.realpath("/etc/resolv.conf")
            if not self.view.sees(Path(resolver)):
                yield from ("--ro-bind-try", resolver, resolver)
        for path in readable:
            yield from ("--ro-bind-try", str(path), str(path))

    @property
    def _hidden(self) -> Iterator[Path]:
        for path in self.view.hidden:
            if any(path.is_relative_to(seen) for seen in self.view.readable):
                yield path

    def _closed(self) -> Iterator[str]:
        """Last of all, when everything that is mounted in them is."""
        for path in (*self._hidden, Path("/")):
            if path.is_dir():
                yield from ("--remount-ro", str(path))

    def _is_ours(self, workspace: Path) -> bool:
        """Under our own home nobody but workers runs git."""
        return any(workspace.is_relative_to(path) for path in self.view.hidden)

    def _hidden_in(self, workspace: Path) -> Iterator[str]:
        for path in self.view.hidden:
            if path.is_relative_to(workspace) and path != workspace:
                yield from _nothing_at(path)


def _seen_in_temporary(readable: Sequence[Path]) -> Iterator[str]:
    """What lies there is hidden by the one that is bound over it."""
    for path in readable:
        if path.is_relative_to("/tmp"):  # noqa: S108 - a place to look at, not to write to
            yield from ("--ro-bind-try", str(path), str(path))


def _machine_settings() -> Iterator[str]:
    """Settings of the whole kernel, which root may write even without any of its rights."""
    for name in _SETTINGS:
        yield from ("--ro-bind-try", name, name)


def _bound(workspace: Path, *, writable: bool, ours: bool) -> Iterator[str]:
    """The workspace; its repository can only be read, or where it is `ours` be written except for
    what holds programs."""
    shared = common_git_folder(workspace)
    if shared is not None:
        yield from ("--ro-bind", str(shared), str(shared))
    yield from ("--bind" if writable else "--ro-bind", str(workspace), str(workspace))
    git = workspace / ".git"
    if not writable or git.is_symlink() or not git.exists():
        return
    if git.is_file() or not ours:
        yield from ("--ro-bind", str(git), str(git))
        return
    # Bound onto itself it cannot be moved out of the way.
    yield from ("--bind", str(git), str(git))
    for name in _GIT_PROGRAMS:
        path = git / name
        if path.exists() and not path.is_symlink():
            yield from ("--ro-bind", str(path), str(path))


def _nothing_at(path: Path) -> Iterator[str]:
    if path.is_dir():
        yield from ("--tmpfs", str(path))
    elif path.exists():
        yield from ("--ro-bind", os.devnull, str(path))
