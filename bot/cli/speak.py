"""Carry a command out as the local owner, print what it led to, and end with the right status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

import typer

from bot.cli.failures import told
from storage.memory.lexicon.unseen import revealed

_IDLE = "nothing runs on this home now: `shiftboss run`, or `shiftboss dispatch`, does the work"


def speak(
    said: str,
    *,
    as_json: bool = False,
    show: Callable[[Any], tuple[str, Any]] | None = None,
    needs_worker: bool = False,
) -> None:
    """Status 1 if it is refused, 2 if it cannot be carried out. `show` makes of the answer's data
    what is printed: as text, and as JSON. `needs_worker` says so where no program runs that would
    go on with it."""
    answer = _answer(said, as_json=as_json)
    text, data = answer.text, answer.data
    if answer.good and show is not None and data is not None:
        text, data = show(data)
    if needs_worker and answer.good:
        if not answer.running:
            typer.echo(f"shiftboss: {_IDLE}", err=True)
        data = data if data is None else {**data, "running": answer.running}
    if as_json:
        plain = {"text": answer.text} if data is None else data
        if not answer.good and not (isinstance(plain, dict) and "error" in plain):
            plain = {"error": answer.text}
        typer.echo(revealed(json.dumps(plain, ensure_ascii=False, indent=2)))
    else:
        # Others may have said it: nothing in it steers the terminal that shows it.
        typer.echo(revealed(text))
    if not answer.good:
        raise typer.Exit(1)


def _answer(said: str, *, as_json: bool) -> Any:
    with told(as_json=as_json):
        # Loaded here and not above, so that `--help` stays quick.
        from bot.app.terminal.calls import Refused
        from bot.app.terminal.commands import carry_out
        from bot.config.settings import load_settings

        try:
            return carry_out(load_settings(), said)
        except Refused as error:
            fail(str(error), as_json=as_json)


def fail(why: str, *, as_json: bool = False, status: int = 1) -> NoReturn:
    if as_json:
        typer.echo(json.dumps({"error": why}, ensure_ascii=False, indent=2))
    typer.echo(f"shiftboss: {revealed(why)}", err=True)
    raise typer.Exit(status)
