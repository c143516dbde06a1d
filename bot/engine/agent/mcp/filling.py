"""`${NAME}` in what an MCP server is given: taken from the variables that may be named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from bot.engine.agent.mcp.wire import McpFailed
from bot.engine.llm.base import McpServer

_SHORTEST_SECRET = 8
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def filled(server: McpServer, variables: Mapping[str, str]) -> McpServer:
    """The same with values for names. Raises McpFailed where a variable is not set."""
    return replace(
        server,
        env={name: _value(told, variables) for name, told in server.env.items()},
        headers={name: _value(told, variables) for name, told in server.headers.items()},
        secrets=secrets_of(server, variables),
    )


def secrets_of(server: McpServer, variables: Mapping[str, str]) -> tuple[str, ...]:
    """The values that are taken from variables, the longest first: nothing for it to say."""
    named = " ".join((*server.env.values(), *server.headers.values()))
    given = {variables.get(name, "") for name in _VARIABLE.findall(named)}
    return tuple(sorted((each for each in given if len(each) >= _SHORTEST_SECRET), key=_by_length))


def _by_length(text: str) -> tuple[int, str]:
    return -len(text), text


def _value(told: str, variables: Mapping[str, str]) -> str:
    def known(found: re.Match[str]) -> str:
        if found[1] not in variables:
            raise McpFailed("variable", f"the variable {found[1]} is not set")
        return variables[found[1]]

    return _VARIABLE.sub(known, told)
