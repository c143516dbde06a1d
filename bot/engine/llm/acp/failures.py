"""What goes wrong with a CLI, each with one clear message."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from bot.engine.llm.base import (
    BackendDenied,
    BackendError,
    BackendUnavailable,
    CannotWork,
    Health,
    LimitReached,
    Usage,
)

AUTH_REQUIRED = -32000
METHOD_NOT_FOUND = -32601
_LOGIN = re.compile(
    r"auth(entication|enticate|orization)?[ _-]?(is )?(required|fail)|not logged in|\blog ?in\b|"
    r"unauthorized|invalid api key|\b401\b",
    re.IGNORECASE,
)
_OLD_NODE = re.compile(
    r"unsupported engine|requires? node|node(\.js)? version|ERR_REQUIRE_ESM|"
    r"SyntaxError: (Unexpected token|Invalid regular expression flags)",
    re.IGNORECASE,
)
_SHOWN = 300


class Failed(StrEnum):
    """Each is the end of a catalogue key `backend.cli_…`."""

    MISSING = "missing"
    OLD_NODE = "old_node"
    LOGIN = "login"
    DIED = "died"
    FLOOD = "flood"
    GARBAGE = "garbage"
    PROTOCOL = "protocol"
    SILENT = "silent"
    REFUSED = "refused"
    NO_RESULT = "no_result"
    MODE = "mode"

    @property
    def hint(self) -> str:
        return f"backend.cli_{self.value}"


# What trying again will not help: the rest is like a service that is away.
_FOR_GOOD = {
    Failed.MISSING,
    Failed.OLD_NODE,
    Failed.LOGIN,
    Failed.GARBAGE,
    Failed.PROTOCOL,
    Failed.MODE,
}
_LIMITS = {Failed.FLOOD, Failed.SILENT}
_UNFIT = {failed.hint for failed in (Failed.MISSING, Failed.OLD_NODE, Failed.LOGIN)}


def failure(failed: Failed, name: str, said: str = "", *, usage: Usage | None = None) -> Exception:
    """`said` goes to the log only, its secrets masked already."""
    told = " ".join(said.split())[-_SHOWN:]
    message = f"{name}: {failed.value}" + (f": {told}" if told else "")
    if failed in _FOR_GOOD:
        return BackendDenied(message, usage=usage, hint=failed.hint)
    if failed in _LIMITS:
        return LimitReached(message, usage=usage, hint=failed.hint)
    if failed is Failed.DIED:
        error = BackendUnavailable(message, usage=usage)
        error.hint = failed.hint
        return error
    return BackendError(message, usage=usage, hint=failed.hint)


def of_health(health: Health, name: str) -> CannotWork:
    """It cannot even be started."""
    return CannotWork(f"{name} cannot work: {health.problem}", hint=health.problem)


def is_unfit(error: BackendError) -> bool:
    """True where it is the CLI that is missing something, whatever it is asked."""
    return isinstance(error, BackendDenied) and error.hint in _UNFIT


def of_death(last_words: str) -> Failed:
    """Why a process ended, by what it said last."""
    if _OLD_NODE.search(last_words):
        return Failed.OLD_NODE
    return Failed.LOGIN if _LOGIN.search(last_words) else Failed.DIED


def of_refusal(code: int, message: str, data: Any) -> Failed:
    """Why it answered a request with an error."""
    if code == AUTH_REQUIRED or _LOGIN.search(f"{message} {data}"[:2000]):
        return Failed.LOGIN
    return Failed.REFUSED
