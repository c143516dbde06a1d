"""`shiftboss trace`: what a task's run was made of, also as a file for OpenTelemetry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bot.cli import lines
from bot.cli.parameters import Json
from bot.cli.speak import fail, speak


def trace(
    task: Annotated[
        str, typer.Argument(metavar="[ID|talk]", help="The task; left out, the newest.")
    ] = "",
    *,
    slow: Annotated[bool, typer.Option("--slow", help="What took long by itself.")] = False,
    errors: Annotated[bool, typer.Option("--errors", help="What went wrong.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="What it cost, by step.")] = False,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Every single span.")] = False,
    otlp: Annotated[
        str, typer.Option("--otlp", metavar="FILE", help="Write it as OTLP JSON; - to the screen.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show what a task, or with `talk` the last answer, is doing and did, with time and cost."""
    modes = [name for name, on in (("slow", slow), ("errors", errors), ("cost", cost)) if on]
    if len(modes) > 1 or (modes and (everything or otlp)):
        fail("choose one of --slow, --errors, --cost, --all and --otlp", as_json=as_json, status=2)

    def show(data: Any) -> tuple[str, Any]:
        if not data["spans"]:
            return "there is nothing to look back at yet", data
        return _exported(data, otlp, as_json=as_json) if otlp else (_whole(data), data)

    said = lines.line("trace", *modes, task)
    speak(said, as_json=as_json, show=show if otlp or everything else None)


def _exported(data: Any, place: str, *, as_json: bool) -> tuple[str, Any]:
    # Loaded here and not above, so that `--help` stays quick.
    from importlib.metadata import version

    from bot.engine.observe.otlp import request_of
    from cards.views.work.trace_data import trace_from

    request = request_of([trace_from(data)], version=version("shiftboss"))
    written = json.dumps(request, ensure_ascii=False)
    if place == "-":
        return written, request
    try:
        Path(place).expanduser().write_text(f"{written}\n", encoding="utf-8")
    except OSError as error:
        fail(f"{place} cannot be written ({error.strerror or error})", as_json=as_json, status=2)
    spans = len(data["spans"])
    return f"{spans} spans → {place}", {"file": place, "spans": spans}


def _whole(data: Any) -> str:
    from cards.views.work.trace_data import trace_from
    from cards.views.work.traces import tree_lines
    from cards.words import words_for
    from storage.records.people import Language

    return "\n".join(tree_lines(trace_from(data), words_for(Language.ENGLISH)))
