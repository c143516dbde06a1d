"""Maps failures of a coding CLI to backend errors."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from bot.engine.llm.backend import (
    BackendDenied,
    BackendError,
    BackendNotReady,
    BackendReadiness,
    BackendUnavailable,
    RunLimitReached,
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
_MAX_DETAIL = 300


class AcpFailure(StrEnum):
    """The value is the suffix of a text key `backend.cli_…`."""

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


# Retrying does not help with these.
_PERMANENT = {
    AcpFailure.MISSING,
    AcpFailure.OLD_NODE,
    AcpFailure.LOGIN,
    AcpFailure.GARBAGE,
    AcpFailure.PROTOCOL,
    AcpFailure.MODE,
}
_LIMITS = {AcpFailure.FLOOD, AcpFailure.SILENT}
_SETUP_HINTS = {
    failed.hint for failed in (AcpFailure.MISSING, AcpFailure.OLD_NODE, AcpFailure.LOGIN)
}


def failure_error(kind: AcpFailure, name: str, detail: str = "") -> Exception:
    """Build the backend error; `detail` is only logged and must be masked already."""
    shortened = " ".join(detail.split())[-_MAX_DETAIL:]
    message = f"{name}: {kind.value}" + (f": {shortened}" if shortened else "")
    if kind in _PERMANENT:
        return BackendDenied(message, hint=kind.hint)
    if kind in _LIMITS:
        return RunLimitReached(message, hint=kind.hint)
    if kind is AcpFailure.DIED:
        error = BackendUnavailable(message)
        error.hint = kind.hint
        return error
    return BackendError(message, hint=kind.hint)


def not_ready_error(readiness: BackendReadiness, name: str) -> BackendNotReady:
    return BackendNotReady(f"{name} cannot work: {readiness.problem}", hint=readiness.problem)


def is_setup_error(error: BackendError) -> bool:
    """Return True if the CLI's installation or login is the problem, not the request."""
    return isinstance(error, BackendDenied) and error.hint in _SETUP_HINTS


def classify_exit(stderr_tail: str) -> AcpFailure:
    """Return why a process ended, judged by the end of its stderr."""
    if _OLD_NODE.search(stderr_tail):
        return AcpFailure.OLD_NODE
    return AcpFailure.LOGIN if _LOGIN.search(stderr_tail) else AcpFailure.DIED


def classify_error_response(code: int, message: str, data: Any) -> AcpFailure:
    if code == AUTH_REQUIRED or _LOGIN.search(f"{message} {data}"[:2000]):
        return AcpFailure.LOGIN
    return AcpFailure.REFUSED
