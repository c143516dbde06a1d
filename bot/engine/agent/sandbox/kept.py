"""Commands under a keeper: held in by Landlock, or by nothing where there is no such thing."""

from __future__ import annotations

import json
import os
import sys
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
        confined = self.kind.confines
        spec = {"parent": os.getpid(), "confined": confined, "limits": self._limits()}
        if confined:
            shared = common_git_folder(workspace)
            resolver = Path(os.path.realpath("/etc/resolv.conf"))
            seen = [*self.view.granted(), *readable, *((shared,) if shared else ())]
            seen += [resolver] if network else []
            spec |= {
                "network": network,
                "readable": [str(path) for path in (*seen, *(() if writable else (workspace,)))],
                "writable": [
                    str(path) for path in (home, temporary, *((workspace,) if writable else ()))
                ],
            }
        return Launch(
            argv=(sys.executable, "-I", "-S", str(keeper.__file__), json.dumps(spec), *argv),
            env={**env, "HOME": str(home), "TMPDIR": str(temporary)},
            cwd=workspace,
        )

    def _limits(self) -> Mapping[str, int]:
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_DATA": self.limits.memory,
            "RLIMIT_FSIZE": self.limits.file_size,
            "RLIMIT_NPROC": self.limits.processes,
        }
