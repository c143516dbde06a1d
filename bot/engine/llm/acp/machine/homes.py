"""Where a CLI lives: a home for each persona, what is put in it, and where its program is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.engine.llm.acp.failures import Failed, failure
from bot.engine.llm.acp.machine.process import environment
from bot.engine.llm.acp.table import Agent

FOLDER = "agents"
_UNSAFE = re.compile(r"[^\w-]")
_NOBODY = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Its sessions, logins and settings are in `path`; the same home goes on with them. `log` and
    `wishes` are ours: the CLI does not write there."""

    path: Path
    scratch: Path
    log: Path
    wishes: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Found on this machine: whole paths, and what must be readable to run it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    readable: tuple[Path, ...]


def home_of(root: Path, agent: str, persona: str) -> Home:
    """Only names it; see `furnish`."""
    folder = root / FOLDER / agent
    who = _UNSAFE.sub("_", persona)[:64] or _NOBODY
    return Home(
        path=folder / who,
        scratch=folder / who / "scratch",
        log=folder / f"{who}.log",
        wishes=folder / f"{who}.wishes",
    )


def furnish(home: Home, agent: Agent) -> None:
    """Make what is missing; what is there stays as people have changed it. Blocks."""
    for folder in (home.path, home.scratch):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in agent.files.items():
        path = home.path / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def program(agent: Agent, home: Home, around: Mapping[str, str], model: str = "") -> Program:
    """Raises BackendDenied where it is not installed. Blocks."""
    given = dict(agent.given)
    if model and agent.model_env:
        given[agent.model_env] = model
    env = environment(around, agent.env, given, home=home.path)
    env["PATH"] = ":".join((*agent.path, env.get("PATH", "/usr/local/bin:/usr/bin:/bin")))
    found = shutil.which(agent.command[0], path=env["PATH"])
    if found is None:
        raise failure(Failed.MISSING, agent.name, agent.command[0])
    node = shutil.which("node", path=env["PATH"]) if agent.node else None
    places = [_installed(Path(found)), *([Path(node).resolve().parent.parent] if node else [])]
    named = [Path(word) for word in agent.command[1:] if word.startswith("/")]
    readable = (Path(found).parent, *places, *map(Path, agent.path), *named)
    return Program(
        argv=(found, *agent.command[1:]), env=env, readable=tuple(dict.fromkeys(readable))
    )


def is_logged_in(root: Path, agent: Agent, around: Mapping[str, str]) -> bool:
    """As far as can be seen from outside, in any persona's home. Blocks."""
    if not agent.keys and not agent.logins:
        return True
    if any(around.get(key) or agent.given.get(key) for key in agent.keys):
        return True
    return next(logins_of(root, agent), None) is not None


def logins_of(root: Path, agent: Agent) -> Iterator[Path]:
    """The files that say so, in all homes. Blocks."""
    folder = root / FOLDER / agent.name
    return (path for name in agent.logins for path in folder.glob(f"*/{name}"))


def _installed(found: Path) -> Path:
    """The folder with all that belongs to the program."""
    real = found.resolve()
    outer = [parent for parent in real.parents if parent.name == "node_modules"]
    return outer[-1] if outer else real.parent
