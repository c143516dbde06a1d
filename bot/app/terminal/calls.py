"""Speaking to the program that runs on a home, over its own HTTP address."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from bot.app.terminal.address import Running

_PATIENCE = 120.0
_NOT_OURS = frozenset({400, 401, 403, 404})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command led to: as text, and as plain JSON values where there are such. `running`
    says that a program answered, and not the command itself."""

    text: str
    good: bool
    data: Any = None
    running: bool = True


class NobodyThere(Exception):
    """No program answers at that address, or another one does. The text says how."""


class Refused(Exception):
    """The program did not take it. The text is what it said."""


def call(
    running: Running, text: str, *, id: str = "", buttons: bool = True, quiet: bool = False
) -> Answer:
    """Say something and wait for the answer. The same `id` again is the same message. What is
    `quiet` is not seen in the web chat."""
    body = json.dumps({"text": text, "id": id, "buttons": buttons, "quiet": quiet}).encode()
    told = post(running, "/api/say", body)
    shown = "\n\n".join(str(card["text"]) for card in told["cards"])
    return Answer(text=shown, good=bool(told["good"]), data=told.get("data"))


def post(running: Running, path: str, body: bytes, *, patience: float = _PATIENCE) -> Any:
    """Its answer, read as JSON; None where it is empty. Raises NobodyThere and Refused."""
    request = Request(  # noqa: S310 - the address is our own, written by the running program
        f"{running.url}{path}",
        data=body,
        headers={
            "Authorization": f"Bearer {running.token}",
            "Content-Type": "application/json",
        },
    )
    try:
        # Whatever proxy the environment names: this machine is reached without one.
        with build_opener(ProxyHandler({})).open(request, timeout=patience) as response:
            said = response.read()
            return json.loads(said) if said else None
    except HTTPError as error:
        said = error.read().decode(errors="replace")[:500]
        if error.code in _NOT_OURS:
            raise NobodyThere(f"{running.url} answered {error.code}: {said}") from error
        raise Refused(f"it answered {error.code}: {said}") from error
    except TimeoutError as error:
        raise Refused(f"it took longer than {patience:g} s; see `shiftboss task ls`") from error
    except (URLError, OSError, HTTPException, ValueError) as error:
        raise NobodyThere(f"nobody answers at {running.url} ({error})") from error
