"""Checks that the running program, the installed one and the store are of one version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.records.autonomy import HealthFinding
from storage.self_checks import HealthFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionHealthCheck:
    """`running` and `revision` are what the program was started with; `installed` is what is there
    now."""

    name = "version"

    figures: HealthFigures
    revision: str
    running: str
    installed: Callable[[], str]

    async def find(self) -> Sequence[HealthFinding]:
        found: list[HealthFinding] = []
        stored = await self.figures.schema_revision()
        if stored != self.revision:
            facts = {"store": stored, "program": self.revision}
            found.append(HealthFinding(text="version_schema", points=30, facts=facts))
        installed = self.installed()
        if installed != self.running:
            facts = {"installed": installed, "running": self.running}
            found.append(HealthFinding(text="version_restart", points=15, facts=facts))
        return found
