"""Who does the work: a way of working, and what it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.engine.agent.personas.traits import said
from bot.engine.llm.base import McpServer, Mode
from storage.records.personas import DEFAULT, NONE

__all__ = ["DEFAULT", "NONE", "Persona"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """`name` is lower case and what people type; `title` and `about` are for cards, by language.
    `prompt` goes into the system text, and `purpose` is the line by which a planner chooses.
    `tools` are globs of the tools it may be given: empty for all, and `denied` wins. `backend`,
    `model` and `mode` are used where neither task, step nor chat chooses. `skills` are globs of
    the skills it sees, empty for all. `source` is the file it comes from, empty for those built
    in."""

    name: str
    title: Mapping[str, str]
    about: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    servers: tuple[McpServer, ...] = ()
    backend: str = ""
    model: str = ""
    mode: Mode | None = None
    source: str = ""

    @property
    def charter(self) -> str:
        """What its worker is told of itself; empty for one without a way of its own."""
        return "\n".join(block for block in (self.prompt, said(self.traits)) if block)

    @property
    def purpose(self) -> str:
        """In English where there is such, for a model."""
        return self.about.get("en") or next(iter(self.about.values()), "")

    @property
    def works_in(self) -> Mode:
        return self.mode or Mode.EXECUTE
