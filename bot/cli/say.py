"""Commands that speak to a running Shiftboss as its local owner."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.failures import told
from bot.cli.speak import fail
from storage.memory.lexicon.unseen import revealed


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
    with told():
        # Loaded here and not above, so that `--help` stays quick.
        from bot.app.terminal.address import find_running
        from bot.app.terminal.calls import NobodyThere, Refused, call
        from bot.config.settings import load_settings

        running = find_running(load_settings())
    try:
        # Commands are a program's business; plain words are a part of the conversation.
        answer = call(running, text, quiet=text.lstrip().startswith(("/", "／")))
    except NobodyThere as error:
        fail(f"{error}. Is `shiftboss run` running?")
    except Refused as error:
        fail(str(error))
    typer.echo(revealed(answer.text))
    if not answer.good:
        raise typer.Exit(1)
