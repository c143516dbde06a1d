"""HTTP client for the Shiftboss running on this data directory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from bot.app.running_program import RunningProgram

_REQUEST_SECONDS = 120.0
_NOT_OUR_SERVER = frozenset({400, 401, 403, 404})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAnswer:
    """Result of a command, as text and as JSON values if available. `running` is False if the
    command was executed in this process."""

    text: str
    good: bool
    data: Any = None
    running: bool = True


class ProgramUnreachable(Exception):
    """No Shiftboss answers at the address, or another one does. The text says how."""


class CommandRefused(Exception):
    """Shiftboss refused the request. The text is its answer."""


def send_command(
    running: RunningProgram, text: str, *, id: str = "", buttons: bool = True, quiet: bool = False
) -> CommandAnswer:
    """Send a message and wait for the answer. A repeated `id` is the same message. `quiet` hides it
    from the web chat."""
    body = json.dumps({"text": text, "id": id, "buttons": buttons, "quiet": quiet}).encode()
    told = post_json(running, "/api/say", body)
    shown = "\n\n".join(str(card["text"]) for card in told["cards"])
    return CommandAnswer(text=shown, good=bool(told["good"]), data=told.get("data"))


def post_json(
    running: RunningProgram, path: str, body: bytes, *, wait_seconds: float = _REQUEST_SECONDS
) -> Any:
    """The answer as JSON, None if empty. Raises ProgramUnreachable and CommandRefused."""
    request = Request(  # noqa: S310 - the address is our own, written by the running program
        f"{running.url}{path}",
        data=body,
        headers={"Authorization": f"Bearer {running.token}", "Content-Type": "application/json"},
    )
    try:
        # Without the environment's proxy, since the address is local.
        with build_opener(ProxyHandler({})).open(request, timeout=wait_seconds) as response:
            said = response.read()
            return json.loads(said) if said else None
    except HTTPError as error:
        said = error.read().decode(errors="replace")[:500]
        if error.code in _NOT_OUR_SERVER:
            raise ProgramUnreachable(f"{running.url} answered {error.code}: {said}") from error
        raise CommandRefused(f"it answered {error.code}: {said}") from error
    except TimeoutError as error:
        raise CommandRefused(
            f"it took longer than {wait_seconds:g} s; see `shiftboss task ls`"
        ) from error
    except (URLError, OSError, HTTPException, ValueError) as error:
        raise ProgramUnreachable(f"nobody answers at {running.url} ({error})") from error
