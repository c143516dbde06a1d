"""Who does the work, as people choose them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT = "pragmatist"
"""Who works where nobody was chosen, also for `auto` and unknown names."""

NONE = "none"
"""Works without any way of working of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """What people are shown of a persona. `name` is what they type; `title` and `about` are by
    language, with what there is of them. `mode` is empty where it may do all that a worker may.
    `servers` are the names of its MCP servers; `source` is its file, empty for those built in."""

    name: str
    title: Mapping[str, str] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    backend: str = ""
    model: str = ""
    mode: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaFault:
    """A persona's file that is not used. `why` is a catalogue key under `persona.fault`, with its
    `detail`: a key's name, or what the reader said."""

    file: str
    why: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """All personas, those built in first, and the files that are not used."""

    personas: tuple[Portrait, ...]
    faults: tuple[PersonaFault, ...] = ()

    def find(self, name: str) -> Portrait | None:
        """By name or title in any language; None for nobody."""
        wanted = name.strip().casefold()
        for each in self.personas:
            if wanted == each.name or wanted in {t.casefold() for t in each.title.values()}:
                return each
        return None
