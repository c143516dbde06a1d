"""Commands that speak to a running Shiftboss as its local owner."""

from __future__ import annotations

import json
from typing import Annotated, Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import typer

from bot.cli.failures import told

_PATIENCE = 120.0


def say(
    text: Annotated[str, typer.Argument(help="A command such as /list, or plain words.")],
) -> None:
    """Say something to the running Shiftboss and print its answer; status 1 if it refused."""
    _speak(text)


def pair(
    code: Annotated[str, typer.Argument(help="The code a new person was shown.")],
) -> None:
    """Let the person with this pairing code in."""
    _speak(f"/pair {code}")


def _speak(text: str) -> None:
    answer = _said(text)
    typer.echo("\n\n".join(str(card["text"]) for card in answer["cards"]))
    if not answer["good"]:
        raise typer.Exit(1)


def _said(text: str) -> dict[str, Any]:
    with told():
        from bot.app.address import find_running
        from bot.config.settings import load_settings

        running = find_running(load_settings())
    request = Request(  # noqa: S310 - the address is our own, written by the running program
        f"{running.url}/api/say",
        data=json.dumps({"text": text}).encode(),
        headers={
            "Authorization": f"Bearer {running.token}",
            "Content-Type": "application/json",
        },
    )
    try:
        with urlopen(request, timeout=_PATIENCE) as response:  # noqa: S310 - as above
            answer: dict[str, Any] = json.load(response)
            return answer
    except HTTPError as error:
        _fail(f"it answered {error.code}: {error.read().decode(errors='replace')[:500]}")
    except (URLError, TimeoutError, ConnectionError) as error:
        _fail(f"nobody answers at {running.url} ({error}). Is `shiftboss run` running?")


def _fail(why: str) -> NoReturn:
    typer.echo(f"shiftboss: {why}", err=True)
    raise typer.Exit(1)
