"""Checks for files of the owner that cannot be read: CLIs, MCP servers, workflows, personas and
skills."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from storage.records.autonomy import HealthFinding

FaultReader: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""Lists what is wrong with one kind of file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsHealthCheck:
    """`faults` has a reader for each kind of file, by its name."""

    name = "settings"

    faults: Mapping[str, FaultReader]

    async def find(self) -> Sequence[HealthFinding]:
        found = {name: await read() for name, read in self.faults.items()}
        return [
            HealthFinding(
                text="settings_invalid",
                subject=name,
                points=10,
                facts={"file": name, "n": len(faults), "first": faults[0]},
                asks_task=True,
            )
            for name, faults in found.items()
            if faults
        ]
