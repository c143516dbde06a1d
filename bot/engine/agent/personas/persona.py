"""Who does the work: a way of working, and what it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.engine.llm.base import McpServer, Mode

DEFAULT = "pragmatist"
"""Who works where nobody was chosen, also for `auto` and unknown names."""

NONE = "none"
"""Works without any way of working of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """`name` is lower case and what people type; `title` is for cards, by language. `prompt` goes
    into the system text. `tools` are globs of the tools it may be given: empty for all, and
    `denied` wins. `backend`, `model` and `mode` are used where neither task, step nor chat
    chooses. `skills` are globs of the skills it sees, empty for all. `source` is the file it
    comes from, empty for those built in."""

    name: str
    title: Mapping[str, str]
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


PRAGMATIST = Persona(
    name=DEFAULT,
    title={"en": "Pragmatist", "zh": "务实派"},
    prompt="Choose the simplest thing that works and finish it.",
)
