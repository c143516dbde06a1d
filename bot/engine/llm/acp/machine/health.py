"""Whether a CLI can work here, looked at from outside: nothing is started but `node --version`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bot.engine.llm.acp.failures import Failed
from bot.engine.llm.acp.machine.homes import home_of, is_logged_in, program
from bot.engine.llm.acp.table import Agent
from bot.engine.llm.base import BackendError, Health

_VERSION = re.compile(r"v?(\d+)\.")
_SECONDS = 10.0
_ANYHOW = "backend.get.anyhow"
_ITS_KEY = "backend.get.key"


def look(
    agent: Agent, root: Path, around: Mapping[str, str], node: Callable[[str], int | None]
) -> Health:
    """The first thing that is missing, and how to get it; `node` tells the major version on a
    path. Looks at a handful of files."""
    facts = {"name": agent.name, "command": agent.command[0], "get": agent.get or _ANYHOW}
    try:
        found = program(agent, home_of(root, agent.name, ""), around)
    except BackendError as error:
        return Health(problem=error.hint, facts=facts)
    version = node(found.env["PATH"]) if agent.node else None
    if version is not None and version < agent.node:
        facts |= {"found": str(version), "needed": str(agent.node)}
        return Health(problem=Failed.OLD_NODE.hint, facts=facts)
    if not is_logged_in(root, agent, around):
        return Health(problem=Failed.LOGIN.hint, facts={**facts, **_where_to_log_in(agent, root)})
    return Health(facts=facts)


def after_refusal(found: Health, problem: str, agent: Agent, root: Path) -> Health:
    """The same, now that it was really asked and this is what it lacks."""
    if problem == Failed.LOGIN.hint:
        return replace(
            found, problem=problem, facts={**found.facts, **_where_to_log_in(agent, root)}
        )
    # Which Node.js it has and wants is only known where it can be seen from outside.
    return replace(found, problem=problem, facts={})


def _where_to_log_in(agent: Agent, root: Path) -> Mapping[str, str]:
    keys = " / ".join(agent.keys) or _ITS_KEY
    return {"keys": keys, "home": str(home_of(root, agent.name, "").path.parent)}


class Nodes:
    """Which Node.js is where, asked of each once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], int | None] = {}

    def known(self, path: str) -> int | None:
        """None too where nobody has asked yet. Runs nothing."""
        place = _place(path)
        return None if place is None else self._known.get(place)

    def ask(self, path: str) -> int | None:
        """Blocks the first time."""
        place = _place(path)
        if place is None:
            return None
        if place not in self._known:
            self._known[place] = _version(place[0])
        return self._known[place]


def _place(path: str) -> tuple[str, int] | None:
    node = shutil.which("node", path=path)
    try:
        return None if node is None else (node, Path(node).stat().st_mtime_ns)
    except OSError:
        return None


def _version(node: str) -> int | None:
    """The major version; None where it does not tell: the CLI may bring its own."""
    try:
        told = subprocess.run(  # noqa: S603 - a found program, and no words of others
            (node, "--version"), capture_output=True, text=True, timeout=_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.match(told.strip())
    return int(found[1]) if found else None
