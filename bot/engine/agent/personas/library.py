"""Who there is: the personas built in, and those in files, as they are now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bot.engine.agent.personas.builtin import BUILT_IN, PRAGMATIST
from bot.engine.agent.personas.files import SUFFIXES, BadPersona, persona_in
from bot.engine.agent.personas.persona import Persona
from storage.records.personas import PersonaFault, Portrait, Roster

log = logging.getLogger(__name__)

FOLDER = "personas"
MOST_FILES = 100

Print: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Each file's name, time, size and number: changed files have another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """The folder as it was read last."""

    print: Print
    personas: Mapping[str, Persona]
    faults: tuple[PersonaFault, ...] = ()


class PersonaLibrary:
    """Satisfies `workbench.Personas` and `handlers.services.personas.Personas`. Files are read
    again when they have changed, each time somebody is asked for; a bad one is left out and
    reported, and the log says so once."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER
        self._last = _Read(print=(), personas=BUILT_IN)

    async def get(self, name: str) -> Persona:
        return (await self._read()).personas.get(name.strip().casefold(), PRAGMATIST)

    async def known(self) -> Mapping[str, Persona]:
        return (await self._read()).personas

    async def roster(self) -> Roster:
        read = await self._read()
        return Roster(personas=tuple(map(_portrait, read.personas.values())), faults=read.faults)

    async def _read(self) -> _Read:
        now = await asyncio.to_thread(self._newest, self._last)
        if now is not self._last:
            for fault in set(now.faults) - set(self._last.faults):
                log.warning("persona %s is left out: %s %s", fault.file, fault.why, fault.detail)
            self._last = now
        return now

    def _newest(self, last: _Read) -> _Read:
        paths = _paths(self._folder)
        now = _print(paths)
        if now == last.print:
            return last
        found: dict[str, Persona] = {}
        faults: list[PersonaFault] = []
        for path in paths:
            try:
                persona = persona_in(path, BUILT_IN)
            except BadPersona as error:
                faults.append(PersonaFault(file=path.name, why=error.why, detail=error.detail))
                continue
            first = found.setdefault(persona.name, persona)
            if first is not persona:
                faults.append(PersonaFault(file=path.name, why="twice", detail=first.source))
        return _Read(print=now, personas={**BUILT_IN, **found}, faults=tuple(faults))


def _paths(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError:
        return []
    names = [path for path in inside if path.suffix.lower() in SUFFIXES]
    return [path for path in names if not path.name.startswith(".")][:MOST_FILES]


def _print(paths: list[Path]) -> Print:
    return tuple(_mark(path) for path in paths)


def _mark(path: Path) -> tuple[str, int, int, int]:
    try:
        seen = path.stat()
    except OSError:
        return path.name, 0, 0, 0
    return path.name, seen.st_mtime_ns, seen.st_size, seen.st_ino


def _portrait(persona: Persona) -> Portrait:
    return Portrait(
        name=persona.name,
        title=persona.title,
        about=persona.about,
        prompt=persona.prompt,
        traits=persona.traits,
        tools=persona.tools,
        denied=persona.denied,
        skills=persona.skills,
        servers=tuple(server.name for server in persona.servers),
        backend=persona.backend,
        model=persona.model,
        mode=str(persona.mode or ""),
        source=persona.source,
    )
