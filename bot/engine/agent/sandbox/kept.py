"""Commands under a keeper: held in by Landlock, or by nothing where there is no such thing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.engine.agent.sandbox import keeper
from bot.engine.agent.sandbox.base import Launch, SandboxKind, temporary_for
from bot.engine.agent.sandbox.limits import Limits
from bot.engine.agent.sandbox.view import View, common_git_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Satisfies `Sandbox`, as LANDLOCK or as NONE. Landlock can only allow: what is hidden in a
    workspace, and a repository's hooks there, it cannot keep from a command."""

    kind: SandboxKind
    view: View
    limits: Limits

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
        shared = common_git_folder(workspace)
        resolver = Path(os.path.realpath("/etc/resolv.conf"))
        seen = [*self.view.granted, *readable, *((shared,) if shared else ())]
        seen += [*((resolver,) if network else ()), *(() if writable else (workspace,))]
        own = [home, temporary, *((workspace,) if writable else ())]
        spec: keeper.Spec = {
            "parent": os.getpid(),
            "limits": self._limits(),
            "confined": self.kind.confines,
            "network": network,
            "readable": list(map(str, seen)),
            "writable": list(map(str, own)),
        }
        return Launch(
            argv=keeper.command(spec, argv),
            env={**env, "HOME": str(home), "TMPDIR": str(temporary)},
            cwd=workspace,
        )

    def _limits(self) -> dict[str, int]:
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_DATA": self.limits.memory,
            "RLIMIT_FSIZE": self.limits.file_size,
            "RLIMIT_NPROC": self.limits.processes,
        }
