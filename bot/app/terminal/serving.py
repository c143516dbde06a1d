"""MCP messages from a shell: answered by the program that runs on the home, or here and now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bot.app.failures import StartFailure
from bot.app.terminal.address import Running
from bot.app.terminal.calls import NobodyThere, Refused, post
from bot.app.terminal.commands import reach
from bot.config.settings import Settings
from bot.engine.agent.mcp.serving import rpc

PATH = "/mcp"
_READY: set[Path] = set()


def answered(settings: Settings, message: Any, scopes: Sequence[str]) -> Any:
    """See `rpc.known`. Never raises for what a client may send. Blocking."""
    quick = rpc.known(message)
    if quick is not None:
        return quick
    path = f"{PATH}?{urlencode([('scope', each) for each in scopes])}"
    body = rpc.written(message)

    def there(running: Running) -> Any:
        return post(running, path, body)

    try:
        return reach(settings, there, lambda: _here(settings, message, scopes))
    except (StartFailure, NobodyThere, Refused) as failed:
        return rpc.error(message["id"], rpc.BROKEN, str(failed))


def _here(settings: Settings, message: Any, scopes: Sequence[str]) -> Any:
    # The engine and the store are loaded only where no running program has them loaded already.
    from bot.app.terminal.opening import explained
    from bot.app.terminal.shelf import answer

    with explained(settings):
        _prepared(settings)
        return asyncio.run(answer(settings, message, scopes))


def _prepared(settings: Settings) -> None:
    """Once in a process that answers many times."""
    if settings.home in _READY:
        return
    from bot.app.terminal.opening import prepare

    prepare(settings, "ERROR" if settings.log_level == "ERROR" else "WARNING")
    _READY.add(settings.home)


def hooked(settings: Settings, hook: str, text: str, scopes: Sequence[str]) -> str:
    """What a coding CLI is to be told; empty for nothing, and where nothing was ever kept."""
    if not settings.home.is_dir():
        return ""
    params = {"hook": hook, "text": text}
    message = {"jsonrpc": "2.0", "id": 1, "method": rpc.HOOK, "params": params}
    told = answered(settings, message, scopes)
    return str(told.get("result", {}).get("text", ""))
