"""Whether a CLI can work here, looked at from outside: nothing is started but `node --version`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bot.engine.llm.acp.failures import Failed
from bot.engine.llm.acp.machine.homes import home_of, is_logged_in, program
from bot.engine.llm.acp.table import Agent
from bot.engine.llm.base import BackendError, Health

_VERSION = re.compile(r"v?(\d+)\.")
_SECONDS = 10.0


def look(agent: Agent, root: Path, around: Mapping[str, str]) -> Health:
    """The first thing that is missing, and how to get it. Blocks."""
    facts = {"name": agent.name, "command": agent.command[0], "get": agent.get}
    try:
        found = program(agent, home_of(root, agent.name, ""), around)
    except BackendError as error:
        return Health(problem=error.hint, facts=facts)
    if agent.node:
        version = _node(found.env["PATH"])
        if version is not None and version < agent.node:
            facts |= {"found": str(version), "needed": str(agent.node)}
            return Health(problem=Failed.OLD_NODE.hint, facts=facts)
    if not is_logged_in(root, agent, around):
        facts["keys"] = ", ".join(agent.keys)
        facts["home"] = str(home_of(root, agent.name, "").path.parent)
        return Health(problem=Failed.LOGIN.hint, facts=facts)
    return Health()


def _node(path: str) -> int | None:
    """The major version on that path; None where there is none: it may bring its own."""
    node = shutil.which("node", path=path)
    if node is None:
        return None
    try:
        told = subprocess.run(  # noqa: S603 - a found program, and no words of others
            (node, "--version"), capture_output=True, text=True, timeout=_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.match(told.strip())
    return int(found[1]) if found else None
