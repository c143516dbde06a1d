"""Whether this machine has what a skill says it needs. Nothing is ever installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bot.engine.skills.reading import Requires
from storage.records.workers.skills import Lack

_SYSTEMS = {
    "macos": "darwin",
    "mac": "darwin",
    "osx": "darwin",
    "windows": "win32",
    "win": "win32",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is to be had here."""

    which: Callable[[str], str | None] = shutil.which
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    system: str = sys.platform

    def lacks(self, needs: Requires) -> tuple[Lack, ...]:
        """Everything that is missing, each kind by name."""
        systems = {_SYSTEMS.get(each.casefold(), each.casefold()) for each in needs.os}
        missing = {
            "os": needs.os if systems and self.system not in systems else (),
            "bins": tuple(each for each in needs.bins if not self._has(each)),
            "any_bins": () if any(map(self._has, needs.any_bins)) else needs.any_bins,
            "env": tuple(each for each in needs.env if not self.env.get(each)),
            # Settings of another program, which nobody can have made here.
            "config": needs.config,
        }
        return tuple(Lack(key=key, names=names) for key, names in missing.items() if names)

    def _has(self, name: str) -> bool:
        """Programs go by their names: a path could point anywhere."""
        return "/" not in name and "\0" not in name and self.which(name) is not None
